# SPDX-License-Identifier: Apache-2.0
"""What ovs-vswitchd has in memory after a scan.

60,000 packets, each of a flow of its own, arrive at a switch, and then one a
second.  The datapath is the one for tests: like the kernel's, it has no PMD
threads, so memory goes back.  Memory is that of the process:
before the scan, when all flows are there, and a while after they are gone.
The patched tree logs how long it took to return memory to the system: a thread
that allocates memory meanwhile waits for that long at most.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import List

from bench.report import Context
from tools.switch import wait_until
from tools.trouble import Scan

N_FLOWS = 60000
LATER = 20                      # Seconds after the last flow is gone.
WHEN = ("before", "with all flows", "after")


class Flows(Scan):
    commands = Scan.commands[1:]        # Without a limit of memory.


def measure(tree: Path, directory: Path) -> List[float]:
    """Returns how much memory 'tree' has, for WHEN, in MB, and how long it
    took to return some, in ms, or 0."""
    with Flows(tree, directory, Scan.arguments) as switch:
        def resident() -> float:
            text = Path(f"/proc/{switch.vswitchd.pid}/status").read_text()
            return int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) / 1e3

        def flows() -> int:
            return int(re.findall(r"current (\d+)",
                                  switch.appctl("upcall/show"))[0])

        switch.set_up()
        switch.appctl("vlog/set", "ofproto_dpif_upcall:file:dbg")
        found = [resident()]
        wait_until(lambda: flows() >= N_FLOWS, "flows", 60)
        found.append(resident())
        wait_until(lambda: flows() < N_FLOWS / 100, "flows to go", 60)
        time.sleep(LATER)
        found.append(resident())
        took = re.findall(r"returned memory .* in (\d+) us",
                          (directory / "ovs-vswitchd.log").read_text())
        return [*found, max(map(int, took), default=0) / 1e3]


def run(context: Context) -> None:
    for name, tree in context.trees.items():
        for i in range(context.choose("pairs", 3, 1)):
            with tempfile.TemporaryDirectory(prefix="trim.") as directory:
                *memory, took = measure(tree, Path(directory))
            context.progress(f"{name}: round {i + 1}")
            for when, mb in zip(WHEN, memory):
                context.add(name, "MB", when, mb)
            if took:
                context.add(name, "ms", "returning it", took)
