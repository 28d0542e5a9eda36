# SPDX-License-Identifier: Apache-2.0
"""What accounting for bursts takes, in memory.

"ovstest test-tx-cost memory" has threads send to all ports through the
functions that the datapath calls, with two reasons, up to 32 packets, and
times from 0.2 to 50 us.  It tells what is accounted for, which is what
"ovs-appctl memory/show" has as "cost-kb", and by how much the process has
grown, which is more, for what malloc() keeps.  A result has four values:
before any burst, when each thread has sent one to each port, when each has
sent N_BURSTS to each, and after 18 minutes of a clock that the program
advances, in which each thread sends to each port all the time: "-last 15m"
needs copies of the numbers of these minutes.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from typing import List, Tuple

from report import Context, Result, table
from switch import Failed

PORTS = (2000, 10000)
THREADS = (1, 8)
N_BURSTS = 6000
LINE = re.compile(r"^(.*?): ([0-9.]+) MB, ([0-9.]+) MB resident,", re.M)


def run(context: Context) -> List[Result]:
    ovstest = str(context.ovs / "tests/ovstest")
    if not os.access(ovstest, os.X_OK):
        raise Failed(f"{ovstest} is missing: build the tree first")
    results: List[Result] = []
    for n_ports, n_threads in itertools.product(PORTS, THREADS):
        done = subprocess.run(
            [ovstest, "test-tx-cost", "memory", str(n_ports), str(n_threads),
             str(N_BURSTS)], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = LINE.findall(done.stdout)
        if done.returncode or len(found) != 4:
            raise Failed(f"{ovstest}: {done.stdout.strip()}")
        context.progress(f"{n_ports:,} ports, {n_threads} threads")
        results.append(Result(f"{n_ports} ports, {n_threads} threads", "MB", {
            "accounted for": [float(a) for _, a, _ in found],
            "of the process": [float(r) for _, _, r in found]}))
    print(table(HEADER, cells(results)))
    return results


HEADER = ["memory, MB", "ports", "threads", "before any burst",
          "after one each", f"after {N_BURSTS:,}", "after 18 minutes"]


def size(result: Result) -> Tuple[int, int]:
    """Returns the numbers of ports and of threads."""
    n_ports, n_threads = map(int, re.findall(r"\d+", result.case))
    return n_ports, n_threads


def cells(results: List[Result]) -> List[List[str]]:
    """Returns the rows of a table with HEADER."""
    return [[what, *(f"{n:,}" for n in size(result)),
             *(f"{mb:.1f}" for mb in values)]
            for result in results for what, values in result.values.items()]
