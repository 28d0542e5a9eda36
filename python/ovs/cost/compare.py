# SPDX-License-Identifier: Apache-2.0
"""Two recordings side by side."""

from __future__ import annotations

import math
import random
import re
from typing import (Callable, Dict, List, NamedTuple, Optional, Sequence, Set,
                    Tuple)

from ovs.cost import distribution as dist
from ovs.cost import doctor, model, text
from ovs.cost.distribution import Distribution
from ovs.cost.model import Body, Key, Window
from ovs.cost.recording import Recording

METRICS = ("mean", "p50", "p90", "p99", "p99.9")
RATE = "rate"                   # Events per second.
EVENTS = "events"               # The stage that the rate is of.

MAX_BLOCKS = 24
MIN_BLOCKS = 5                  # With fewer, nothing is known of the noise.
RESAMPLES = 400
UNSURE = 0.1                    # Changes that are shown if noise is unknown.
BUCKET = 2 ** (1 / (1 << dist.SCALE))   # By which percentiles move.


class Block:
    """What happened in several successive windows."""

    def __init__(self, kind: str) -> None:
        self.seconds = 0.0
        self.body = Body(kind)


class Side:
    """One of the two: the blocks of one kind of events, and their sum."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.blocks: List[Block] = []
        self.n_sources = 0
        self.seconds = 0.0
        self.total = Body(kind)

    def add_source(self, windows: Sequence[Window], key: Key) -> None:
        """Adds the windows of one source, in blocks of neighbours, as what
        is near in time is often alike."""
        n_blocks = min(len(windows), MAX_BLOCKS)
        first = len(self.blocks)
        self.blocks += [Block(self.kind) for _ in range(n_blocks)]
        for i, window in enumerate(windows):
            block = self.blocks[first + i * n_blocks // len(windows)]
            block.seconds += window.seconds
            self.seconds += window.seconds
            if key in window.totals:
                block.body.merge(window.totals[key].total)
        for block in self.blocks[first:]:
            self.total.merge(block.body)
        self.n_sources += 1

    def load(self, stage: str) -> float:
        """Returns the time per second of a stage, or of all if it is ""."""
        d = self.total.stages.get(stage)
        if not d or not d.is_time or d.apart:
            return 0.0 if stage else self.total.time_ns / (self.seconds or 1)
        return d.sum / (self.seconds or 1)


def sides(recording: Recording) -> Dict[Tuple[str, Key], Side]:
    """Returns what there is in a recording, by report and kind of events."""
    result: Dict[Tuple[str, Key], Side] = {}
    for report in recording.reports():
        per_source = [recording.windows(source, report)
                      for source in recording.sources()]
        keys = {key for windows in per_source for w in windows
                for key in w.totals}
        for key in sorted(keys):
            side = Side(key.kind)
            for windows in per_source:
                if any(key in w.totals for w in windows):
                    side.add_source(windows, key)
            result[report, key] = side
    return result


class Row(NamedTuple):
    """One number of both."""

    stage: str
    metric: str
    a: float
    b: float
    change: Optional[float]             # Of b against a, or None.
    low: Optional[float]                # The interval of the change.
    high: Optional[float]
    verdict: str                        # "", "no change" or "?".
    is_time: bool


def value(body: Body, stage: str, metric: str) -> float:
    d = body.stages.get(stage)
    if not d or not d.count:
        return 0.0
    if metric == "mean":
        return d.mean
    return d.percentile(dict(dist.PERCENTILES)[metric])


class _Numbers:
    """The blocks of a stage, as numbers that are quick to add up."""

    def __init__(self, side: Side, stage: str) -> None:
        stages = [b.body.stages.get(stage) or Distribution()
                  for b in side.blocks]
        self.counts = [s.count for s in stages]
        self.sums = [s.sum for s in stages]
        used = sorted({b for s in stages for b in s.buckets or {}})
        self.values = [side.total.stages[stage].representative(b)
                       for b in used] if stage in side.total.stages else []
        self.rows = [[(s.buckets or {}).get(b, 0) for s in stages]
                     for b in used]

    def metrics(self, weights: Sequence[int]) -> Dict[str, float]:
        """Returns all metrics of a resample, in which block i is weights[i]
        times."""
        used = [(i, w) for i, w in enumerate(weights) if w]
        n = sum(w * self.counts[i] for i, w in used)
        if not n:
            return {}
        result = {"mean": sum(w * self.sums[i] for i, w in used) / n}
        ranks = [(dist.nearest_rank(percent, n), name)
                 for name, percent in dist.PERCENTILES]
        seen, next_rank = 0, 0
        for bucket, row in zip(self.values, self.rows):
            seen += sum([w * row[i] for i, w in used])
            while next_rank < len(ranks) and seen >= ranks[next_rank][0]:
                result[ranks[next_rank][1]] = bucket
                next_rank += 1
        return result


def _weights(rng: random.Random, n: int) -> List[int]:
    weights = [0] * n
    for _ in range(n):
        weights[rng.randrange(n)] += 1
    return weights


def interval(changes: List[float], estimate: float,
             n_blocks: int) -> Tuple[float, float]:
    """Returns the 95% interval of a change, of which 'changes' are
    resamples.

    It is that of the percentile bootstrap, made wider for few blocks, of which
    that alone would expect too little: as Student's t is wider than the normal
    distribution, and as n - 1 are less than n.  All of that with logarithms of
    ratios, as a change of -50% undoes one of +100%."""
    logs = sorted(math.log1p(max(c, -0.999)) for c in changes)
    middle = math.log1p(max(estimate, -0.999))
    low = logs[int(0.025 * (len(logs) - 1))]
    high = logs[int(math.ceil(0.975 * (len(logs) - 1)))]
    df = n_blocks - 1
    t = 1.96 + 2.37 / df + 2.82 / df ** 2
    factor = t / 1.96 * math.sqrt(n_blocks / df)
    return (math.expm1(middle - factor * max(middle - low, 0)),
            math.expm1(middle + factor * max(high - middle, 0)))


def compare(a: Side, b: Side, seed: int = 1) -> List[Row]:
    """Returns the rows of one kind of events."""
    rng = random.Random(seed)
    n_blocks = min(len(a.blocks), len(b.blocks))
    known = n_blocks >= MIN_BLOCKS
    draws = [(_weights(rng, len(a.blocks)), _weights(rng, len(b.blocks)))
             for _ in range(RESAMPLES)] if known else []

    def row(stage: str, metric: str, x: float, y: float,
            resamples: List[float], is_time: bool) -> Row:
        change = y / x - 1 if x else None
        if change is None or not known or len(resamples) < RESAMPLES // 2:
            verdict = "no change" if x == y else "?"
            return Row(stage, metric, x, y, change, None, None, verdict,
                       is_time)
        low, high = interval(resamples, change, n_blocks)
        noise = low <= 0 <= high
        if metric.startswith("p"):
            # Over the edge of a bucket by next to nothing.
            noise = noise or max(x, y) <= min(x, y) * BUCKET * 1.0001
        return Row(stage, metric, x, y, change, low, high,
                   "no change" if noise else "", is_time)

    def rate(name: str, count: Callable[[Body], int]) -> Row:
        rates = []
        counts = [[(count(x.body) * side.n_sources, x.seconds)
                   for x in side.blocks] for side in (a, b)]
        for draw in draws:
            (n_a, s_a), (n_b, s_b) = (
                [sum(w * c[i] for w, c in zip(weights, blocks))
                 for i in (0, 1)] for weights, blocks in zip(draw, counts))
            if n_a and s_a and s_b:
                rates.append((n_b / s_b) / (n_a / s_a) - 1)
        return row(name, RATE, *(
            count(side.total) * side.n_sources / side.seconds
            if side.seconds else 0.0 for side in (a, b)), rates, False)

    rows = [rate(EVENTS, lambda body: body.events)]
    for group, members in b.total.counters.items():
        for name in members:
            rows.append(rate(name, lambda body: body.counters.get(
                group, {}).get(name, 0)))

    names = list(a.total.stages) + [n for n in b.total.stages
                                    if n not in a.total.stages]
    for stage in names:
        both = [s.total.stages.get(stage) for s in (a, b)]
        if not all(d and d.count and d.buckets is not None for d in both):
            continue
        assert both[0]
        numbers = (_Numbers(a, stage), _Numbers(b, stage))
        resamples: Dict[str, List[float]] = {m: [] for m in METRICS}
        for wa, wb in draws:
            xs, ys = numbers[0].metrics(wa), numbers[1].metrics(wb)
            for metric in METRICS:
                if xs.get(metric) and metric in ys:
                    resamples[metric].append(ys[metric] / xs[metric] - 1)
        for metric, percent in dist.PERCENTILES:
            if min(d.count for d in both if d) * (100 - percent) < 500:
                # It hangs on less than five events.
                resamples[metric] = []
        for metric in METRICS:
            rows.append(row(stage, metric, value(a.total, stage, metric),
                            value(b.total, stage, metric),
                            resamples[metric], both[0].is_time))
    return rows


class Limit:
    """A change that is too much: METRIC:[KIND/]STAGE:+N% or -N%."""

    RE = re.compile(r"^(mean|p50|p90|p99|p99\.9|rate):(?:([a-z]+)/)?"
                    r"([a-z -]+):([+-])(\d+(?:\.\d+)?)%$")

    def __init__(self, spec: str) -> None:
        match = self.RE.match(spec)
        if not match:
            raise ValueError(f"\"{spec}\" is not METRIC:[KIND/]STAGE:+N%, "
                             "such as mean:upcall/total:+5%")
        self.spec = spec
        self.metric, self.kind, self.stage = match.group(1, 2, 3)
        self.sign = 1 if match.group(4) == "+" else -1
        self.limit = float(match.group(5)) / 100
        self.seen = False

    def exceeded(self, kind: str, row: Row) -> bool:
        """Returns true if 'row' is what this is about, and has changed by
        more, and by more than noise."""
        if (row.metric != self.metric or row.stage != self.stage
                or self.kind not in (None, kind)):
            return False
        self.seen = True
        return (row.change is not None and row.verdict != "no change"
                and self.sign * row.change > self.limit)


def number(row: Row, x: float) -> str:
    return text.us(x) if row.is_time else text.real(x)


def _bound(change: float) -> str:
    return f"x{change + 1:.1f}" if change >= 10 else f"{100 * change:+.1f}"


def _change(row: Row) -> str:
    if row.change is None:
        return "new" if row.b else ""
    return _bound(row.change) + "%" * (row.change < 10)


def _findings(a: Recording, b: Recording) -> List[str]:
    """Returns what is wrong with either, which may explain changes."""
    lines = [f"{name}: {finding['sentence']}"
             for name, recording in (("A", a), ("B", b))
             for finding in doctor.findings(recording)]
    return lines + ["Fewer events are not an improvement where threads had no "
                    "CPU."
                    ] * any("starved" in line for line in lines)


def diff(a: Recording, b: Recording, limits: Sequence[Limit],
         everything: bool) -> Tuple[str, bool]:
    """Returns the text of a comparison, of what has changed or 'everything',
    what matters most first, and whether a limit was exceeded.

    Raises ValueError if a limit is of something that is not in both."""
    failed: List[str] = []
    in_a, in_b = sides(a), sides(b)
    sections: List[Tuple[float, List[str]]] = []
    names: Set[str] = set()
    for report, key in in_a:
        side_a, side_b = in_a[report, key], in_b.get((report, key))
        if not side_b or side_a.total.is_empty and side_b.total.is_empty:
            continue
        rows = compare(side_a, side_b)
        # Stages follow rates of events and counters.
        rows.sort(key=lambda row: (
            row.metric != RATE, -abs(row.b - row.a) if row.metric == RATE
            else -abs(side_a.load(row.stage) - side_b.load(row.stage)),
            row.stage))
        names.update(row.stage for row in rows)
        few = min(len(side_a.blocks), len(side_b.blocks)) < MIN_BLOCKS
        failed += [f"{limit.spec}: {key.kind} {row.stage} {row.metric} "
                   f"changed by {_change(row)}" for row in rows
                   for limit in limits if limit.exceeded(key.kind, row)]
        rows = [row for row in rows if everything or not row.verdict
                or (row.verdict == "?" and (row.change is None or (
                    few and abs(row.change) > UNSURE)))]
        lines = [
            f"{model.kind_title(key)}: A {text.count(side_a.total.events)} in "
            f"{side_a.seconds:.1f} s, B {text.count(side_b.total.events)} in "
            f"{side_b.seconds:.1f} s" + ("" if rows else ": no change")]
        if rows:
            lines.append(f"  {'stage (us)':12} {'':5} {'A':>9} {'B':>9} "
                         f"{'change':>8}  95% interval (%)")
        last = ""
        for row in rows:
            name = "" if row.stage == last else row.stage
            last = row.stage
            metric = "1/s" if row.metric == RATE else row.metric
            spread = ("" if row.low is None or row.high is None else
                      f"  [{_bound(row.low)}, {_bound(row.high)}]")
            verdict = {"": "", "?": "  noise unknown",
                       "no change": "  no change"}[row.verdict]
            lines.append(f"  {name:12} {metric:5} {number(row, row.a):>9}"
                         f" {number(row, row.b):>9} "
                         f"{_change(row):>8}{spread}{verdict}")
        if few:
            lines.append(f"  (noise unknown: there are fewer than "
                         f"{MIN_BLOCKS} intervals)")
        sections.append((max((abs(
            side_a.load(row.stage) - side_b.load(row.stage))
            for row in rows), default=-1.0), lines))
    for limit in limits:
        if not limit.seen:
            raise ValueError(f"{limit.spec}: there is nothing of that name in "
                             "both recordings, which have "
                             + ", ".join(sorted(names)))
    parts = [_findings(a, b)] + [
        lines for _, lines in sorted(sections, key=lambda s: -s[0])] + [
        [f"FAILED {f}" for f in failed]]
    if not sections:
        parts.append(["there is nothing to compare"])
    return "\n\n".join("\n".join(p) for p in parts if p), bool(failed)
