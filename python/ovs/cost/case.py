# SPDX-License-Identifier: Apache-2.0
"""What rules of the doctor are made of: all that is known of a switch, and the
form of a rule."""

from __future__ import annotations

from typing import (Any, Callable, Dict, Iterator, List, NamedTuple, Optional,
                    Tuple)

from ovs.cost.distribution import Distribution
from ovs.cost.model import Account, Body, Window
from ovs.cost.stock import Stock, usage

SEVERITIES = ("critical", "warning", "hint")
DEFAULT_LIMIT = 10000           # Of flows, at first.
RECENT_US = 15 * 60 * 1e6       # A fall of the limit that is news.

Numbers = Iterator[Dict[str, Any]]


class Case(NamedTuple):
    """All that is known of a switch in a window of time."""

    windows: Dict[str, Window]  # By report.
    limit: Dict[str, Any]       # Reply of revalidator/cost-limit, or empty.
    threads: List[Dict[str, Any]]   # First and last reply of cost/threads.
    tops: Dict[str, List[Dict[str, Any]]]   # Rows of lists.
    stock: Stock = Stock()      # What any Open vSwitch has.

    def accounts(self, report: str, kind: str = "") -> List[Account]:
        window = self.windows.get(report)
        return [account for key, account in window.accounts.items()
                if key.kind.startswith(kind)] if window else []

    def main_loop(self) -> Tuple[Body, float]:
        """Returns the main loop's iterations, and the window in ns."""
        for account in self.accounts("bridge", "iteration"):
            return account.total, self.windows["bridge"].seconds * 1e9
        return Body("iteration"), 0.0

    def pressed(self) -> bool:
        """Returns true if upcalls do harm: they are lost, find no room for
        their flows, or need more than half of a thread's time."""
        for account in self.accounts("upcall"):
            body = account.total
            bad = sum(n for group, reasons in body.counters.items()
                      for reason, n in reasons.items()
                      if group == "lost" or reason == "flow-limit")
            # Also in the main thread, which has more to do.
            share = body.stages["total"].sum / max(
                1e9 * self.windows["upcall"].seconds, 1)
            if bad > body.events / 1000 or share > (
                    0.2 if self.stock.main() > 0.5 else 0.5):
                return True
        return any(share > 0.5 for share in self.stock.shares(
            r"handler\d+").values()) or any(
                delay > 0.5 for _, delay, name, _ in self.delays()
                if name.startswith("handler"))

    def delays(self) -> Iterator[Tuple[bool, float, str, float]]:
        """Yields whether a thread is a PMD thread, its share of time without
        a CPU, its name, and the same share of the time that it wants one."""
        for name, ns, cpu, delay in usage(self.threads):
            yield (name.startswith("pmd-"), delay / ns, name,
                   delay / max(delay + cpu, 1))


class Rule(NamedTuple):
    """Something that can be wrong.

    'condition' yields the numbers of 'sentence' for each object that it is
    true of: "share", from 0 to 1, is how bad it is."""

    name: str
    severity: str
    symptom: str                # As somebody notices it, or "".
    commands: str               # That show more: of ovs-appctl, or in full.
    advice: str
    sentence: str = ""
    condition: Optional[Callable[[Case], Numbers]] = None
    causes: str = ""            # Rules that are true because of this one.
    link: Tuple[str, ...] = ()  # To documentation: topic, section.


def above(stage: Distribution, ns: float) -> Tuple[int, float]:
    """Returns number and sum of the times of a stage that are longer."""
    long = {b: n for b, n in (stage.buckets or {}).items()
            if stage.representative(b) > ns}
    return (sum(long.values()),
            sum(n * stage.representative(b) for b, n in long.items()))


def limit_of(case: Case, name: str) -> Dict[str, Any]:
    """Returns a datapath's flow limit, its cause, and whether it lasts."""
    ns = max([a.total.stages["total"].mean for a
              in case.accounts("revalidator", "round")
              if a.key.name == name], default=0.0)
    grows = ("it grows" if ns < 1e9 else "it does not grow") + (
        f": revalidation rounds take {ns / 1e6:,.0f} ms (limit: 1 s)")
    found = {"limit": 0, "before": 0, "recent": False, "lasts": grows,
             "cause": "for an unknown reason"}
    for datapath in case.limit.get("datapaths", ()):
        if datapath["name"] != name:
            continue
        limit, moves = datapath["flow_limit"], datapath["latest"]
        fall = next((m for m in moves if m["to"] < m["from"]), None)
        found.update(limit=limit, before=max(
            [limit, *(m["from"] for m in moves)]))
        if fall and "duration_ms" in fall and (
                fall["reason"] in ("scaled", "reduced")):
            age_us = case.limit["now_us"] - fall["time_us"]
            found.update(recent=age_us < RECENT_US, cause="by load: a "
                         f"revalidation round took {fall['duration_ms']:,} ms")
        elif fall and "duration_ms" not in fall:
            found["cause"] = "by command (upcall/set-flow-limit)"
        elif fall or limit < DEFAULT_LIMIT:
            found.update(cause="by the database (other_config:flow-limit)",
                         lasts="it stays until that is changed")
        else:
            found["cause"] = "to its initial value"
        if moves and moves[0]["to"] > moves[0]["from"]:
            found["lasts"] = grows
    return found
