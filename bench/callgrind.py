# SPDX-License-Identifier: Apache-2.0
"""ovs-vswitchd under valgrind's callgrind, and what that has counted."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Dict, List, NamedTuple

from bench.machine import Threads
from tools.switch import Failed, Switch, wait_until

# The source files of the accounting.
OURS = re.compile(r"/(\w+-)?cost(-\w+)?\.[ch]$")
# Makes room in a histogram for times unlike those that it has: at most once
# for each doubling of a time, in the life of a histogram, but often under
# callgrind, where each port has few times, which are haphazard.
GROWTH = "cost_block_extend"


class Count(NamedTuple):
    """Instructions."""
    total: float
    ours: float                         # By accounting.
    growth: float                       # Of these, in GROWTH.


def parse_profile(text: str) -> Count:
    """Returns what the callgrind profile 'text' has counted.

    'ours' is the cost of all lines in files that match OURS, also where they
    were inlined, and of the functions of other files that these call."""
    names: Dict[str, str] = {}
    total = ours = growth = 0
    number_of_growth = re.search(rf"fn=(\(\d+\)) {GROWTH}$", text, re.M)
    function = ""                       # Which is called: its number.
    current = callee = False            # Is the file one of ours?
    call = False                        # Is the next line that of a call?
    for line in text.splitlines():
        match = re.match(r"(fl|fi|fe|cfi|cfl)=\((\d+)\)(?: (.*))?$", line)
        if match:
            what, number, name = match.groups()
            if name:
                names[number] = name
            mine = bool(OURS.search(names[number]))
            if what in ("cfi", "cfl"):
                callee = mine
            else:
                current = callee = mine
        elif line.startswith("cfn="):
            function = line[len("cfn="):].split()[0]
        elif line.startswith("calls="):
            call = True
        elif re.match(r"[-+*\d]", line):
            fields = line.split()
            cost = int(fields[1]) if len(fields) > 1 else 0
            if call:
                if number_of_growth and function == number_of_growth.group(1):
                    growth += cost
                if current and not callee:
                    ours += cost
                call, callee = False, current
            elif current:
                ours += cost
        elif line.startswith(("totals:", "summary:")):
            total = int(line.split()[1])
    return Count(total, ours, growth)


class CallgrindSwitch(Switch):
    """A switch under callgrind, which counts within 'functions' only, and only
    after instrument(): until then it is several times as fast."""

    def __init__(self, tree: Path, directory: Path, functions: List[str],
                 options: List[str]) -> None:
        super().__init__(
            tree, directory, options=options,
            wrapper=["unshare", "--net",
                     "valgrind", "--tool=callgrind", "--instr-atstart=no",
                     *(f"--toggle-collect={name}" for name in functions),
                     f"--vgdb-prefix={directory}/vgdb",
                     f"--callgrind-out-file={directory}/profile"])
        self.n_dumps = 0

    def vgdb(self, *command: str) -> None:
        done = subprocess.run(
            ["vgdb", f"--vgdb-prefix={self.directory}/vgdb",
             f"--pid={self.vswitchd.pid}", *command], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=self.timeout)
        if done.returncode:
            raise Failed(f"vgdb: {done.stdout.strip()}")

    def instrument(self, on: bool = True) -> None:
        """Waits until no function runs, of which callgrind would lose track,
        and has it start or stop."""
        Threads.rest(Threads(self.vswitchd.pid).find(""), 10e6)
        self.vgdb("instrumentation", "on" if on else "off")

    def dump(self) -> str:
        """Returns the profile of what was counted since the last time."""
        self.n_dumps += 1
        profile = self.directory / f"profile.{self.n_dumps}"
        self.vgdb("dump")
        wait_until(lambda: profile.exists()
                   and "\ntotals:" in profile.read_text(), "callgrind", 120)
        text = profile.read_text()
        profile.unlink()
        return text
