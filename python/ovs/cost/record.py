# SPDX-License-Identifier: Apache-2.0
"""ovs-cost record: writes the cost reports of running daemons to a file."""

from __future__ import annotations

import signal
import sys
import time
from typing import (Any, Callable, Dict, Iterator, List, Optional, Sequence,
                    Set, Tuple)

from ovs.cost import text
from ovs.cost.recording import Writer
from ovs.cost.target import (CommandError, Target, TargetError,
                             is_unknown)

SLOWEST_INTERVAL = 30.0         # Seconds between those of cost-slowest.
OPTIONS = ("-hist", "-thread")  # Of cost-show.
TOPS = {"upcall": ("port", "rule"), "bridge": ("message",)}     # Of cost-top.


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

    def _show_together(self, *options: str) -> Optional[List[Any]]:
        """Returns the replies of cost/show, one request that takes the target
        less than one for each report, or None if it, or one of the reports, is
        unknown, or the reply has no room for all accounts."""
        if not self.together:
            return None
        try:
            replies: List[Any] = self.target.command(
                "cost/show", *options, *self.reports)["replies"]
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

    def round(self, slowest: bool, *last: str) -> List[Dict[str, Any]]:
        """Returns the lines of one round, of a window if 'last' is "-last"
        and its length."""
        name = self.target.name
        lines: List[Dict[str, Any]] = []
        try:
            lines += ({"target": name, "reply": reply} for reply
                      in self._ask(slowest, *last) if reply is not None)
            self.failed = ""
        except (TargetError, CommandError) as e:
            # The connection is made again in the next round.
            self.target.close()
            if str(e) != self.failed:
                # Unless it is for the same reason as last time.
                self.failed = str(e)
                lines.append({"target": name, "error": str(e),
                              "time_us": int(time.time() * 1e6)})
        return lines

    def _ask(self, slowest: bool, *last: str) -> Iterator[Optional[Any]]:
        """Yields the replies of one round, None for an unknown command."""
        options = (*last, "-n", self.accounts)
        together = self._show_together(*OPTIONS, *options)
        yield from together or ()
        for report in self.reports:
            if together is None:
                yield self._command(f"{report}/cost-show", *OPTIONS, *options)
            if slowest:
                yield self._command(f"{report}/cost-slowest", *options, "16")
            for what in TOPS.get(report, ()):
                yield self._command(f"{report}/cost-top", what, *last, "-n",
                                    "1024")
            if report == "revalidator" and together is None:
                yield self._command("revalidator/cost-limit")
        if together is None or last:
            yield self._command("cost/threads", *last)


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
