# SPDX-License-Identifier: Apache-2.0
"""The stages of group "long": what takes long and rarely fails.

They use trees of their own in BUILD/long, which stay.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Callable, List, Tuple

from tools import project as t
from tools.autotest import JOBS, PASS, CanNotRun, Job, Suite
from tools.suites import Tests

# Tests of ovstest alone, which an emulator of another processor runs, without
# those that need system calls that it does not have: NETLINK_USERSOCK, BPF.
UNIT_TESTS = ("cost.at: ",
              "upcall-cost-kernel.at: upcall cost - batches from the kernel")

SANITIZED = "CFLAGS=-g -O1 -fno-omit-frame-pointer -fsanitize="

# Of each stack in reports of ThreadSanitizer, but where threads were created,
# the file that races or locks: the first one that is not the sanitizer's.
RACING = re.compile(
    r"^  (?!.*created)\S.*:\n(?:    #\d+ .*\n)*?"
    r"    #\d+ .* (?!\S*libsanitizer|lib/ovs-thread\.c:)(\S+):\d+ \(", re.M)


def run(*command: object, cwd: Path = t.TOP) -> None:
    print("$", *command, flush=True)
    subprocess.run(list(map(str, command)), cwd=cwd, check=True,
                   stdin=subprocess.DEVNULL)


def make(job: Job, name: str, *configure: str, base: str = "") -> Path:
    """Has the superbuild make a tree that is configured with 'configure', with
    its tests, on 'base' instead of the configured one if it is not empty."""
    trees = job.build / "long" / name
    # The superbuild may be configured in the checkout.
    where = job.build if (job.build / "Makefile").exists() else t.TOP
    options = subprocess.check_output(["./config.status", "--config"],
                                      cwd=job.ovs, text=True)
    python = [o for o in shlex.split(options) if o.startswith("PYTHON3=")]
    run("make", "-C", where, f"-j{os.cpu_count()}", f"trees={trees}",
        f"cache={job.build}/cache", *([f"BASE={base}"] if base else []),
        "OVS_CONFIGURE_ARGS=" + shlex.join([*configure, *python]),
        "check-programs")
    return trees / "ovs"


def test(job: Job, name: str, *configure: str, base: str = "") -> None:
    """Runs this project's tests in a tree that is configured so."""
    tree = make(job, name, "--disable-afxdp", *configure, base=base)
    Tests("testsuite", jobs=JOBS).run(job, Suite(tree))


def cross(job: Job, host: str, command: str) -> None:
    """Builds for 'host', and runs unit tests with 'command'."""
    if not shutil.which(f"{host}-gcc"):
        raise CanNotRun(f"there is no {host}-gcc")
    # There are no libraries but libc.
    tree = make(job, host, f"--host={host}", "--disable-ssl",
                "--disable-libcapng", "--disable-afxdp", "--enable-Werror")
    program = command.split()[0]
    if not shutil.which(program):
        raise CanNotRun(f"it builds, but there is no {program}")
    wrapper = tree.with_name("bin") / "ovstest"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(f"#!/bin/sh\nexec {command} "
                       f"{tree}/tests/ovstest \"$@\"\n")
    wrapper.chmod(0o755)
    suite = Suite(tree, path=str(wrapper.parent))
    suite.run([name for name in suite.tests if name.startswith(UNIT_TESTS)],
              job.add)


def program(job: Job, name: str, *arguments: object) -> None:
    run(t.TOP / name, *arguments)
    job.add("all of it", PASS)


def differential(job: Job, n: int, seeds: str) -> None:
    """Compares the tree with stock after 'n' steps of each seed."""
    stock = job.build / "stock"
    if os.geteuid():
        raise CanNotRun("it needs root")
    if not (stock / "vswitchd/ovs-vswitchd").exists():
        raise CanNotRun(f"{stock} is not built ('make stock' does that)")
    run(t.TOP / "differential/run", stock, job.ovs, f"-n{n}",
        f"--seed={seeds}")
    job.add(f"{n} steps of seeds {seeds}", PASS)


def plain(job: Job) -> None:
    # Nothing may be found where this machine has programs.
    prefix = "/opt/ovs-cost-check-long"
    test(job, "plain", f"--prefix={prefix}", "SPHINXBUILD=none")
    tree = job.build / "long/plain/ovs"
    root = tree.with_name("root")
    run("make", "-s", "-C", tree, "install", f"DESTDIR={root}")
    run(f"{root}{prefix}/sbin/ovs-vswitchd", "--version")
    run("env", f"PYTHONPATH={root}{prefix}/share/openvswitch/python",
        f"{root}{prefix}/bin/ovs-cost", "--help")
    job.add("installed", PASS)


def tsan(job: Job) -> None:
    tree = make(job, "tsan", "--disable-afxdp", f"{SANITIZED}thread")
    reports = tree.with_name("reports")
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    suite = Suite(tree)
    suite.env["TSAN_OPTIONS"] = (
        f"suppressions={t.TOP}/tests/tsan-suppressions exitcode=0 "
        f"log_path={reports}/report")
    suite.run([name for name in suite.tests
               if name.startswith("cost-stress.at: ")], job.add)
    found = {file for report in reports.iterdir() for file in
             RACING.findall(report.read_text(errors="replace"))
             if any(t.TOP.glob(f"*/{Path(file).name}"))}
    if found:
        raise t.Failure(f"{', '.join(sorted(found))}: see {reports}")


STEPS: List[Tuple[str, str, Callable[[Job], None]]] = [
    ("demo", "the demo, which compares what it sent with what was counted",
     lambda job: program(job, "tools/demo", job.build)),
    ("doctor", "switches in trouble, of which ovs-cost doctor says what it is",
     lambda job: program(job, "tools/check-doctor", job.ovs)),
    ("steps", "1,000 steps of stage differential, of other seeds",
     lambda job: differential(job, 50, "101-120")),
    ("bench", "all benchmarks, quickly",
     lambda job: program(job, "bench/run", "--quick", job.build / "stock",
                         job.ovs)),
    ("arm64", "a build for arm64, and unit tests of it, emulated",
     lambda job: cross(job, "aarch64-linux-gnu",
                       "qemu-aarch64 -L /usr/aarch64-linux-gnu")),
    # An x86-64 processor needs no emulator; some qemu-i386 start no threads.
    ("i386", "a build for 32 bits, and unit tests of it",
     lambda job: cross(job, "i686-linux-gnu",
                       "/usr/i686-linux-gnu/lib/ld-linux.so.2 "
                       "--library-path /usr/i686-linux-gnu/lib")),
    ("plain", "the branch without DPDK, libbpf and USDT probes: its tests, "
     "installed and run from there", plain),
    ("older", "the branch on Open vSwitch 3.5.0: its tests",
     lambda job: test(job, "older", base="3.5.0")),
    ("asan", "this project's tests, with AddressSanitizer and "
     "UndefinedBehaviorSanitizer",
     lambda job: test(job, "asan", f"{SANITIZED}address,undefined")),
    ("tsan", "the stress test, with ThreadSanitizer: files of this project "
     "have no race", tsan),
]
