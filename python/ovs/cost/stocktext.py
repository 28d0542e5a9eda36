# SPDX-License-Identifier: Apache-2.0
"""What Open vSwitch's own commands print, in numbers.

Each function has the text of one command, of any version from 2.17 on.  A line
that none of its patterns matches is added to 'unknown', and nothing is taken
from it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any, Dict, Iterator, List, Match, NamedTuple, Tuple

Unknown = List[str]


def scan(text: str, patterns: Dict[str, str], unknown: Unknown
         ) -> Iterator[Tuple[str, Match[str]]]:
    """Yields, for each line, the name of the first pattern that matches all of
    it, and the match.  Empty lines are left out."""
    # No number has more digits.
    compiled = [(name, re.compile(p.replace(r"\d+", r"\d{1,20}")))
                for name, p in patterns.items()]
    for line in text.split("\n"):
        if not line.strip():
            continue
        for name, pattern in compiled:
            match = pattern.fullmatch(line.rstrip("\r"))
            if match:
                yield name, match
                break
        else:
            unknown.append(line)


class Count(NamedTuple):
    """A counter of coverage/show."""

    total: int
    recent: float               # A second, in the last 5 s.
    minute: float               # The same in the last minute.


def coverage(text: str, unknown: Unknown) -> Dict[str, Count]:
    rate = r"\s+(\d{1,15}\.\d+)/sec"
    return {m[1]: Count(int(m[5]), float(m[2]), float(m[3]))
            for name, m in scan(text, {
                "counter": r"(\w+)" + 3 * rate + r"\s+total: (\d{1,20})",
                "": r"Event coverage, .*|\d+ events never hit"}, unknown)
            if name}


def upcalls(text: str, unknown: Unknown) -> Dict[str, Dict[str, int]]:
    """Returns flows, limit and the like of each datapath of upcall/show."""
    found: Dict[str, Dict[str, int]] = {}
    dp: Dict[str, int] = {}
    for name, m in scan(text, {
            "datapath": r"(\S+@\S.*):",
            "flows": r"\s+flows\s*: \(current (\d+)\) \(avg \d+\) "
                     r"\(max (\d+)\) \(limit (\d+)\)",
            "dump": r"\s+dump duration : (-?\d+)ms",
            "": r"\s+(offloaded flows|ufid enabled) ?: .*|"
                r"\s+\d+: \(keys \d+\)"}, unknown):
        if name == "datapath":
            dp = found[m[1]] = {}
        elif name == "flows":
            dp.update(current=int(m[1]), max=int(m[2]), limit=int(m[3]))
        elif name == "dump":
            dp["dump_ms"] = int(m[1])
    return {name: dp for name, dp in found.items() if "limit" in dp}


def fdb_stats(text: str, unknown: Unknown) -> Dict[str, int]:
    """Returns numbers of the MAC table of one bridge."""
    found: Dict[str, int] = {}
    for name, m in scan(text, {
            "table": r"\s+Current/maximum MAC entries in the table: "
                     r"(\d+)/(\d+)",
            "total": r"\s+Total number of (\w+)(?: \w+)* MAC entries\s*: "
                     r"(\d+)",
            "": r"Statistics for bridge \".*\":|"
                r"\s+Current static MAC entries in the table\s*: \d+"},
            unknown):
        if name == "table":
            found.update(entries=int(m[1]), max=int(m[2]))
        elif name == "total":
            found[{"port": "moved"}.get(m[1], m[1])] = int(m[2])
    return found


def fdb(reply: Any, unknown: Unknown) -> List[Tuple[str, str, str]]:
    """Returns the OpenFlow number of a port, VLAN and MAC address of each
    entry of fdb/show.  Newer versions have JSON."""
    if isinstance(reply, dict):
        return [(str(entry.get("port")), str(entry.get("vlan")),
                 str(entry.get("mac")))
                for entries in reply.values() for entry in entries]
    return [(m[1], m[2], m[3]) for name, m in scan(reply or "", {
        "entry": r"\s*(\S+)\s+(\d+)\s+((?:[0-9a-f]{2}:){5}[0-9a-f]{2})\s+"
                 r"(?:\d+|static|\?)",
        "": r"\s*[Pp]ort\s+VLAN\s+MAC\s+Age"}, unknown) if name]


def memory(text: str, unknown: Unknown) -> Dict[str, int]:
    pair = r"([^:]+):(\d+)"
    return {name.strip(): int(n)
            for _, line in scan(text, {"": rf"{pair}(?: {pair})*"}, unknown)
            for name, n in re.findall(pair, line[0])}


def datapaths(text: str, unknown: Unknown) -> Dict[str, Dict[str, int]]:
    """Returns the packets of each datapath of dpctl/show."""
    found: Dict[str, Dict[str, int]] = {}
    dp: Dict[str, int] = {}
    for name, m in scan(text, {
            "datapath": r"(\S+@\S.*):",
            "lookups": r"  lookups: hit:(\d+) missed:(\d+) lost:(\d+)",
            "": r"  (flows|masks|cache|caches|port \d+):.*|    .*"}, unknown):
        if name == "datapath":
            dp = found[m[1]] = {}
        elif name == "lookups":
            dp.update(hit=int(m[1]), missed=int(m[2]), lost=int(m[3]))
    return found


class Pmd(NamedTuple):
    """A PMD thread of dpif-netdev/pmd-rxq-show."""

    core: int
    queues: List[Tuple[str, int, float]]    # Port, number, share of the CPU.
    overhead: float
    known: bool                 # The shares are known.

    @property
    def busy(self) -> float:
        return sum(q[2] for q in self.queues) + self.overhead


def pmds(text: str, unknown: Unknown) -> List[Pmd]:
    usage = r"(?:(\d+) ?%|NOT AVAIL)"
    found: List[Pmd] = []
    for name, m in scan(text, {
            "pmd": r"pmd thread numa_id -?\d+ core_id (\d+):",
            "queue": r"\s+port: (.*?)\s+queue-id:\s*(\d+)\s*"
                     rf"(?:\(\w+\))?\s*pmd usage:\s*{usage}",
            "overhead": rf"\s+overhead:\s*{usage}",
            "": r"Displaying last \d+ seconds pmd usage %|"
                r"\s+isolated : (?:true|false)"}, unknown):
        if name == "pmd":
            found.append(Pmd(int(m[1]), [], 0.0, True))
        elif name and not found:
            unknown.append(m[0])
        elif name == "queue":
            found[-1].queues.append((m[1], int(m[2]), int(m[3] or 0) / 100))
            if m[3] is None:
                found[-1] = found[-1]._replace(known=False)
        elif name == "overhead":
            found[-1] = found[-1]._replace(overhead=int(m[1] or 0) / 100)
    return found


def neighbours(text: str, unknown: Unknown) -> List[str]:
    """Returns the addresses of tnl/neigh/show whose MACs are known."""
    mac = r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}"
    return [m[1] for name, m in scan(text, {
        "known": rf"(\S+)\s+{mac}\s+\S.*?(?: STALE)?",
        "": r"IP\s+MAC\s+Bridge|=+|\S+\s+\S.* INCOMPLETE(?: STALE)?"},
        unknown) if name]


def next_hop(text: str) -> str:
    """Returns the gateway of ovs/route/lookup, or ""."""
    match = re.search(r"^gateway (\S+)$", text, re.MULTILINE)
    return match[1] if match and match[1] not in ("::", "0.0.0.0") else ""


def number(text: str, unknown: Unknown) -> int:
    """Returns a number that is all of the text, or -1."""
    if re.fullmatch(r"\d{1,20}", text.strip()):
        return int(text)
    unknown.append(text.strip().split("\n")[0])
    return -1


def fragments(text: str, unknown: Unknown) -> Dict[str, int]:
    """Returns how many IP fragments dpctl/ipf-get-status has, and the
    limit."""
    found = {what: int(m[1]) for what, m in scan(text, {
        "max": r"\s+max num frags \(v4/v6\): (\d+)",
        "n": r"\s+num frag: (\d+)",
        "": r"\s*Fragmentation Module Status|\s+-+|\s+(?:min )?v[46] .*: \d+"},
        unknown) if what}
    return found if len(found) == 2 else {}


def zones(text: str) -> List[str]:
    """Returns the zones of dpctl/ct-get-limits that are full, as text."""
    return [f"zone {m[1]}, {int(m[3]):,} of {int(m[2]):,}"
            for m in re.finditer(
                r"zone=(\d+),limit=(\d{1,20}),count=(\d{1,20})", text)
            if int(m[3]) >= int(m[2]) > 0]


def groups(text: str) -> int:
    """Returns how many groups, of a VLAN each, mdb/show has, which has a line
    for each port of a group, and for queriers."""
    rows = (line.split() for line in text.split("\n"))
    return len({(row[1], row[-2]) for row in rows if len(row) > 3
                and row[1].isdigit() and row[-2] != "querier"})


class Flow(NamedTuple):
    """A flow of dpctl/dump-flows."""

    packets: int
    port: str
    match: str                  # As ofproto/trace takes it.
    actions: str

    def to_group(self) -> bool:
        """Returns true if its packets are broadcast, or multicast."""
        return bool(re.search(r"eth\([^)]*dst=.[13579bdf]:", self.match))


def flows(text: str) -> List[Flow]:
    """Returns the flows of dpctl/dump-flows."""
    return [Flow(int(m[3]), m[2], traceable(m[1]), m[4]) for m in re.finditer(
        r"^(recirc_id.*in_port\(([^)\n]*)\).*), packets:(\d{1,20}),.*"
        r"actions:(.*)$", text, re.MULTILINE)]


def traceable(flow: str) -> str:
    """Returns a flow of dpctl/dump-flows as ofproto/trace takes it: Ethernet
    packets have to have an address, and may not have no type."""
    flow = flow.replace(",eth_type(0/0xffff)", "")
    return flow if "eth(" in flow else flow.replace(
        "packet_type(ns=0,id=0)", "packet_type(ns=0,id=0),eth()")


def last_bridge(trace: str) -> str:
    """Returns the last bridge of ofproto/trace, or ""."""
    bridges = re.findall(r'^ *bridge\("(.*)"\)$', trace, re.MULTILINE)
    return bridges[-1] if bridges else ""


def last_rule(trace: str) -> str:
    """Returns the last rule of ofproto/trace, and its bridge, or ""."""
    rules = re.findall(r"^ *(\d+)\. (.*)$", trace, re.MULTILINE)
    bridge = last_bridge(trace)
    return (f"table {rules[-1][0]} of {bridge}, {rules[-1][1]}"
            if rules and bridge else "")


def warning(trace: str) -> str:
    """Returns the first warning of ofproto/trace, or "".  What is meant to be
    is none, such as a port that a spanning tree blocks, unless a rule outputs
    there."""
    match = re.search(r"^ *output:(\d+)\n *>> (R?STP) not in forwarding",
                      trace, re.MULTILINE)
    if match:
        return f"{match[2]} blocks port {match[1]}"
    match = re.search(
        r"^ *(?:-> (?P<dead>no live bucket)"
        r"|>>(?:>>)? (?!.*(?:skipping |TTL exception))(?:dropping )?"
        r"(?P<why>.*?)(?: <<<<)?)$", trace, re.MULTILINE)
    if not match or not match["dead"]:
        return match["why"] if match else ""
    groups_ = re.findall(r"^ *group:(\d+)$", trace[:match.start()],
                         re.MULTILINE)
    ports = re.findall(r"not live due to port (\d+)$", trace, re.MULTILINE)
    return (f"group {(groups_ or ['?'])[-1]} has no live bucket"
            + (f" (port {', port '.join(ports)})" if ports else ""))


def resubmitting_rule(trace: str) -> str:
    """Returns the rule that most resubmits of ofproto/trace begin with, or "":
    the last one before those of tables that come again."""
    rules = re.findall(r"^ *(\d+)\. (.*)$", trace, re.MULTILINE)
    times = Counter(table for table, _ in rules)
    first = [*itertools.takewhile(lambda rule: times[rule[0]] == 1, rules)]
    return "table {}, {}".format(*(first[-1:] + rules)[0]) if rules else ""


def tables(text: str) -> Dict[str, int]:
    """Returns how many rules each table has, of ovs-ofctl dump-tables."""
    return {m[1]: int(m[2]) for m in re.finditer(
        r"^ *table (\d+)[^:\n]*:\s*active=(\d{1,20})", text, re.MULTILINE)}


def meters(text: str) -> Dict[str, int]:
    """Returns how many packets each meter has dropped, of ovs-ofctl
    meter-stats."""
    found: Dict[str, int] = {}
    for m in re.finditer(
            r"meter[:=](\w+)|^ *\d+:\s*packet_count:(\d{1,20})", text,
            re.MULTILINE):
        if m[1]:
            meter = m[1]
            found[meter] = 0
        elif found:
            found[meter] += int(m[2])
    return found
