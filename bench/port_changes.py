# SPDX-License-Identifier: Apache-2.0
"""What changes cost the main thread if there are many ports.

ovs-vswitchd has a userspace bridge with N_PORTS idle veth devices, half of
which have an address, and so a route.  Of each step, the processor time of the
main thread is measured, until it comes to rest:

port     a port is added or deleted
device   two devices that are no ports, a veth pair, are created or deleted
flags    a flag of a port's device changes
request  ovs-appctl asks for the version
route    a route is added or deleted, 20 ms after the one before

In each pair, processes of both trees take turns.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable, Dict

from bench.machine import Threads, need
from bench.report import Context
from tools.switch import Switch

N_PORTS = 1152
N_STEPS = 10


class PortsSwitch(Switch):
    """A switch with N_PORTS idle ports."""

    def __init__(self, tree: Path, directory: Path) -> None:
        super().__init__(tree, directory)
        self.nice = -20
        self.timeout = 300
        self.cases: Dict[str, Callable[[int], object]] = {
            "port": lambda i: self.vsctl(
                "del-port" if i % 2 else "add-port", "br0", "more"),
            "device": lambda i: self.ip(
                "link del other" if i % 2 else
                "link add other type veth peer name peer"),
            "flags": lambda i: self.ip("link set v0 allmulticast "
                                       + ("off" if i % 2 else "on")),
            "request": lambda i: self.appctl("version"),
            "route": self.change_route}

    def set_up(self) -> None:
        self.start_with_bridge(
            "netdev", "other_config:stats-update-interval=600000")
        self.main = (Threads(self.vswitchd.pid).directory
                     / str(self.vswitchd.pid))
        ports = [f"v{i}" for i in range(N_PORTS)]
        self.add_veths(*(name for port in [*ports, "more"]
                         for name in (port, f"w{port}")))
        self.add_ports(ports, "type=system")
        self.ip(*(f"addr add 10.1.{i // 256}.{i % 256}/32 dev {port}"
                  for i, port in enumerate(ports[::2])))
        for case in self.cases:
            self.measure(case)

    def change_route(self, i: int) -> None:
        self.ip(f"route {'del' if i % 2 else 'add'} 10.2.0.1 dev v0")
        time.sleep(0.02)

    def measure(self, case: str) -> float:
        """Returns what a step takes, in ms."""
        start = Threads.rest([self.main], 200000)
        for i in range(N_STEPS):
            self.cases[case](i)
        return (Threads.rest([self.main], 200000) - start) / N_STEPS / 1e6


def run(context: Context) -> None:
    need()

    def measure(name: str, switch: PortsSwitch) -> None:
        for case in switch.cases:
            context.add(case, "ms", name, switch.measure(case))

    context.compare(f"{N_PORTS} ports", PortsSwitch, measure)
