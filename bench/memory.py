# SPDX-License-Identifier: Apache-2.0
"""What accounting for bursts takes, in memory.

"ovstest test-tx-cost memory" has threads send to all ports through the
functions that the datapath calls, with two reasons, up to 32 packets, and
times from 0.2 to 50 us.  It tells what is accounted for, which is what
"ovs-appctl memory/show" has as "cost-kb", and by how much the process has
grown, which is more, for what malloc() adds to small pieces.  It is told
before any burst, when each thread has sent one to each port, and when each has
sent N_BURSTS to each.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from typing import Dict, List

from daemon import BenchError
from report import Context, table

PORTS = (2000, 10000)
THREADS = (1, 8)
N_BURSTS = 6000
LINE = re.compile(r"^(.*?): ([0-9.]+) MB, ([0-9.]+) MB resident,", re.M)


def run(context: Context) -> Dict[str, object]:
    ovstest = str(context.ovs / "tests/ovstest")
    if not os.access(ovstest, os.X_OK):
        raise BenchError(f"{ovstest} is missing: build the tree first")
    rows: List[Dict[str, object]] = []
    for n_ports, n_threads in itertools.product(PORTS, THREADS):
        done = subprocess.run(
            [ovstest, "test-tx-cost", "memory", str(n_ports), str(n_threads),
             str(N_BURSTS)], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = LINE.findall(done.stdout)
        if done.returncode or len(found) != 3:
            raise BenchError(f"{ovstest}: {done.stdout.strip()}")
        context.progress(f"{n_ports:,} ports, {n_threads} threads")
        rows.append({"ports": n_ports, "threads": n_threads,
                     "accounted_mb": [float(a) for _, a, _ in found],
                     "resident_mb": [float(r) for _, _, r in found]})
    print(table(HEADER, cells(rows)))
    return {"bursts": N_BURSTS, "rows": rows}


HEADER = ["memory, MB", "ports", "threads", "before any burst",
          "after one each", f"after {N_BURSTS:,}"]


def cells(rows: List[Dict[str, object]]) -> List[List[str]]:
    """Returns the rows of a table with HEADER."""
    return [[what, f"{row['ports']:,}", str(row["threads"]),
             *(f"{mb:.1f}" for mb in row[name])]     # type: ignore
            for row in rows
            for what, name in (("accounted for", "accounted_mb"),
                               ("of the process", "resident_mb"))]
