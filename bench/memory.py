# SPDX-License-Identifier: Apache-2.0
"""What accounting for bursts takes, in memory.

"ovstest test-tx-cost memory" has threads send to all ports through the
functions that the datapath calls, with two reasons, up to 32 packets, and
times from 0.2 to 50 us.  It tells what is accounted for, which is what
"ovs-appctl memory/show" has as "cost-kb", and by how much the process has
grown, which is more, for what malloc() keeps.  WHEN has the moments: the last
one is after 18 minutes of a clock that the program advances, in which each
thread sends to each port all the time: "-last 15m" needs copies of the numbers
of these minutes.
"""

from __future__ import annotations

import itertools
import re

from bench.machine import ovstest
from bench.report import Context
from tools.switch import Failed

PORTS = (2000, 10000)
THREADS = (1, 8)
N_BURSTS = 6000
WHEN = ("before any burst", "after one each", f"after {N_BURSTS:,}",
        "after 18 minutes")
LINE = re.compile(r"^(.*?): ([0-9.]+) MB, ([0-9.]+) MB resident,", re.M)


def run(context: Context) -> None:
    for n_ports, n_threads in itertools.product(PORTS, THREADS):
        said = ovstest(context.ovs, "test-tx-cost", "memory", str(n_ports),
                       str(n_threads), str(N_BURSTS))
        found = LINE.findall(said)
        if len(found) != 4:
            raise Failed(f"ovstest: {said.strip()}")
        context.progress(f"{n_ports:,} ports, {n_threads} threads")
        for i, what in enumerate(("accounted for", "of the process"), 1):
            for when, one in zip(WHEN, found):
                context.add(f"{n_ports:,} ports, {n_threads} thread"
                            f"{'s' * (n_threads > 1)}, {what}", "MB", when,
                            float(one[i]))
