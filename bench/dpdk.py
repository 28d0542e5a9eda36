# SPDX-License-Identifier: Apache-2.0
"""A switch with DPDK devices that need no NIC, and one PMD thread."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Iterator, List, TypeVar

from bench.machine import Cores, Threads
from tools.switch import Failed, Switch


T = TypeVar("T", bound="DpdkSwitch")
# Of a packet, a pattern for perf().
CYCLES = r", (\d+) cycles/pkt"


class DpdkSwitch(Switch):
    """A switch with a bridge br0 and one PMD thread.

    Its devices and DPDK's files are in memory only, 'n_pages' huge pages of
    2 MB."""

    def __init__(self, tree: Path, directory: Path, cores: Cores,
                 n_pages: int) -> None:
        super().__init__(tree, directory)
        self.nice = -20
        self.cores = cores
        self.n_pages = n_pages

    def start_dpdk(self, *settings: str) -> None:
        """Starts the switch, with 'settings' of the Open_vSwitch table."""
        self.start_with_bridge(
            "netdev", "other_config:dpdk-init=true",
            "other_config:dpdk-extra=--no-pci --in-memory --no-telemetry "
            f"--socket-limit {self.n_pages * 2}",
            f"other_config:dpdk-lcore-mask={1 << self.cores.main:#x}",
            f"other_config:pmd-cpu-mask={1 << self.cores.pmd:#x}", *settings)

    def add_port(self, name: str, devargs: str, *settings: str) -> None:
        """Adds port 'name' to the bridge, with 'settings' of its
        interface."""
        self.add_ports([name], "type=dpdk",
                       f"options:dpdk-devargs={devargs}", *settings)

    @contextlib.contextmanager
    def running(self: T) -> Iterator[T]:
        """Lets the switch, which is stopped, run for the time being."""
        self.vswitchd.resume()
        try:
            yield self
        finally:
            self.vswitchd.pause()

    def perf(self, *patterns: str) -> List[float]:
        """Returns the number that the group of each pattern matches in what
        pmd-perf-show tells of the PMD thread, or 0."""
        text = self.appctl("dpif-netdev/pmd-perf-show").partition(
            "main thread")[0]
        found = [re.search(pattern, text) for pattern in patterns]
        return [float(match[1]) if match else 0 for match in found]

    def forward(self, *flows: str) -> None:
        """Adds OpenFlow 'flows', and looks for the PMD thread."""
        self.add_flows(*flows)
        self.threads = Threads(self.vswitchd.pid)
        self.pmd = self.threads.find("pmd")
        if len(self.pmd) != 1:
            raise Failed(f"{len(self.pmd)} PMD threads instead of one")
