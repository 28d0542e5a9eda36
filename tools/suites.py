# SPDX-License-Identifier: Apache-2.0
"""The stages that run suites of Open vSwitch: which tests, where, and what
their results mean.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
from dataclasses import dataclass
from fnmatch import filter as matching
from pathlib import Path
from typing import Callable, List, Sequence, Tuple

from tools import project as t
from tools.autotest import (FAIL, PASS, SKIP, TODO, CanNotRun, Job, Result,
                            Suite)

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
}


def our_tests(tree: Path) -> Tuple[str, ...]:
    """Returns how the names of this project's tests in 'tree' begin: tests in
    new files, and tests that commits add to files of OVS."""
    found = set()
    text = subprocess.check_output(
        ["git", "-c", "safe.directory=*", "diff", "--no-renames", "base", "--",
         "tests"], cwd=tree, text=True)
    for diff in re.split(r"^diff --git a/tests/", text, flags=re.M):
        file = diff.partition(" ")[0]
        if "\n--- /dev/null\n" in diff and "AT_SETUP" in diff:
            found.add(f"{file}: ")
        found.update(f"{file}: {title}" for title
                     in re.findall(r"^\+AT_SETUP\(\[(.*)\]\)", diff, re.M))
    return tuple(sorted(found))


# Where tests run: each of these returns the command that runs a suite there.


def namespaces(_job: Job, _suite: str, script: str = "") -> List[str]:
    """In namespaces, so that devices, mounts and processes go away with them,
    after 'script'."""
    if os.geteuid() != 0:
        raise CanNotRun("they need root")
    command = ["unshare", "--net", "--mount", "--pid", "--fork",
               "--kill-child", "--mount-proc", "/bin/sh", "-c",
               "mount -t tmpfs tmpfs /run && mkdir /run/netns /run/lock && "
               "{ test -d /sys/kernel/tracing/events || mount -t tracefs "
               "tracefs /sys/kernel/tracing 2>/dev/null; true; } && "
               f"ip link set lo up && {script} exec \"$@\"", "sh"]
    done = subprocess.run([*command, "true"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise CanNotRun("no namespaces here: " + done.stderr.strip())
    return command


def huge_pages(job: Job, suite: str) -> List[str]:
    """In namespaces, with 640 huge pages until the stage ends."""
    config = job.ovs / "config.h"
    if "#define DPDK_NETDEV 1" not in config.read_text().splitlines():
        raise CanNotRun("the tree is built without DPDK (./configure "
                        "--with-dpdk)")
    command = namespaces(job, suite, "mkdir -p /dev/hugepages && mount -t "
                         "hugetlbfs hugetlbfs /dev/hugepages &&")
    from bench.machine import HugePages, NotHere
    try:
        atexit.register(HugePages(640).__enter__().__exit__)
    except NotHere as error:
        raise CanNotRun(str(error))
    # In each of ten tests of changes under load.
    os.environ["TX_QUEUE_SECONDS"] = "65" if job.options.long else "5"
    return command


def virtual_machine(job: Job, suite: str) -> List[str]:
    """In a virtual machine with a kernel that has the kernel datapath."""
    command = [str(t.TOP / "tools/kernel-vm"), str(job.build / "cache")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 77:
        raise CanNotRun(done.stdout.strip())
    done.check_returncode()
    os.environ.setdefault("KERNEL_VM_BOOT", "600")
    return [*command, str(job.ovs), str(job.ovs / f"tests/{suite}.dir"), "--"]


@dataclass
class Tests:
    """A stage that runs tests of a suite: those that match a pattern of
    'quick', 'all' or 'upstream'."""
    suite: str
    where: Callable[[Job, str], List[str]] = lambda *_: []
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
            file = suite.tree / "tests" / pattern.partition(": ")[0]
            if file.exists() and not names:
                raise t.Failure(f"stages.py: no test is '{pattern}'")
        return [name for name in suite.tests if name in chosen]

    def __call__(self, job: Job) -> int:
        suite = Suite(job.ovs, self.suite, self.where(job, self.suite),
                      self.jobs)
        return suite.run_raw(job.flags) if job.flags else self.run(job, suite)

    def run(self, job: Job, suite: Suite) -> int:
        ours = our_tests(suite.tree)
        chosen = self.choose(job, suite, ours)
        if not chosen:
            # So with some topics, and some patches alone.
            job.add("all of it", PASS, "the tree has none")
        for name in chosen:
            job.add(name, TODO)
        for name, result in suite.run(chosen, job.add).items():
            if result.status == FAIL and name in MAY_FAIL:
                job.add(name, SKIP, "failed: " + MAY_FAIL[name])
        return 0


def upstream(job: Job) -> None:
    """All of OVS's tests in the stock and in the patched tree: a test passes
    if it does so in both."""
    stock, ovs = Suite(job.build / "stock"), Suite(job.ovs)
    for name in stock.tests:
        job.add(name, *(Result(TODO) if name in ovs.tests else
                        Result(FAIL, "in the stock tree only")))
    kept = stock.tree / "tests/results.json"
    built = stock.tree / "vswitchd/ovs-vswitchd"
    if not kept.exists() or kept.stat().st_mtime < built.stat().st_mtime:
        print("running the stock tree", flush=True)
        kept.write_text(json.dumps(stock.run(stock.tests)))
    before = {name: status for name, (status, _)
              in json.loads(kept.read_text()).items()}

    def judge(name: str, status: str, _detail: str) -> None:
        if status != before[name]:
            job.add(name, FAIL, f"stock: {before[name]}, patched: {status}")
        elif status == PASS:
            job.add(name, PASS)
        else:
            job.add(name, SKIP, f"the same in both trees: {status}")

    ovs.run([name for name in before if name in ovs.tests], judge)
