# SPDX-License-Identifier: Apache-2.0
"""ovs-cost record: writes the cost reports of running daemons to a file."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from ovs.cost import text
from ovs.cost.recording import Writer
from ovs.cost.target import (CommandError, Target, TargetError,
                             is_unknown)

SLOWEST_INTERVAL = 30.0         # Seconds between those of cost-slowest.
OPTIONS = ("-hist", "-thread")  # Of cost-show.


class Poller:
    """Asks a target for its reports, and copes with it being away."""

    def __init__(self, target: Target, reports: Sequence[str],
                 accounts: int) -> None:
        self.target = target
        self.reports = reports
        self.failed = ""
        self.accounts = str(accounts)
        self.unknown: Set[Tuple[int, str]] = set()
        self.pid = 0
        self.together = True    # All reports in one request?

    def _command(self, command: str, *args: str) -> Optional[Any]:
        """Returns the reply, or None if the target has no such command."""
        if (self.pid, command) in self.unknown:
            return None
        try:
            reply = self.target.command(command, *args)
        except CommandError as e:
            if not is_unknown(e):
                raise
            self.unknown.add((self.pid, command))
            return None
        self._see(reply)
        return reply

    def _see(self, reply: Any) -> None:
        """Looks whether 'reply' is from another process than others."""
        if isinstance(reply, dict) and "pid" in reply:
            if self.pid not in (0, reply["pid"]):
                # It may be another version.
                self.together = True
            self.pid = reply["pid"]

    def show(self, report: str, *options: str) -> Optional[Any]:
        """Returns a reply to cost-show, or None if there is no such
        report."""
        return self._command(f"{report}/cost-show", *options, "-n",
                             self.accounts)

    def _show_together(self, reports: Sequence[str],
                       *options: str) -> Optional[List[Any]]:
        """Returns the replies of cost/show, one request that takes the target
        less than one for each report, or None if it, or one of the reports, is
        unknown, or the reply has no room for all accounts."""
        if not self.together:
            return None
        try:
            replies: List[Any] = self.target.command(
                "cost/show", *options, "-n", self.accounts,
                *reports)["replies"]
        except CommandError as e:
            if not (is_unknown(e) or str(e).startswith("no report")):
                raise
            self.together = False
            return None
        if any("left_out" in one for one in replies):
            self.together = False
            return None
        for one in replies:
            self._see(one)
        return replies

    def round(self, slowest: bool) -> List[Dict[str, Any]]:
        """Returns the lines of one round."""
        return self._guarded(
            lambda lines: self._ask(lines, slowest, *OPTIONS))

    def _ask(self, lines: List[Dict[str, Any]], slowest: bool,
             *options: str) -> None:
        """Appends to 'lines' those of one round."""
        replies = self._show_together(self.reports, *options)
        for reply in replies or ():
            self._add(lines, reply)
        for report in self.reports:
            if replies is None:
                self._add(lines, self.show(report, *options))
            if slowest:
                self._add(lines, self._command(
                    f"{report}/cost-slowest", "-n", self.accounts, "16"))
            if report == "revalidator" and replies is None:
                self._add(lines, self._command("revalidator/cost-limit"))
        if replies is None:
            self._add(lines, self._command("cost/threads"))

    def shows(self, reports: Sequence[str],
              *options: str) -> List[Dict[str, Any]]:
        """Returns the lines of replies to cost-show."""
        def ask(lines: List[Dict[str, Any]]) -> None:
            replies = self._show_together(reports, *options)
            if replies is None:
                replies = [self.show(report, *options) for report in reports]
            for reply in replies:
                if reply is not None and reply["command"] == "cost-show":
                    self._add(lines, reply)
        return self._guarded(ask)

    def _guarded(self, ask: Callable[[List[Dict[str, Any]]], None]
                 ) -> List[Dict[str, Any]]:
        """Returns the lines that 'ask' appends; if it fails, the last one says
        why, unless it is for the same reason as last time."""
        lines: List[Dict[str, Any]] = []
        try:
            ask(lines)
            self.failed = ""
        except (TargetError, CommandError) as e:
            # The connection is made again in the next round.
            self.target.close()
            if str(e) != self.failed:
                self.failed = str(e)
                lines.append({"target": self.target.name, "error": str(e),
                              "time_us": int(time.time() * 1e6)})
        return lines

    def _add(self, lines: List[Dict[str, Any]], reply: Optional[Any]) -> None:
        if reply is not None:
            lines.append({"target": self.target.name, "reply": reply})


def record(targets: List[Target], reports: Sequence[str], accounts: int,
           interval: float, duration: Optional[float], writer: Writer,
           say: Callable[[str], None]) -> int:
    """Writes rounds to 'writer' until 'duration' is over, or a signal comes.
    Returns the number of replies."""
    pollers = [Poller(t, reports, accounts) for t in targets]
    stop: List[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _frame: stop.append(n))

    start = time.monotonic()
    end = start + duration if duration is not None else None
    next_round = start
    next_slowest = start
    n_replies = 0
    while True:
        now = time.monotonic()
        last = bool(stop) or (end is not None and now >= end)
        slowest = last or now >= next_slowest
        if slowest:
            next_slowest = now + SLOWEST_INTERVAL
        for poller in pollers:
            failed = poller.failed
            for line in poller.round(slowest):
                writer.write(line)
                n_replies += "reply" in line
            if poller.failed and poller.failed != failed:
                say(poller.failed)
        writer.flush()
        if last:
            return n_replies
        # A round that took too long is not made up for.
        next_round = max(next_round + interval, time.monotonic())
        wake = min(next_round, end) if end is not None else next_round
        while not stop and time.monotonic() < wake:
            time.sleep(min(max(wake - time.monotonic(), 0), 0.2))


def warn(message: str) -> None:
    print(f"ovs-cost: {text.printable(message)}", file=sys.stderr)
