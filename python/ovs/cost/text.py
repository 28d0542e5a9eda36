# SPDX-License-Identifier: Apache-2.0
"""Numbers, tables and bars as text."""

from __future__ import annotations

import datetime
import math
from typing import Any, Dict, List, Optional, Tuple

from ovs.cost import distribution as dist
from ovs.cost.distribution import Distribution
from ovs.cost.model import Account, Body

MAX_LINES = 24                  # Of a stage's bars.
MAX_BAR = 40
MAX_TIME_US = 253402300799 * 10 ** 6    # The end of the year 9999.


def printable(name: str) -> str:
    """Returns 'name' without what a terminal would obey."""
    return "".join(c if c.isprintable() else
                   c.encode("unicode_escape").decode() for c in name)


def count(n: float) -> str:
    return f"{int(n):,}"


def real(value: float) -> str:
    """Returns a number, with commas and as many decimals as fit in eight
    characters."""
    precision = 2 if value < 9999.995 else 1 if value < 99999.95 else 0
    scaled = math.floor(value * 10 ** precision + 0.5)  # As llround().
    whole, rest = divmod(scaled, 10 ** precision)
    return f"{whole:,}" + (f".{rest:0{precision}}" if precision else "")


def us(ns: float, unit: str = "") -> str:
    """Returns microseconds and 'unit', or from a second on, seconds."""
    return (real(ns / 1000) + unit if ns < 999.9995e6
            else real(ns / 1e9) + " s")


def estimate(stage: Optional[Distribution], events: int) -> str:
    """Returns a mark if 'stage' is of a sample of the events."""
    return "~" if stage and stage.sampled and 0 < stage.count < events else ""


def plural(n: int, noun: str) -> str:
    return f"{count(n)} {noun}{'' if n == 1 else 's'}"


def share(name: str, n: int, total: int) -> str:
    percent = 100 * n / total if total else 0.0
    return f"  {printable(name)} {count(n)} ({percent:.1f}%)"


def when(time_us: int) -> str:
    moment = (datetime.datetime(1970, 1, 1) + datetime.timedelta(
        milliseconds=min(time_us, MAX_TIME_US) // 1000))
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + \
        f"{moment.microsecond // 1000:03}Z"


def cell(stage: Distribution, value: float) -> str:
    return us(value) if stage.is_time else count(value)


def table(body: Body) -> List[str]:
    """Returns the tables of times and of numbers."""
    lines = []
    for title, is_time in ("stage (us)", True), ("number", False):
        shown = {name: stage for name, stage in body.stages.items()
                 if stage.is_time == is_time and stage.count}
        if not shown:
            continue
        w = max(8, *(len(cell(stage, stage.max)) for stage in shown.values()))
        lines.append(f"  {title:10} {'count':>11} {'mean':>{w}}"
                     + "".join(f" {name:>{w}}" for name, _ in dist.PERCENTILES)
                     + f" {'max':>{w}}")
        for name, stage in shown.items():
            mean = us(stage.mean) if is_time else real(stage.mean)
            lines.append(
                f"  {name:10} {count(stage.count):>11} {mean:>{w}}"
                + "".join(f" {cell(stage, stage.percentile(p)):>{w}}"
                          for _, p in dist.PERCENTILES)
                + f" {cell(stage, stage.max):>{w}}")
    return lines


def bars(kind: str, name: str, stage: Distribution) -> List[str]:
    """Returns the bars of a distribution."""
    if not stage.count or not stage.buckets:
        return []
    first, last = min(stage.buckets), max(stage.buckets)
    step = 1
    while step < 8 and (last - first) // step >= MAX_LINES:
        step *= 2
    if first:
        first = (first - 1) // step * step + 1

    rows: List[Tuple[int, int]] = []
    b = first
    while b <= last:
        end = 1 if b == 0 else b + step
        n = sum(stage.buckets.get(i, 0) for i in range(b, end))
        rows.append((end, n))
        b = end
    most = max(n for _, n in rows)
    unit = most / MAX_BAR if most > MAX_BAR else 1
    lines = [f"  {name}{' (us)' if stage.is_time else ''}, each # is "
             + (f"{unit:.1f} {kind}s" if unit > 1 else f"1 {kind}")]
    top = dist.N_EDGES
    w = max(8, len(cell(stage, dist.EDGES[min(rows[-1][0], top) - 1])))
    for end, n in rows:
        length = n if most <= MAX_BAR else -(-n * MAX_BAR // most)
        edge = (f"   <= {cell(stage, dist.EDGES[end - 1]):>{w}}"
                if end <= top else
                f"    > {cell(stage, dist.EDGES[-1]):>{w}}")
        lines.append(f"{edge} {count(n):>11} {'#' * length}".rstrip())
    return lines


def shares(title: str, members: Dict[str, int], total: int) -> List[str]:
    if not total:
        return []
    return [f"  {title}:" + "".join(share(name, n, total)
                                    for name, n in members.items() if n)]


def groups(body: Body) -> List[str]:
    lines = []
    for name, members in body.counters.items():
        # Those without a share in a whole of their own.
        lines += shares(name, members, sum(members.values()))
    return lines


def lost(body: Body) -> str:
    return f", {count(body.lost)} lost" if "lost" in body.counters else ""


def account(name: str, item: Account, seconds: float,
            histograms: bool) -> List[str]:
    """Returns what there is of an account, or of a sum."""
    body = item.total
    lines = [f"{printable(name)}: {plural(body.events, body.kind)} in "
             f"{seconds:.1f} s" + lost(body)] + table(body)
    for stage, d in body.stages.items() if histograms else ():
        lines += bars(body.kind, stage, d)
    for title, bodies in ("class", item.classes), ("thread", item.threads):
        lines += shares(title, {n: b.events for n, b in bodies.items()},
                        body.events)
    return lines + groups(body)


def details(event: Dict[str, Any]) -> str:
    """Returns why one of the slowest events was slow, and what it was
    about."""
    known = {} if event["cause"] == "unknown" else {"": event["cause"]}
    return ", ".join(printable(f"{name} {value}").strip() for name, value
                     in {**known, **event["details"]}.items())


def slowest(name: str, events: List[Dict[str, Any]]) -> List[str]:
    """Returns the slowest events of an account."""
    return [f"{printable(name)}: slowest"] + [
        f"{i:3}. {us(event['total_ns'], ' us')} at {when(event['time_us'])}, "
        + printable(f"thread {event['thread']}, class {event['class']}, ")
        + details(event) for i, event in enumerate(events, 1)]
