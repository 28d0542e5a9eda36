# SPDX-License-Identifier: Apache-2.0
"""ovs-cost record: writes the cost reports of running daemons to a file."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from ovs.cost import text
from ovs.cost.model import REPORTS, BadReply, understood
from ovs.cost.recording import Writer
from ovs.cost.target import CommandError, Target, TargetError

SLOWEST_INTERVAL = 30.0         # Seconds between lists of slowest events.


class Poller:
    """Asks a target for its reports, and copes with it being away."""

    def __init__(self, target: Target, reports: Sequence[str],
                 accounts: int) -> None:
        self.target = target
        self.options = ["-hist", "-thread", "-top", "-n", str(accounts)]
        # Without names, those that there are.
        self.reports = [] if list(reports) == list(REPORTS) else list(reports)
        self.failed = ""

    def round(self, slowest: bool, *last: str) -> List[Dict[str, Any]]:
        """Returns the lines of one round, of a window if 'last' is "-last"
        and its length."""
        name = self.target.name
        options = [*self.options, *last]
        if slowest:
            options += ["-slowest", "16"]
        try:
            reply = self.target.command("cost/show", *options, *self.reports)
            with understood():
                lines = [{"target": name, "reply": one} for one
                         in reply["replies"]]
            self.failed = ""
            return lines
        except (TargetError, CommandError, BadReply) as e:
            # The connection is made again in the next round.
            self.target.close()
            if str(e) == self.failed:
                return []
            # Unless it is for the same reason as last time.
            self.failed = str(e)
            return [{"target": name, "error": str(e),
                     "time_us": int(time.time() * 1e6)}]


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
