# SPDX-License-Identifier: Apache-2.0
"""The stages that run suites of Open vSwitch: which tests, where, and what
their results mean.

A test of OVS that fails runs again, alone.  Autotest's --recheck would run
tests of this project again, too, which have to pass at once, and overwrite
their logs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import filter as matching
from pathlib import Path
from typing import Callable, List, Optional, Sequence, Tuple

import autotest
import project as t
from autotest import (FAIL, PASS, SKIP, TODO, CanNotRun, Job, Recorder,
                      Result, Suite)

OURS = "ours"                   # Instead of a pattern: this project's tests.

# Tests of OVS whose result depends on the machine, and why.  Their failure is
# counted as a skip.
MAY_FAIL = {
    "ofproto.at: ofproto - hidden rules not in table stats":
    "needs that nothing answers at 240.0.0.1, not so behind some firewalls",
}

# Tests of this project that may be skipped even with --require, and why.
MAY_SKIP = {
    "upcall-cost-queue.at: upcall cost - libbpf can't be loaded":
    "with AF_XDP, OVS itself is linked with libbpf",
    "tx-cost.at: tx cost - hardware counters that are not here":
    "the machine has them; other tests of counters run anywhere",
}


def demanded(why: str) -> Result:
    """Returns the result of a test that was skipped and may not be."""
    return Result(FAIL, f"may not be skipped: {why}")


def our_tests(tree: Path) -> Tuple[str, ...]:
    """Returns how the names of this project's tests in 'tree' begin: tests in
    new files, and tests that commits add to files of OVS."""
    found = set()
    text = subprocess.run(
        ["git", "-c", "safe.directory=*", "diff", "--no-renames", "base", "--",
         "tests"], cwd=tree, text=True, check=True,
        stdout=subprocess.PIPE).stdout
    for diff in re.split(r"^diff --git a/tests/", text, flags=re.M):
        file = diff.partition(" ")[0]
        if "\n--- /dev/null\n" in diff and "AT_SETUP" in diff:
            found.add(f"{file}: ")
        found.update(f"{file}: {title}" for title
                     in re.findall(r"^\+AT_SETUP\(\[(.*)\]\)", diff, re.M))
    return tuple(sorted(found))


# Where tests run: each of these returns the command that runs a suite there.


def namespaces(_job: Job, *_: object, script: str = "") -> List[str]:
    """In namespaces, so that devices, mounts and processes go away with them,
    after 'script'."""
    if os.geteuid() != 0:
        raise CanNotRun("they need root")
    command = ["unshare", "--net", "--mount", "--pid", "--fork",
               "--kill-child", "--mount-proc", "/bin/sh", "-c",
               "mount -t tmpfs tmpfs /run && mkdir /run/netns /run/lock && "
               f"ip link set lo up && {script} exec \"$@\"", "sh"]
    done = subprocess.run([*command, "true"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise CanNotRun("no namespaces here: " + done.stderr.strip())
    return command


def has_dpdk(ovs: Path) -> bool:
    config = ovs / "config.h"
    return (config.exists()
            and "#define DPDK_NETDEV 1" in config.read_text().splitlines())


def huge_pages(job: Job, _suite: str, end: ExitStack) -> List[str]:
    """In namespaces, with 640 huge pages until 'end'."""
    if not has_dpdk(job.ovs):
        raise CanNotRun("the tree is built without DPDK (./configure "
                        "--with-dpdk)")
    command = namespaces(job, script="mkdir -p /dev/hugepages && mount -t "
                         "hugetlbfs hugetlbfs /dev/hugepages &&")
    sys.path.insert(0, str(t.TOP / "bench"))
    from machine import HugePages, NotHere
    try:
        end.enter_context(HugePages(640))
    except NotHere as error:
        raise CanNotRun(str(error))
    # In each of ten tests of changes under load.
    os.environ["TX_QUEUE_SECONDS"] = "65" if job.options.long else "5"
    return command


def virtual_machine(job: Job, suite: str, _end: ExitStack) -> List[str]:
    """In a virtual machine with a kernel that has the kernel datapath."""
    command = [str(t.TOP / "tools/kernel-vm"), str(job.build / "cache")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 77:
        raise CanNotRun(done.stdout.strip())
    if done.returncode:
        raise t.Failure("kernel-vm failed")
    wait = int(os.environ.get("OVS_CTL_TIMEOUT", "0"))
    os.environ["OVS_CTL_TIMEOUT"] = str(max(wait, 120))     # It is slow.
    return [*command, str(job.ovs), str(job.ovs / f"tests/{suite}.dir"), "--"]


def excerpt(log: Path) -> str:
    """Returns the end of the log of a failed test, with little of the files
    that are added to it."""
    lines = log.read_text(errors="replace").splitlines()
    added = [line for line in lines if line.startswith("> ")]
    return "\n  ".join([line for line in lines if line not in added][-50:]
                       + added[-5:])


@dataclass
class Tests:
    """A stage that runs tests of a suite: those that match a pattern of
    'quick', 'all' or 'upstream'."""
    suite: str
    where: Callable[[Job, str, ExitStack], List[str]] = lambda *_: []
    jobs: int = 1
    quick: Sequence[str] = (OURS,)
    all: Sequence[str] = (OURS,)
    upstream: Sequence[str] = ()

    def choose(self, job: Job, suite: Suite,
               ours: Tuple[str, ...]) -> List[str]:
        """Returns the tests of 'suite' that the options of 'job' ask for."""
        options = job.options
        patterns = [OURS] if options.ours \
            else [*self.all, *self.upstream] if options.upstream \
            else self.all if options.all else self.quick
        chosen = set()
        for pattern in patterns:
            names = [name for name in suite.tests if name.startswith(ours)] \
                if pattern == OURS else matching(suite.tests, pattern)
            chosen.update(names)
            # The file may be of a topic that the tree does not have.
            file = Path("tests", pattern.partition(": ")[0])
            if pattern != OURS and not names and (
                    (job.ovs / file).exists() or not (t.TOP / file).exists()):
                raise t.Failure(f"stages.py: no test is '{pattern}'")
        return [name for name in suite.tests if name in chosen]

    def __call__(self, job: Job) -> Optional[int]:
        with ExitStack() as end:
            suite = Suite(job.ovs, self.suite,
                          self.where(job, self.suite, end))
            if job.flags:
                return suite.run_raw([f"-j{self.jobs}", *job.flags])
            self.run(job, suite)
        return None

    def run(self, job: Job, suite: Suite) -> None:
        ours = our_tests(job.ovs)
        chosen = self.choose(job, suite, ours)
        for name in chosen:
            job.add(name, TODO)
        require = ours if job.options.require else ()
        for part in require if self.suite == "testsuite" else ():
            if not (part.startswith("system-") or any(
                    name.startswith(part) for name in suite.tests)):
                job.add(part, FAIL, "required, but there is none")

        def record(name: str, status: str, detail: str) -> None:
            if (status == SKIP and name.startswith(require)
                    and name not in MAY_SKIP):
                status, detail = demanded(detail)
            job.add(name, status, detail)

        def judge(name: str, status: str, detail: str) -> None:
            if status == PASS:
                print(f"note: passed only when run alone: {name}")
            elif name in MAY_FAIL:
                status, detail = SKIP, "failed: " + MAY_FAIL[name]
            job.add(name, status, detail)

        results = suite.run(chosen, self.jobs, record)
        again = [name for name in chosen if results[name].status == FAIL
                 and not name.startswith(ours)]
        for name in again:
            job.add(name, TODO, results[name].detail or "failed")
        if again:
            print(f"{len(again)} of OVS's own tests failed; running them "
                  "again, alone", flush=True)
        results.update(suite.run_alone(again, judge))
        logs = [suite.log(name) for name in chosen
                if results[name].status == FAIL]
        for n, log in enumerate(logs):
            print(f"\nsee {log}" + (f"\n  {excerpt(log)}" if n < 3
                                    and log.exists() else ""))


def upstream(job: Job) -> None:
    """All of OVS's tests in the stock and in the patched tree: a test passes
    if it does so in both.  If its results differ, it runs again, alone."""
    stock, ovs = Suite(job.build / "stock"), Suite(job.ovs)
    for name in stock.tests:
        job.add(name, *(Result(TODO) if name in ovs.tests else
                        Result(FAIL, "in the stock tree only")))
    kept = stock.tree / "tests/results"
    if not kept.exists() or any(
            (stock.tree / file).stat().st_mtime > kept.stat().st_mtime
            for file in ("config.status", "tests/testsuite",
                         "vswitchd/ovs-vswitchd")):
        print("running the stock tree", flush=True)
        partial = Recorder(kept.with_suffix(".partial"), "stock")
        stock.run(stock.tests, on_result=partial.add)
        kept.with_suffix(".partial").rename(kept)
    before = autotest.read_results(kept)
    print(f"the results of the stock tree are in {kept}")

    def judge(name: str, status: str, _detail: str) -> None:
        old = before[name].status
        job.add(name, *(
            Result(FAIL, f"stock: {old}, patched: {status}")
            if old != status else Result(PASS) if old == PASS else
            Result(SKIP, "fails in both trees" if old == FAIL else
                   "skipped in both trees")))

    results = ovs.run([name for name in before if name in ovs.tests],
                      on_result=judge)
    for _ in range(2):
        differ = [name for name, result in results.items()
                  if result.status != before[name].status]
        if differ:
            print(f"{len(differ)} differ; running them again, alone",
                  flush=True)
        before.update(stock.run_alone(differ))
        results.update(ovs.run_alone(differ, judge))
        for name in differ:
            if results[name].status == before[name].status:
                print(f"note: differed when not run alone: {name}")
