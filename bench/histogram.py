# SPDX-License-Identifier: Apache-2.0
"""What recording takes, apart from everything else.

"ovstest test-cost-histogram benchmark" measures the record of a histogram.
"ovstest test-cost benchmark" measures accounting for a whole event of two
stages, with the readings of the clock.  The event does nothing else, so that
the CPU has all that it needs at hand: in an upcall, the same takes longer.
"""

from __future__ import annotations

import re

from bench.machine import ovstest
from bench.report import Context
from tools.switch import Failed

LINE = re.compile(r"^(.*?): ([0-9.]+) ns")


def run(context: Context) -> None:
    n = "1000000" if context.args.quick else "10000000"
    tests = {"record": "test-cost-histogram", "event": "test-cost"}
    n_rounds = context.choose("rounds", 5, 1)
    for number in range(n_rounds):
        for name, test in tests.items():
            for line in ovstest(context.ovs, test, "benchmark",
                                n).splitlines():
                match = LINE.match(line)
                if match:
                    what = name if name != "event" else match.group(1)
                    context.add(what, "ns", "patched", float(match.group(2)))
        context.progress(f"round {number + 1} of {n_rounds}")
    if ("record", "ns") not in context.results:
        raise Failed("ovstest does not say what a record takes")
