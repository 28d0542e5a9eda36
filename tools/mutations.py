# SPDX-License-Identifier: Apache-2.0
"""The stage "mutations": finds out whether tests notice a fault.

Puts the faults of mutations.txt into the tree BUILD/mutations/ovs, one at a
time, builds it, and runs the tests that must notice until one of them fails.
No other work may be done in that tree.
"""

from __future__ import annotations

import os
import re
import subprocess

from tools import project as t
from tools.autotest import FAIL, NO_VERDICT, PASS, TODO, Job, Suite

FAULTS = t.TOP / "tools/mutations.txt"
FILE_RE = re.compile(r"^== (.*)\n((?:(?!== ).*\n)*)", re.M)
FAULT_RE = re.compile(r"^(.+) => (.+)\n((?:-.*\n)+)((?:\+.*\n)*)", re.M)


def check(job: Job) -> None:
    tree = job.build / "mutations/ovs"
    suite = Suite(tree)

    def build() -> None:
        subprocess.run(["make", "-s", "V=0", f"-j{os.cpu_count()}",
                        "vswitchd/ovs-vswitchd", "tests/ovstest"],
                       cwd=tree, stdin=subprocess.DEVNULL, check=True)

    faults = {}
    needed = set()
    for file, text in FILE_RE.findall(FAULTS.read_text()):
        for name, title, before, after in FAULT_RE.findall(text):
            if job.flags and not any(word in name for word in job.flags):
                continue
            job.add(name, TODO)
            tests = [test for test in suite.tests if title in test]
            good = (tree / file).read_text()
            # Blanks stand for any white space.
            pattern = r"\s+".join(map(re.escape, before[1:].replace(
                "\n-", "\n").split()))
            bad, n = re.subn(pattern, lambda _: after[1:-1].replace(
                "\n+", "\n"), good)
            if n != 1 or not tests:
                raise t.Failure(f"{FAULTS}: '{name}' is in {file} {n} times, "
                                f"{len(tests)} tests are '{title}'")
            faults[name] = (tree / file, good, bad, tests)
            needed.update(tests)
    if not faults:
        raise t.Failure(f"no fault is '{' '.join(job.flags)}'")
    build()
    failed = [name for name, result in suite.run(needed).items()
              if result.status != PASS]
    if failed:
        raise t.Failure("these fail without a fault: " + ", ".join(failed))
    for name, (path, good, bad, tests) in faults.items():
        try:
            path.write_text(bad)
            build()
            noticed = [test for test, result in suite.run(
                tests, options=["--errexit"], recheck=False).items()
                if result.status == FAIL and result != NO_VERDICT]
            job.add(name, *((PASS, noticed[0]) if noticed else
                            (FAIL, "no test has noticed it")))
        finally:
            path.write_text(good)
