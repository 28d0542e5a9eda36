# SPDX-License-Identifier: Apache-2.0
"""ovs-cost flight: the latest events of each thread, as a trace."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from ovs.cost import text


class Event(NamedTuple):
    """An event of a thread.  Times are nanoseconds since the Epoch."""

    thread: str
    begin: int
    end: int
    json: Dict[str, Any]        # As in the reply to cost/flight.

    @property
    def name(self) -> str:
        return f"{self.json['event']} {self.json['class']}"


def events(reply: Dict[str, Any]) -> List[Event]:
    """Returns the events of a reply to cost/flight."""
    return [Event(thread["thread"], event["begin_ns"], event["end_ns"], event)
            for thread in reply["threads"] for event in thread["events"]]


def lanes(found: List[Event]) -> Iterator[Tuple[Event, int]]:
    """Yields the events of a thread, each with a lane: those of a lane follow
    each other, or are within each other."""
    open_: List[List[Event]] = []
    for event in sorted(found, key=lambda e: (e.begin, -e.end)):
        for lane, stack in enumerate(open_):
            while stack and stack[-1].end <= event.begin:
                stack.pop()
            if not stack or stack[-1].end >= event.end:
                break
        else:
            lane = len(open_)
            open_.append([])
        open_[lane].append(event)
        yield event, lane


def trace(found: List[Event], pid: int) -> Dict[str, Any]:
    """Returns events in the trace event format, which Perfetto and Chrome's
    about:tracing read.  Of an event with no other one within it, the stages
    are drawn, too, in the order in which reports have them."""
    start = min((e.begin for e in found), default=0)
    rows: List[Dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name",
         "args": {"name": "ovs-vswitchd"}}]
    tid = 0

    def add(name: str, category: str, begin: int, ns: int,
            **args: Any) -> None:
        rows.append({"ph": "X", "pid": pid, "tid": tid, "cat": category,
                     "name": name, "ts": (begin - start) / 1000,
                     "dur": ns / 1000, "args": args})

    for thread in sorted({e.thread for e in found}):
        tids: Dict[int, int] = {}
        last = tid
        for event, lane in lanes([e for e in found if e.thread == thread]):
            tid = tids.setdefault(lane, last + 1 + lane)
            json = event.json
            add(event.name, json["event"], event.begin,
                event.end - event.begin,
                **{k: v for k, v in json.items()
                   if k not in ("event", "begin_ns", "end_ns")})
            at = event.begin
            for stage, ns in json["stages"].items():
                if not json["excluded_ns"]:
                    add(stage, "stage", at, min(ns, event.end - at))
                    at += min(ns, event.end - at)
        for lane, tid in tids.items():
            rows.append({"ph": "M", "pid": pid, "tid": tid,
                         "name": "thread_name", "args": {
                             "name": f"{thread} ({lane + 1})" if lane
                             else thread}})
        tid = last + len(tids)
    return {"traceEvents": rows, "displayTimeUnit": "ns",
            "otherData": {"begin": text.when(start // 1000)}}


def meanwhile(event: Event, found: List[Event]) -> List[Tuple[int, Event]]:
    """Returns, for each other thread, the event that was going on for most of
    the time of 'event', and for how long, longest first."""
    most: Dict[str, Tuple[int, Event]] = {}
    for other in found:
        ns = min(event.end, other.end) - max(event.begin, other.begin)
        if other.thread != event.thread and ns > most.get(
                other.thread, (0, other))[0]:
            most[other.thread] = ns, other
    return sorted(most.values(), key=lambda m: -m[0])


def summary(found: List[Event], n: int = 10) -> Iterator[str]:
    """Yields lines about the 'n' longest events, and what other threads did
    meanwhile.  If all were kept because of one, that is the first, and others
    are of its time."""
    yield (f"{text.plural(len(found), 'event')} of "
           f"{text.plural(len({e.thread for e in found}), 'thread')}")
    first = [e for e in found if "stopped" in e.json]
    shown = [e for e in found if e not in first and (
        not first or (e.begin < first[0].end and e.end > first[0].begin))]
    shown.sort(key=lambda e: e.begin - e.end)
    for event in (first + shown)[:n]:
        yield _line(text.when(event.begin // 1000)[11:], event,
                    event.end - event.begin)
        for ns, other in meanwhile(event, found)[:3]:
            yield _line("   meanwhile", other, ns)


def _line(head: str, event: Event, ns: int) -> str:
    stages = sorted(event.json["stages"].items(), key=lambda s: -s[1])
    mostly = f", mostly {stages[0][0]}" if stages else ""
    account = event.json.get("account", "(deleted)")
    return text.printable(f"{head:13}  {event.thread:15} "
                          f"{text.us(ns, ' us'):>14}  {event.name} of "
                          f"{account}{mostly}")
