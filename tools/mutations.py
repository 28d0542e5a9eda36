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
from pathlib import Path
from typing import Dict, List, NamedTuple

import project as t
from autotest import FAIL, PASS, TODO, Job, Suite

FAULTS = t.TOP / "tools/mutations.txt"
PROGRAMS = ["vswitchd/ovs-vswitchd", "tests/ovstest"]


class Fault(NamedTuple):
    name: str
    title: str                  # Part of those of the tests that must notice.
    file: str
    before: List[str]
    after: List[str]

    def tests(self, suite: Suite) -> List[str]:
        """Returns the tests of 'suite' that must notice."""
        return [name for name in suite.tests if self.title in name]

    def apply(self, text: str) -> str:
        """Returns 'text' with the fault."""
        pattern = r"\s+".join(map(re.escape, " ".join(self.before).split()))
        n = len(re.findall(pattern, text))
        if n != 1:
            raise t.Failure(f"{FAULTS}: '{self.name}' is in {self.file} {n} "
                            "times instead of once")
        return re.sub(pattern, lambda _: "\n".join(self.after), text)


class Noticed(Exception):
    """A test has failed."""


def read_faults() -> List[Fault]:
    """Returns the faults in FAULTS."""
    faults: List[Fault] = []
    file = ""
    for line in filter(None, FAULTS.read_text().splitlines()):
        if line.startswith("== "):
            file = line[3:]
        elif line[0] == "-":
            faults[-1].before.append(line[1:])
        elif line[0] == "+":
            faults[-1].after.append(line[1:])
        elif line[0] != "#":
            name, _, title = line.partition(" => ")
            faults.append(Fault(name, title, file, [], []))
    return faults


def build(tree: Path) -> None:
    done = subprocess.run(
        [os.environ.get("MAKE", "make"), "-s",
         f"-j{len(os.sched_getaffinity(0))}", *PROGRAMS], cwd=tree,
        stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise t.Failure(f"{tree} does not build")


def check(job: Job) -> None:
    tree = job.build / "mutations/ovs"
    suite = Suite(tree)
    faults = [fault for fault in read_faults() if not job.flags
              or any(word in fault.name for word in job.flags)]
    needed: Dict[str, None] = {}
    for fault in faults:
        job.add(fault.name, TODO)
        found = fault.tests(suite)
        if not found:
            raise t.Failure(f"{FAULTS}: no test is '{fault.title}'")
        needed.update(dict.fromkeys(found))
        path = tree / fault.file
        fault.apply(path.read_text())
    build(tree)
    failed = [name for name, result in suite.run(needed).items()
              if result.status != PASS]
    if failed:
        raise t.Failure("these fail without a fault: " + ", ".join(failed))

    def on_result(name: str, status: str, _detail: str) -> None:
        if status == FAIL:
            raise Noticed(name)

    for fault in faults:
        path = tree / fault.file
        text = path.read_text()
        path.write_text(fault.apply(text))
        try:
            build(tree)
            suite.run(fault.tests(suite), on_result=on_result)
            job.add(fault.name, FAIL, "no test has noticed it")
        except Noticed as noticed:
            job.add(fault.name, PASS, str(noticed))
        finally:
            path.write_text(text)
