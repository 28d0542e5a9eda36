# SPDX-License-Identifier: Apache-2.0
"""What it costs the main thread that a port comes and goes.

ovs-vswitchd has a userspace bridge with N_PORTS idle veth devices.  One more
is added and deleted, again and again.  "change" is the processor time of the
main thread for an addition or a deletion, until it comes to rest.  In each
pair, processes of both trees take turns.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median
from typing import Dict, List

from machine import NotHere, Threads, read
from report import Context, Result, ratio_line, table
from runner import take_turns
from switch import Switch

N_PORTS = 1152
N_CHANGES = 5                   # Additions, and as many deletions.
GOAL = 5                        # Times less.


class PortsSwitch(Switch):
    """A switch with N_PORTS idle ports."""

    def __init__(self, tree: Path, directory: Path) -> None:
        super().__init__(tree, directory)
        self.nice = -20
        self.timeout = 300

    def set_up(self) -> None:
        self.start_database()
        self.start()
        self.main = (Threads(self.vswitchd.pid).directory
                     / str(self.vswitchd.pid))
        ports = [f"v{i}" for i in range(N_PORTS)]
        self.ip(*(line for port in [*ports, "more"] for line in (
            f"link add {port} type veth peer name w{port}",
            f"link set {port} up", f"link set w{port} up")))
        self.vsctl("add-br", "br0", "--", "set", "bridge", "br0",
                   "datapath_type=netdev", "fail-mode=secure")
        self.vsctl("set", "Open_vSwitch", ".",
                   "other_config:stats-update-interval=600000")
        self.add_ports(ports, "type=system")
        self.measure()

    def rest(self) -> int:
        """Waits until the main thread uses no time; returns what it has
        used."""
        used = -1
        while True:
            now = int(read(self.main / "schedstat").split()[0])
            if now - used < 200000:
                return now
            used = now
            time.sleep(0.2)

    def measure(self) -> float:
        """Returns what a change takes, in ms."""
        start = self.rest()
        for _ in range(N_CHANGES):
            self.vsctl("add-port", "br0", "more")
            self.vsctl("del-port", "br0", "more")
        return (self.rest() - start) / 2 / N_CHANGES / 1e6


def run(context: Context) -> List[Result]:
    """Runs the benchmark; returns what it measured."""
    if os.geteuid():
        raise NotHere("it takes root")
    times: Dict[str, List[float]] = {"stock": [], "patched": []}
    take_turns(context, f"{N_PORTS} ports", PortsSwitch,
               lambda name, switch: times[name].append(switch.measure()))
    result = Result(f"{N_PORTS} ports, a change", "ms", times)
    ratio = result.ratio("stock", "patched")
    print(table(["ms", *times],
                [[result.case, *(f"{median(ms):.2f}"
                                 for ms in times.values())]]))
    print(ratio_line(f"stock/patched, {result.case}", ratio, None,
                     f"goal: {GOAL} times less", judge=False))
    return [result]
