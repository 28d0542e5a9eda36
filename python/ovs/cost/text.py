# SPDX-License-Identifier: Apache-2.0
"""The reports as text, as lib/cost-report.c makes it."""

from __future__ import annotations

import datetime
import math
from typing import Any, Dict, List, Optional, Tuple

from ovs.cost import distribution as dist
from ovs.cost import model
from ovs.cost.distribution import Distribution
from ovs.cost.model import Account, Body

MAX_LINES = 24                  # Of a stage's bars.
MAX_BAR = 40
MIN_DATED_NS = 1000000          # As in lib/cost-render.c.

# Kinds of which every event is split into stages.
ALWAYS_SPLIT = ("iteration", "command", "call", "round", "share")


def printable(name: str) -> str:
    """Returns 'name' without what a terminal would obey."""
    return "".join(c if c.isprintable() else
                   c.encode("unicode_escape").decode() for c in name)


def count(n: float) -> str:
    return f"{int(n):,}"


def _round(x: float) -> int:
    """As llround(), half away from zero."""
    return int(math.floor(x + 0.5))


def real(value: float) -> str:
    """Returns a number, with commas and as many decimals as fit in eight
    characters."""
    precision = 2 if value < 9999.995 else 1 if value < 99999.95 else 0
    scaled = _round(value * 10 ** precision)
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
    moment = (datetime.datetime(1970, 1, 1)
              + datetime.timedelta(milliseconds=time_us // 1000))
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + \
        f"{moment.microsecond // 1000:03}Z"


def cell(stage: Distribution, value: float) -> str:
    return us(value) if stage.is_time else count(value)


def table(body: Body, numbers: bool) -> List[str]:
    """Returns the table of times, or that of numbers."""
    shown = {name: stage for name, stage in body.stages.items()
             if stage.is_time != numbers and stage.count}
    if not shown:
        return []
    w = max(8, *(len(cell(stage, stage.max)) for stage in shown.values()))
    lines = [f"  {'number' if numbers else 'stage (us)':10} {'count':>11} "
             f"{'mean':>{w}}"
             + "".join(f" {name:>{w}}" for name, _ in dist.PERCENTILES)
             + f" {'max':>{w}}"]
    for name, stage in shown.items():
        width = max(10, len(name))
        line = f"  {name:10} {count(stage.count):>{21 - width}} "
        line += f"{real(stage.mean) if numbers else us(stage.mean):>{w}}"
        for _, percent in dist.PERCENTILES:
            line += f" {cell(stage, stage.percentile(percent)):>{w}}"
        lines.append(line + f" {cell(stage, stage.max):>{w}}")
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


def derived(values: Dict[str, float]) -> List[str]:
    """Returns what follows from stages of bursts."""
    if "tsc_cycles_per_burst" not in values:
        return []
    return [f"  send (tsc cycles):  {real(values['tsc_cycles_per_burst'])} "
            f"per burst  {real(values['tsc_cycles_per_packet'])} per packet"]


def stages(body: Body, histograms: bool) -> List[str]:
    lines = table(body, False)
    lines += [f"  max of {name} at {when(stage.max_us)}"
              for name, stage in body.stages.items() if stage is body.whole
              and stage.max_us and stage.max >= MIN_DATED_NS]
    if any(not s.is_time for s in body.stages.values()):
        lines += table(body, True)
    lines += derived(body.derived)
    if histograms:
        for name, stage in body.stages.items():
            lines += bars(body.kind, name, stage)
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


def settings(head: Dict[str, Any], kind: str) -> str:
    """Returns the line that says how events are accounted for."""
    interval = int(head.get("settings", {}).get("sample_interval", 0))
    line = (f"  accounting {'on' if interval else 'off'}, clock "
            + str(head.get("clock", {}).get("source", "unknown")))
    if interval == 1 or (interval and kind in ALWAYS_SPLIT):
        line += ", counts and times exact"
    elif interval:
        sampled = kind == "burst"
        line += (f", counts {'' if sampled else 'and totals '}exact, "
                 f"{'times' if sampled else 'stages'} of 1 in {interval} "
                 f"{kind}s")
    return line


def account(head: Dict[str, Any], item: Account, now_us: int,
            histograms: bool, threads: bool) -> List[str]:
    """Returns one account."""
    kind, name = item.key.kind, printable(item.key.name)
    seconds = (now_us - (item.since_us or now_us)) / 1e6
    lines = [f"{name}: {plural(item.total.events, kind)} in {seconds:.1f} s"
             + lost(item.total), settings(head, kind)]
    if item.total.is_empty:
        return lines
    lines += stages(item.total, histograms)
    lines += shares("class", {n: b.events for n, b in item.classes.items()},
                    item.total.events)
    lines += groups(item.total)
    if item.threads:
        lines += shares("thread",
                        {n: b.events for n, b in item.threads.items()},
                        item.total.events)
    for thread, body in item.threads.items() if threads else ():
        if body.events or body.lost:
            lines.append(f"{name}, thread {printable(thread)}: "
                         f"{plural(body.events, kind)}" + lost(body))
            lines += stages(body, histograms) + groups(body)
    return lines


def show(reply: model.Reply, histograms: bool, threads: bool) -> List[str]:
    """Returns the text of a reply to cost-show."""
    lines = []
    for item in reply.accounts.values():
        lines += account(reply.head, item, reply.now_us, histograms, threads)
    noun = model.OBJECTS.get(reply.report, "account")
    if reply.omitted:
        lines.append(f"and {count(reply.omitted)} more {noun}"
                     f"{'' if reply.omitted == 1 else 's'}")
    for item in reply.deleted.values():
        if not item.total.is_empty:
            lines.append(f"deleted: {plural(item.accounts, noun)}, "
                         + plural(item.total.events, item.key.kind)
                         + lost(item.total))
    return lines or [f"no {noun}"]


def details(event: Dict[str, Any]) -> str:
    """Returns what one of the slowest events was about."""
    d = event.get("details", {})
    parts = []
    if "dp_port" in d:
        name = d.get("port_name")
        parts.append(f"dp port {d['dp_port']}"
                     + (f" ({printable(name)})" if name else ""))
    if "packet_bytes" in d:
        parts.append(f"{d['packet_bytes']} bytes")
    if "packets" in d:
        parts.append(f"{d['packets']} packets")
    if d.get("dropped"):
        parts.append(f"{d['dropped']} dropped")
    if "interfaces" in d:
        parts.append(plural(d["interfaces"], "interface"))
    if "commands" in d:
        parts.append(plural(d["commands"], "command"))
    if "interface" in d:
        parts.append(f"interface {printable(d['interface'])}")
    if "arguments" in d:
        parts.append(f"arguments: {printable(d['arguments'])}"
                     if d["arguments"] else "no arguments")
    if "peer" in d:
        parts.append(f"from {printable(d['peer'])}")
    if "message" in d:
        parts.append(str(d["message"]))
    elif "nlmsg_type" in d:
        parts.append(f"nlmsg_type {d['nlmsg_type']}")
        if "command" in d:
            parts.append(f"command {d['command']}")
    if "device" in d:
        parts.append(f"device {printable(d['device'])}")
    elif "ifindex" in d:
        parts.append(f"ifindex {d['ifindex']}")
    if "datapath_flows" in d:
        parts.append(f"{d['datapath_flows']} flows in the datapath")
    return ", ".join(parts)


def cause(event: Dict[str, Any]) -> str:
    """Returns why an event was slow, with a comma, if that is known."""
    known = event.get("cause", "unknown")
    return "" if known == "unknown" else f"{printable(known)}, "


def slow_event(event: Dict[str, Any],
               columns: model.Columns) -> List[str]:
    excluded = event.get("excluded_ns")
    line = us(event["total_ns"], " us")
    if excluded:
        line += f", without {us(excluded, ' us')} of events within it,"
    line += (f" at {when(event['time_us'])}, thread "
             f"{printable(event['thread'])}, class "
             f"{printable(event['class'])}, {cause(event)}{details(event)}")
    lines = [line]
    flow = event.get("details", {}).get("flow")
    if flow:
        lines.append("     " + printable(flow))
    times = ordered(event["stages_ns"], columns)
    rest = "".join(f" {n} {us(ns)} " for n, ns in times).rstrip()
    rest = "    " + (rest.replace("  ", " ") + " us" if times
                     else " stages unknown")
    for name, n in ordered(event["numbers"], columns):
        rest += f", {name} {count(n)}"
    return lines + [rest]


def ordered(stages_: Dict[str, int],
            columns: model.Columns) -> List[Tuple[str, int]]:
    return [(n, stages_[n]) for n in columns.ordered(stages_)]


def slowest(json: Dict[str, Any]) -> List[str]:
    """Returns the text of a reply to cost-slowest."""
    lines = []
    kinds = model.kinds(json)
    for item in json["accounts"]:
        seconds = (json["now_us"] - item["since_us"]) / 1e6
        lines.append(f"{printable(item['name'])}: slowest "
                     f"{len(item['slowest'])} of "
                     f"{plural(item['events'], item['kind'])} in "
                     f"{seconds:.1f} s")
        for i, event in enumerate(item["slowest"], 1):
            text = slow_event(event, model.columns_of(
                kinds, item["kind"], event["stages_ns"]))
            lines += [f"{i:3}. {text[0]}"] + text[1:]
    if json.get("late"):
        lines.append("the latest events are missing, as a thread does not "
                     "rest: try again")
    return lines or ["no account"]


def threads(json: Dict[str, Any]) -> List[str]:
    """Returns the text of a reply to cost/threads."""
    lines = [f"{len(json['threads'])} threads in {json['have_ns'] / 1e9:.1f} "
             "s"]
    if "error" in json:
        lines.append("threads cannot be read: " + printable(json["error"]))
    lines.append("  thread            CPU % delay % voluntary/s "
                 "involuntary/s faults")
    for item in json["threads"]:
        line = f"  {printable(item['name']):15}"
        last = item.get("last")
        if last:
            ns = last["ns"]
            line += (f" {100 * last['cpu_ns'] / ns:7.1f}"
                     f" {100 * last['run_delay_ns'] / ns:7.1f}"
                     f" {1e9 * last['voluntary_switches'] / ns:11.1f}"
                     f" {1e9 * last['involuntary_switches'] / ns:13.1f}"
                     f" {last['major_faults']:6}")
        lines.append(line)
    return lines


def limit(json: Dict[str, Any]) -> List[str]:
    """Returns the text of a reply to revalidator/cost-limit."""
    lines = []
    for item in json["datapaths"]:
        moves = item["moves"]
        lines.append(f"{printable(item['name'])}: flow limit "
                     f"{item['flow_limit']}, moved {moves} "
                     f"time{'' if moves == 1 else 's'}")
        for move in item["latest"]:
            lines.append(f"  {when(move['time_us'])} {move['reason']} from "
                         f"{move['from']} to {move['to']}")
            lines.append(f"    after a round of {move['duration_ms']} ms with "
                         f"{move['flows']} flows" if "duration_ms" in move
                         else "    by command")
    return lines or ["no datapath"]
