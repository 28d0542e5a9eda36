# SPDX-License-Identifier: Apache-2.0
"""What recording takes, apart from everything else.

The histogram's record is measured by "ovstest test-cost-histogram benchmark",
next to that of HdrHistogram_c where the system has it, with the same values
and in the same way.  HdrHistogram_c counts in buckets only; ours keeps sum,
sum of squares, minimum and maximum, too.

"ovstest test-cost benchmark" measures accounting for a whole event of two
stages, with the readings of the clock.  The event does nothing else, so that
the CPU has all that it needs at hand: in an upcall, the same takes longer.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from statistics import median
from typing import Dict, List, Optional

from machine import describe_tree
from report import Context, Result, ratio_line, table
from stats import ratio
from switch import Failed, prepare_child

N_ROUNDS = 5
BUDGET_NS = 10.0
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


def build_hdr(context: Context) -> Optional[str]:
    """Builds the program that measures HdrHistogram_c.  Returns None if there
    is no HdrHistogram_c."""
    source = Path(__file__).resolve().parent / "hdr-histogram.c"
    program = str(context.directory / "hdr-histogram")
    tree = describe_tree(context.ovs)
    command = [*shlex.split(tree["CC"] or "cc"), *shlex.split(tree["CFLAGS"]),
               "-o", program, str(source), "-lhdr_histogram"]
    done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return program if done.returncode == 0 else None


def run(context: Context) -> List[Result]:
    ovstest = str(context.ovs / "tests/ovstest")
    if not os.access(ovstest, os.X_OK):
        raise Failed(f"{ovstest} is missing: build the tree first")
    n = "1000000" if context.args.quick else "10000000"
    commands = {"record": [ovstest, "test-cost-histogram", "benchmark", n],
                "event": [ovstest, "test-cost", "benchmark", n]}
    hdr = build_hdr(context)
    if hdr:
        commands["HdrHistogram_c record"] = [hdr, n]

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

    print(table(["", "ns", "min", "max"],
                [[name, *(f"{value:.1f}" for value in
                          (median(ns), min(ns), max(ns)))]
                 for name, ns in times.items()]))
    print()
    record = median(times["record"])
    verdict = "within" if record <= BUDGET_NS else "over"
    print(f"  record  {record:.1f} ns, {verdict} {BUDGET_NS:.0f} ns")
    if hdr:
        print(ratio_line("ours/hdr", ratio(times["record"],
                                           times["HdrHistogram_c record"]),
                         None, judge=False))
    else:
        print("  ratio  ours/hdr       left out, HdrHistogram_c is not "
              "installed (Debian 12 and 13\n         have no package of it)")
    return [Result(name, "ns", {"patched": ns}) for name, ns in times.items()]
