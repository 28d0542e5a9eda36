# SPDX-License-Identifier: Apache-2.0
"""A page with charts of a recording.  It asks nobody for anything."""

from __future__ import annotations

from html import escape
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ovs.cost import distribution as dist
from ovs.cost import model, svg, text
from ovs.cost.distribution import Distribution
from ovs.cost.model import Body, Key, Window
from ovs.cost.recording import Recording

MAX_COLUMNS = 120               # Of charts over time.
MAX_ROWS = 20                   # Of tables.

STYLE = """
:root { color-scheme: light dark; --back: #fff; --fore: #1c2430;
  --dim: #5c6675; --line: #d9dee6; --card: #f6f8fb; --heat: #1f5fbf;
  --s0: #1f6fc4; --s1: #d9731a; --s2: #2a8f4e; --s3: #b8336a; --s4: #7a52c7;
  --s5: #8a6d1c; --s6: #0d8c95; --s7: #6b7683; --s8: #c2410c; --s9: #3f6212; }
@media (prefers-color-scheme: dark) { :root { --back: #12161c; --fore: #e4e9f0;
  --dim: #98a3b3; --line: #2c3440; --card: #1a2029; --heat: #6fb1ff;
  --s0: #6fb1ff; --s1: #ffa657; --s2: #6bd08b; --s3: #ff86b3; --s4: #b79bff;
  --s5: #e3c567; --s6: #56d4dd; --s7: #a3afbf; --s8: #ff8b6b; --s9: #a8cc6a; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 16px 20px 60px;
  font: 14px/1.45 system-ui, sans-serif; background: var(--back);
  color: var(--fore); }
h1 { font-size: 22px; margin: 8px 0 2px; }
h2 { font-size: 18px; margin: 36px 0 6px; padding-top: 12px;
  border-top: 1px solid var(--line); }
h3 { font-size: 13px; margin: 0 0 6px; color: var(--dim); font-weight: 600; }
p { margin: 4px 0 10px; color: var(--dim); }
nav a { margin-right: 14px; color: var(--s0); }
table { border-collapse: collapse; width: 100%; font-size: 13px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 6px; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
td.wrap { white-space: normal; text-align: left; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
.grid { display: grid; gap: 14px; margin: 12px 0;
  grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr)); }
.small { grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); }
.card { background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 12px 14px; min-width: 0; }
.meter { display: inline-block; width: 56px; height: 9px;
  background: var(--line); border-radius: 3px; vertical-align: 0; }
.meter i { display: block; height: 9px; border-radius: 3px;
  background: var(--s0); }
.legend { font-size: 12px; color: var(--dim); margin-top: 4px; }
.legend span { margin-right: 12px; white-space: nowrap; }
.legend i { display: inline-block; width: 10px; height: 10px;
  border-radius: 2px; margin-right: 4px; background: currentColor; }
svg { max-width: 100%; width: 100%; height: auto; display: block; }
svg .grid { stroke: var(--line); stroke-width: 1; fill: none; }
svg .axis { stroke: var(--dim); stroke-width: 1; fill: none; }
svg .label { fill: var(--dim); font: 13px system-ui, sans-serif; }
svg .line { fill: none; stroke: currentColor; stroke-width: 1.8;
  stroke-linejoin: round; }
svg .area, svg .bar { fill: currentColor; fill-opacity: 0.85; }
svg .box { fill: currentColor; fill-opacity: 0.35; stroke: currentColor; }
svg .whisker { stroke: currentColor; fill: none; }
svg .median { stroke: var(--fore); stroke-width: 2; }
svg .dot { fill: currentColor; }
svg .ring { fill: none; stroke: currentColor; stroke-width: 1.5; }
svg .heat { fill: var(--heat); }
details summary { cursor: pointer; color: var(--dim); margin: 10px 0; }
""" + "".join(f".s{i} {{ color: var(--s{i}); }}\n"
              for i in range(svg.N_COLORS))


def labeller(stage: Distribution) -> Callable[[float], str]:
    return svg.time_label if stage.is_time else svg.number_label


def legend(names: Sequence[str]) -> str:
    return '<div class="legend">' + "".join(
        f'<span class="{svg.color(i)}"><i></i>{escape(name)}</span>'
        for i, name in enumerate(names)) + "</div>"


def card(title: str, body: str) -> str:
    return f'<div class="card"><h3>{escape(title)}</h3>{body}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of cells that are HTML already."""
    return ('<div class="scroll"><table><tr>'
            + "".join(f"<th>{escape(h)}</th>" for h in head) + "</tr>"
            + "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>"
                      for row in rows) + "</table></div>")


def meter(fraction: float) -> str:
    width = min(max(100 * fraction, 0), 100)
    return (f'<span class="meter"><i style="width:{width:.1f}%"></i></span> '
            f"{100 * fraction:.1f}%")


def name_cell(name: str) -> str:
    return escape(text.printable(name))


def stage_table(body: Body) -> str:
    """The table of a report, of stages in time, then of numbers."""
    rows = []
    for name, stage in body.stages.items():
        if stage.count:
            rows.append(
                [escape(name) + (" *" if stage.sampled else ""),
                 text.count(stage.count),
                 (text.us(stage.mean) if stage.is_time
                  else text.real(stage.mean))]
                + [text.cell(stage, stage.percentile(p))
                   for _, p in dist.PERCENTILES]
                + [("" if stage.max_exact else "&le; ")
                   + text.cell(stage, stage.max),
                   "us" if stage.is_time else escape(stage.unit)])
    note = ("<p>* of a sample of the events, so the count is no rate</p>"
            if any(s.sampled and s.count for s in body.stages.values())
            else "")
    return table(["stage", "count", "mean"]
                 + [n for n, _ in dist.PERCENTILES] + ["max", "unit"],
                 rows) + note


def breakdown(what: str, bodies: Dict[str, Body]) -> str:
    """Who took how much."""
    lost = any(b.lost for b in bodies.values())
    total_time = sum(b.time_ns for b in bodies.values())
    rows = []
    ordered = sorted((i for i in bodies.items() if i[1].events),
                     key=lambda i: -i[1].time_ns)
    for name, body in ordered[:MAX_ROWS]:
        whole = body.whole
        if whole is None or not whole.count:
            times = ["", "", "", ""]
        else:
            times = [text.us(whole.mean), text.us(whole.percentile(50)),
                     text.us(whole.percentile(99)), text.us(whole.max)]
        rows.append([name_cell(name),
                     meter(body.time_ns / total_time if total_time else 0),
                     text.count(body.events)]
                    + times + ([text.count(body.lost)] if lost else []))
    if not rows:
        return ""
    more = ("" if len(ordered) <= MAX_ROWS else
            f"<p>and {len(ordered) - MAX_ROWS} more</p>")
    return card(f"By {what}", table(
        [what, "share of time", "events", "mean us", "p50", "p99", "max"]
        + (["lost"] if lost else []), rows) + more)


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


def over_time(columns: Columns) -> List[str]:
    """Charts over time of one kind of events."""
    cards = []
    wholes = [b.whole for b in columns.bodies]
    if any(w and w.count for w in wholes):
        cards.append(card(
            "Time by latency of whole events: the stronger, the more (log)",
            svg.heat_map([svg.Column(s, e, w) for (s, e), w
                          in zip(columns.times, wholes)], svg.time_label)))
    names: List[str] = []
    for body in columns.bodies:
        names += [n for n, s in body.parts() if s.count and n not in names]
    if names:
        values = []
        for name in names:
            row = []
            for i, body in enumerate(columns.bodies):
                stage = body.stages.get(name)
                took = 0.0
                if stage and stage.count:
                    took = stage.sum * (body.events / stage.count
                                        if stage.sampled else 1)
                row.append(took / 1e6 / columns.seconds(i))
            values.append(row)
        cards.append(card(
            "Time of each stage, ms per s", svg.stacked(
                columns.times, names, values, title="Time of each stage")
            + legend(names)))
    rate = [(columns.middle(i), b.events / columns.seconds(i))
            for i, b in enumerate(columns.bodies)]
    lost = [(columns.middle(i), b.lost / columns.seconds(i))
            for i, b in enumerate(columns.bodies)]
    series = [("events", rate)]
    if any(v for _, v in lost):
        series.append(("lost", lost))
    cards.append(card("Events per second", svg.lines(
        series, columns.times[0][0], columns.times[-1][1])
        + legend([n for n, _ in series])))
    return cards


def counters(body: Body) -> str:
    """The counters, as bars."""
    parts = []
    for group, members in body.counters.items():
        total = sum(members.values())
        rows = [[name_cell(n), text.count(v), meter(v / total)]
                for n, v in members.items() if v]
        if rows:
            parts.append(card(group.capitalize(), table(["", "", ""], rows)))
    return f'<div class="grid small">{"".join(parts)}</div>' if parts else ""


def flow_limits(recording: Recording, source: str, start: int,
                end: int) -> str:
    """The flow limit over time."""
    series: Dict[str, Dict[float, float]] = {}
    for reply in recording.limits.get(source, ()):
        for item in reply["datapaths"]:
            points = series.setdefault(item["name"], {})
            for move in reversed(item["latest"]):
                if start <= move["time_us"] <= end:
                    points[move["time_us"]] = move["to"]
            points[reply["now_us"]] = item["flow_limit"]
    data = [(n, sorted(p.items())) for n, p in series.items() if p]
    if not data:
        return ""
    first = min(start, int(min(p[0][0] for _, p in data)))
    last = max(end, int(max(p[-1][0] for _, p in data)))
    return card("Flow limit", svg.lines(data, first, last, step=True,
                                        title="Flow limit")
                + legend([n for n, _ in data]))


def slowest(recording: Recording, source: str, report: str,
            kind: str) -> str:
    """The slowest events of a kind."""
    reply = recording.slowest.get((source, report))
    events: List[Tuple[str, Dict[str, Any]]] = []
    for account in reply["accounts"] if reply else ():
        if account["kind"] == kind:
            events += [(account["name"], e) for e in account["slowest"]]
    events.sort(key=lambda e: -e[1]["total_ns"])
    rows = []
    for name, event in events[:10]:
        stages = ", ".join(f"{n} {svg.time_label(ns)}" for n, ns in
                           text.ordered(event["stages_ns"], kind))
        flow = event.get("details", {}).get("flow", "")
        what = text.details(event) + (f" {flow}" if flow else "")
        rows.append([name_cell(name), svg.time_label(event["total_ns"]),
                     text.when(event["time_us"]), name_cell(event["thread"]),
                     name_cell(event["class"]),
                     escape(stages or "not split"), name_cell(what)])
    if not rows:
        return ""
    html = table(["account", "total", "at", "thread", "class", "stages",
                  "what"], rows)
    # The two last ones may be long.
    return ("<details><summary>The slowest, since they were cleared"
            "</summary>" + html.replace("<td>", '<td class="wrap">')
            + "</details>")


def section(recording: Recording, source: str, report: str, key: Key,
            windows: Sequence[Window], total: Window, anchor: str) -> str:
    """All about one kind of events."""
    account = total.totals[key]
    body = account.total
    times = [(n, s) for n, s in body.stages.items() if s.is_time and s.count
             and s.buckets]
    numbers = [(n, s) for n, s in body.stages.items()
               if not s.is_time and s.count and s.buckets]
    seconds = max(total.seconds, 1e-6)
    parts = [f'<h2 id="{anchor}">{escape(model.kind_title(key))}</h2>',
             f"<p>{text.count(body.events)} in {total.seconds:.1f} s, "
             f"{text.real(body.events / seconds)} per second, "
             f"{text.real(body.time_ns / seconds / 1e6)} ms per s"
             + (f", {text.count(body.lost)} lost" if "lost" in body.counters
                else "") + "</p>", stage_table(body)]
    charts = []
    if times:
        names = [n for n, _ in times]
        charts += [card("Distribution of each stage: box 25 to 75%, line 1 to "
                        "99%, dot 99.9%, ring maximum",
                        svg.box_plots(times, svg.time_label)),
                   card("Percentile curves", svg.percentile_curves(
                       times, svg.time_label) + legend(names))]
    columns = Columns(windows, key)
    if len(columns.times) > 1:
        charts += over_time(columns)
    if key.kind == "round":
        charts.append(flow_limits(recording, source, total.start_us,
                                  total.end_us))
    parts.append(f'<div class="grid">{"".join(charts)}</div>')
    if numbers:
        parts.append('<div class="grid small">' + "".join(
            card(n, svg.histogram(n, s, labeller(s), i))
            for i, (n, s) in enumerate(numbers)) + "</div>")
    if times:
        parts.append("<details><summary>Histogram of each stage</summary>"
                     '<div class="grid small">' + "".join(
                         card(n, svg.histogram(n, s, labeller(s), i))
                         for i, (n, s) in enumerate(times))
                     + "</div></details>")
    of_kind = {k: a for k, a in total.accounts.items()
               if model.sum_key(a) == key}
    noun = model.OBJECTS.get(report, "account")
    parts.append('<div class="grid">' + "".join([
        breakdown("class", account.classes),
        breakdown("thread", _threads(of_kind.values())),
        breakdown(noun, {k.name: a.total for k, a in of_kind.items()})
        if len(of_kind) > 1 else ""]) + "</div>")
    parts.append(counters(body))
    parts.append(slowest(recording, source, report, key.kind))
    return "".join(parts)


def _threads(accounts: Any) -> Dict[str, Body]:
    threads: Dict[str, Body] = {}
    for account in accounts:
        for name, body in account.threads.items():
            if name in threads:
                threads[name].merge(body)
            else:
                threads[name] = body.copy()
    return threads


def headline(recording: Recording) -> str:
    """What was recorded, where and how."""
    rows = []
    for source in recording.sources():
        for report in recording.reports():
            replies = recording.replies.get((source, report))
            if not replies:
                continue
            last = replies[-1]
            clock = last.head.get("clock", {})
            rows.append([
                name_cell(source or "reply"), report,
                text.when(replies[0].now_us), text.when(last.now_us),
                str(len(replies)), name_cell(last.ovs_version),
                escape(str(clock.get("source", ""))),
                f"1 in {last.split_interval}" if last.split_interval
                else "off"])
    systems = sorted({str(h["system"]) for h in recording.headers
                      if "system" in h})
    return (f"<p>{escape(', '.join(systems))}</p>" if systems else "") + (
        "<details><summary>What was recorded</summary>"
        + table(["from", "report", "first", "last", "replies", "OVS", "clock",
                 "stages of"], rows) + "</details>")


def page(recording: Recording, title: str) -> str:
    """Returns the page."""
    title = title or "What ovs-vswitchd spends its time on"
    links, parts = [], []
    sources = recording.sources()
    for n, source in enumerate(sources):
        if len(sources) > 1:
            parts.append(f"<h1>{name_cell(source)}</h1>")
        for report in recording.reports():
            windows = recording.windows(source, report)
            total: Optional[Window] = None
            for window in windows:
                total = total or Window(report, window.start_us,
                                        window.end_us)
                total.merge(window)
            if total is None:
                continue
            for key, account in sorted(total.totals.items()):
                if account.total.is_empty:
                    continue
                anchor = f"{report}-{key.kind}-{key.datapath}-{n}"
                links.append(f'<a href="#{anchor}">'
                             f"{escape(model.kind_title(key))}</a>")
                parts.append(section(recording, source, report, key, windows,
                                     total, anchor))
            if total.notes:
                shown = sorted(set(total.notes))
                parts.append("<p>" + escape(text.printable(
                    "; ".join(shown[:8]))) + "</p>")
    if recording.errors:
        parts.append(f"<h2>Errors</h2><p>{len(recording.errors)}, the first: "
                     + name_cell(recording.errors[0].error) + "</p>")
    if not links:
        parts.append("<p>Nothing happened.</p>")
    return ('<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            '<meta http-equiv="Content-Security-Policy" content="default-src '
            "'none'; style-src 'unsafe-inline'; img-src data:\">"
            '<link rel="icon" href="data:,">'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
            f"<body><h1>{escape(title)}</h1>{headline(recording)}"
            f"<nav>{' '.join(links)}</nav>{''.join(parts)}</body></html>\n")
