# SPDX-License-Identifier: Apache-2.0
"""What recording takes, apart from everything else.

"ovstest test-cost-histogram benchmark" measures the record of a histogram.
"ovstest test-cost benchmark" measures accounting for a whole event of two
stages, with the readings of the clock.  The event does nothing else, so that
the CPU has all that it needs at hand: in an upcall, the same takes longer.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import Dict, List

from bench.report import Context, Result
from tools.switch import Failed, prepare_child

N_ROUNDS = 5
LINE = re.compile(r"^(.*?): ([0-9.]+) ns")


def output(*argv: str) -> str:
    """Runs a program with high priority, if that is allowed, and returns what
    it prints."""
    done = subprocess.run(argv, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True,
                          preexec_fn=lambda: prepare_child(-20))
    if done.returncode:
        raise Failed(f"{' '.join(argv)}: {done.stdout.strip()}")
    return done.stdout


def run(context: Context) -> List[Result]:
    ovstest = str(context.ovs / "tests/ovstest")
    if not os.access(ovstest, os.X_OK):
        raise Failed(f"{ovstest} is missing: build the tree first")
    n = "1000000" if context.args.quick else "10000000"
    commands = {"record": [ovstest, "test-cost-histogram", "benchmark", n],
                "event": [ovstest, "test-cost", "benchmark", n]}
    times: Dict[str, List[float]] = {}
    n_rounds = 1 if context.args.quick else N_ROUNDS
    for number in range(n_rounds):
        for name, command in commands.items():
            for line in output(*command).splitlines():
                match = LINE.match(line)
                if match:
                    what = name if name != "event" else match.group(1)
                    times.setdefault(what, []).append(float(match.group(2)))
        context.progress(f"round {number + 1} of {n_rounds}")
    if "record" not in times:
        raise Failed(f"{ovstest} does not say what a record takes")

    return [Result(name, "ns", {"patched": ns}) for name, ns in times.items()]
