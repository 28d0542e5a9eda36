# SPDX-License-Identifier: Apache-2.0
"""What a recording's charts show, for a page or a picture."""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from ovs.cost import model, svg, text
from ovs.cost.distribution import Distribution
from ovs.cost.model import Account, Body, Key, Window
from ovs.cost.recording import Recording

MAX_COLUMNS = 120               # Of charts over time.
MAX_CURVES = 5                  # In one chart.


class Chart(NamedTuple):
    """A drawing, with what is above and below it."""

    title: str
    drawing: str                        # SVG.
    legend: Sequence[Tuple[str, int]] = ()      # Names and colors.


class Section:
    """All that happened of one kind of events, in one source."""

    def __init__(self, recording: Recording, source: str, report: str,
                 key: Key, windows: Sequence[Window], total: Window) -> None:
        self.recording = recording
        self.source = source
        self.report = report
        self.key = key
        self.windows = windows
        self.total = total
        self.account: Account = total.totals[key]

    @property
    def title(self) -> str:
        return model.kind_title(self.key)

    def headline(self) -> str:
        """Returns how much there was of it."""
        body = self.account.total
        seconds = max(self.total.seconds, 1e-6)
        return (f"{text.count(body.events)} in {self.total.seconds:.1f} s, "
                f"{text.real(body.events / seconds)} per second, "
                f"{text.estimate(body.whole, body.events)}"
                f"{text.real(body.time_ns / seconds / 1e6)} ms per s"
                + (f", {text.count(body.lost)} lost"
                   if "lost" in body.counters else ""))

    def _drawable(self, is_time: bool) -> List[Tuple[str, Distribution]]:
        return [(n, s) for n, s in self.account.total.stages.items()
                if s.is_time == is_time and s.count and s.buckets]

    def charts(self) -> List[Chart]:
        """Returns all but histograms."""
        times = self._drawable(True)
        curves = sorted(sorted(enumerate(times),
                               key=lambda t: -t[1][1].sum)[:MAX_CURVES])
        charts = []
        if times:
            charts += [
                Chart("Distribution of each stage: box 25 to 75%, line 1 to "
                      "99%, dot 99.9%, ring maximum",
                      svg.box_plots(times)),
                Chart("Percentile curves", svg.percentile_curves(curves),
                      [(n, i) for i, (n, _) in curves])]
        columns = Columns(self.windows, self.key)
        if len(columns.times) > 1:
            charts += columns.charts([n for n, _ in times])
        if self.key.kind == "round":
            charts += self._flow_limit()
        return charts

    def histograms(self, is_time: bool) -> List[Chart]:
        """Returns those of times, or of numbers."""
        return [Chart(n, svg.histogram(n, s, i))
                for i, (n, s) in enumerate(self._drawable(is_time))
                if len(s.buckets or ()) > 1]

    def _flow_limit(self) -> List[Chart]:
        """Returns the flow limit over time, if it is known."""
        start, end = self.total.start_us, self.total.end_us
        series: Dict[str, Dict[float, float]] = {}
        for reply in self.recording.limits.get(self.source, ()):
            for item in reply.get("datapaths", ()):
                points = series.setdefault(item["name"], {})
                for move in reversed(item["latest"]):
                    if start <= move["time_us"] <= end:
                        points[move["time_us"]] = move["to"]
                points[reply["now_us"]] = item["flow_limit"]
        data = [(text.printable(n), sorted(p.items()))
                for n, p in series.items() if p][:MAX_CURVES]
        if not data:
            return []
        first = min(start, int(min(p[0][0] for _, p in data)))
        last = max(end, int(max(p[-1][0] for _, p in data)))
        return [Chart("Flow limit", svg.lines(data, first, last, step=True,
                                              title="Flow limit"),
                      [(n, i) for i, (n, _) in enumerate(data)])]


class Columns:
    """What happened in each of at most MAX_COLUMNS stretches of time."""

    def __init__(self, windows: Sequence[Window], key: Key) -> None:
        windows = [w for w in windows if w.seconds > 0]
        n = min(len(windows), MAX_COLUMNS)
        self.times: List[Tuple[int, int]] = []
        self.bodies: List[Body] = []
        for i in range(n):
            part = windows[i * len(windows) // n:(i + 1) * len(windows) // n]
            body = Body(key.kind)
            for window in part:
                if key in window.totals:
                    body.merge(window.totals[key].total)
            self.times.append((part[0].start_us, part[-1].end_us))
            self.bodies.append(body)

    def seconds(self, i: int) -> float:
        return (self.times[i][1] - self.times[i][0]) / 1e6

    def middle(self, i: int) -> float:
        return (self.times[i][0] + self.times[i][1]) / 2

    def charts(self, stages: Sequence[str]) -> List[Chart]:
        """Returns those over time, of one kind of events.  A stage's color is
        its place among 'stages'."""
        charts = []
        wholes = [b.whole for b in self.bodies]
        if any(w and w.count for w in wholes):
            charts.append(Chart(
                "Time by latency of whole events: the stronger, the more "
                "(log)", svg.heat_map([svg.Column(s, e, w) for (s, e), w
                                       in zip(self.times, wholes)])))
        names: List[str] = []
        for body in self.bodies:
            names += [n for n, s in body.parts() if s.count
                      and n not in names]
        if names:
            colors = [stages.index(n) if n in stages else i
                      for i, n in enumerate(names)]
            charts.append(Chart("Time of each stage, ms per s" + (
                " (~ from a sample)" if any(
                    text.estimate(stage, body.events) for body in self.bodies
                    for _, stage in body.parts()) else ""), svg.stacked(
                self.times, names, [self._spent(name) for name in names],
                colors), list(zip(names, colors))))
        rate = [(self.middle(i), b.events / self.seconds(i))
                for i, b in enumerate(self.bodies)]
        lost = [(self.middle(i), b.lost / self.seconds(i))
                for i, b in enumerate(self.bodies)]
        series = [("events", rate)]
        if any(v for _, v in lost):
            series.append(("lost", lost))
        charts.append(Chart("Events per second", svg.lines(
            series, self.times[0][0], self.times[-1][1]),
            [(n, i) for i, (n, _) in enumerate(series)]))
        return charts

    def _spent(self, name: str) -> List[float]:
        """Returns the milliseconds of a stage in each second."""
        row = []
        for i, body in enumerate(self.bodies):
            # Of a sample, the stages add up to all events' time.
            parts = dict(body.parts())
            whole = sum(stage.sum for stage in parts.values())
            took = parts[name].sum if name in parts else 0
            if took and parts[name].sampled:
                took *= body.time_ns / whole
            row.append(took / 1e6 / self.seconds(i))
        return row


def title_of(recording: Recording) -> str:
    """Returns what, when and how long a recording is of."""
    sources = recording.sources()
    times = [reply.now_us for replies in recording.replies.values()
             for reply in (replies[0], replies[-1])] or [0]
    return ((text.printable(sources[0] or "A reply") if len(sources) == 1
             else f"{len(sources)} switches")
            + f", {text.when(min(times))[:16]} UTC, "
            f"{(max(times) - min(times)) / 1e6:.0f} s")


def sections(recording: Recording, source: str,
             report: str) -> Iterator[Section]:
    """Yields the kinds of events in a report of which there are any."""
    windows = recording.windows(source, report)
    total = model.add_up(windows)
    if total is None:
        return
    for key, account in sorted(total.totals.items()):
        if not account.total.is_empty:
            yield Section(recording, source, report, key, windows, total)
