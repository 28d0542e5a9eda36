# SPDX-License-Identifier: Apache-2.0
"""The stage "long": what takes long and rarely fails.

Each step runs, whatever has failed before, in trees of its own in BUILD/long,
which stay, and with its output in BUILD/log/long-STEP.log.  A step that can't
run here is skipped, with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Sequence

import project as t
from autotest import FAIL, PASS, SKIP, TODO, CanNotRun, Job, Suite

# Cross builds have no libraries but libc's.
CROSS = ["--disable-ssl", "--disable-libcapng", "--disable-afxdp",
         "--enable-Werror"]

# Tests of ovstest alone, which an emulator of another processor runs, without
# those that need system calls that it does not have: NETLINK_USERSOCK, BPF.
UNIT_TESTS = ["cost.at: ", "library.at: spare packets",
              "upcall-cost-queue.at: upcall cost - batches from the kernel"]

SANITIZED = "CFLAGS=-g -O1 -fno-omit-frame-pointer -fsanitize="

# Has what is installed in $1 count and record an upcall, of an Ethernet frame.
INSTALLED = """
set -ex
export PATH=$1/bin:$1/sbin:/usr/bin:/bin OVS_CTL_TIMEOUT=60
export OVS_PKGDATADIR=$1/share/openvswitch
export PYTHONPATH=$OVS_PKGDATADIR/python
export OVS_RUNDIR=$PWD OVS_LOGDIR=$PWD OVS_DBDIR=$PWD OVS_SYSCONFDIR=$PWD
trap 'kill $(cat *.pid)' EXIT
ovsdb-tool create conf.db $OVS_PKGDATADIR/vswitch.ovsschema
ovsdb-server --detach --no-chdir --pidfile --log-file \
    --remote=punix:db.sock conf.db
ovs-vsctl --no-wait init
ovs-vswitchd --detach --no-chdir --pidfile --log-file --enable-dummy \
    --disable-system unix:db.sock
ovs-vsctl add-br br0 -- set Bridge br0 datapath_type=dummy -- \
    add-port br0 p1 -- set Interface p1 type=dummy
ovs-appctl netdev-dummy/receive p1 \
    ffffffffffff0200000000011234$(printf %092d 0)
ovs-cost record -d 0.1 -o one.jsonl.gz
ovs-cost show one.jsonl.gz --reports upcall | grep "1 upcall in"
"""


# Of each stack in reports of ThreadSanitizer, but where threads were created,
# the file that races or locks: the first one that is not the sanitizer's.
RACING = re.compile(
    r"^  (?!.*created)\S.*:\n(?:    #\d+ .*\n)*?"
    r"    #\d+ .* (?!\S*libsanitizer|lib/ovs-thread\.c:)(\S+):\d+ \(", re.M)


class Steps:
    """The steps, and what they share."""

    def __init__(self, job: Job) -> None:
        self.build = job.build
        self.trees = job.build / "long"
        self.options = shlex.split(subprocess.run(
            ["./config.status", "--config"], cwd=job.ovs, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            check=True).stdout)
        # Of the superbuild, which may be configured in the checkout.
        self.make_dir = (job.build if (job.build / "Makefile").exists()
                         else job.build.parent)
        self.all: Dict[str, Callable[[], None]] = {
            step.__name__: step
            for step in (self.demo, self.bench, self.arm64, self.i386,
                         self.plain, self.asan, self.tsan)}

    def run(self, *command: object, cwd: Path = t.TOP) -> None:
        """Runs 'command', which must succeed."""
        words = list(map(str, command))
        print("$", *words, flush=True)
        done = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL,
                              stdout=sys.stdout, stderr=subprocess.STDOUT,
                              check=False)
        if done.returncode:
            raise t.Failure(f"{Path(words[0]).name}: exit status "
                            f"{done.returncode}")

    def make(self, name: str, options: Sequence[str], *words: str) -> Path:
        """Has the superbuild make 'words' in trees of their own that are
        configured with 'options'.  Returns where they are."""
        trees = self.trees / name
        python = [o for o in self.options if o.startswith("PYTHON3=")]
        self.run(os.environ.get("MAKE", "make"), "-C", self.make_dir,
                 f"-j{len(os.sched_getaffinity(0))}", f"trees={trees}",
                 f"cache={self.build}/cache",
                 "OVS_CONFIGURE_ARGS=" + shlex.join([*options, *python]),
                 *words)
        return trees

    def run_tests(self, suite: Suite, prefixes: List[str],
                  may_skip: str = "none") -> None:
        """Runs those tests of 'suite' whose names begin with one of
        'prefixes', all of which must pass, except that 'may_skip' may be
        skipped."""
        for prefix in prefixes:
            if not any(name.startswith(prefix) for name in suite.tests):
                raise t.Failure(f"there is no test '{prefix}'")
        bad = [name for name, result in suite.run(
            name for name in suite.tests
            if name.startswith(tuple(prefixes))).items()
            if result.status != PASS
            and (result.status, name) != (SKIP, may_skip)]
        if bad:
            raise t.Failure("did not pass: " + ", ".join(bad))

    def cross(self, host: str, emulator: str, may_skip: str = "none") -> None:
        """Builds for 'host', and runs unit tests, emulated."""
        if not shutil.which(f"{host}-gcc"):
            raise CanNotRun(f"there is no {host}-gcc")
        trees = self.make(host.partition("-")[0],
                          [f"--host={host}", *CROSS], "check-programs")
        qemu = shutil.which(emulator) or shutil.which(f"{emulator}-static")
        if not qemu:
            raise CanNotRun(f"it builds, but there is no {emulator}")
        wrapper = trees / "bin/ovstest"
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f"#!/bin/sh\nexec {qemu} -L /usr/{host} "
                           f"{trees}/ovs/tests/ovstest \"$@\"\n")
        wrapper.chmod(0o755)
        self.run_tests(Suite(trees / "ovs", path=str(wrapper.parent)),
                       UNIT_TESTS, may_skip)

    def arm64(self) -> None:
        self.cross("aarch64-linux-gnu", "qemu-aarch64")

    def i386(self) -> None:
        # Only 64-bit processors have the time stamp counter read.
        self.cross("i686-linux-gnu", "qemu-i386",
                   "cost.at: cost - clock - jumps")

    def plain(self) -> None:
        """Built without DPDK, libbpf and USDT probes, tested, installed, and
        run from where that is."""
        # Nothing may be found where this machine has programs.
        prefix = "/opt/ovs-cost-check-long"
        tree = self.make(
            "plain", [f"--prefix={prefix}", "--disable-afxdp",
                      "SPHINXBUILD=none"],
            "check", "CHECKFLAGS=--ours suite") / "ovs"
        root = tree.with_name("root")
        shutil.rmtree(root, ignore_errors=True)
        self.run("make", "-s", "-C", tree, "install", f"DESTDIR={root}")
        (root / "run").mkdir()
        self.run("/bin/sh", "-c", INSTALLED, "sh", f"{root}{prefix}",
                 cwd=root / "run")

    def asan(self) -> None:
        """This project's tests, with AddressSanitizer and UBSan."""
        self.make("asan", ["--disable-afxdp",
                           f"{SANITIZED}address,undefined"],
                  "check", "CHECKFLAGS=--ours --long suite")

    def tsan(self) -> None:
        """The stress test, with ThreadSanitizer: OVS's own files may have
        races, this project's have none."""
        trees = self.make("tsan", ["--disable-afxdp", f"{SANITIZED}thread"],
                          "check-programs")
        reports = trees / "reports"
        shutil.rmtree(reports, ignore_errors=True)
        reports.mkdir()
        suite = Suite(trees / "ovs")
        suite.env["TSAN_OPTIONS"] = (
            f"suppressions={t.TOP}/tests/tsan-suppressions exitcode=0 "
            f"log_path={reports}/report")
        self.run_tests(suite, ["cost-stress.at: "])
        found = {file for report in reports.iterdir() for file in
                 RACING.findall(report.read_text(errors="replace"))
                 if any(t.TOP.glob(f"*/{Path(file).name}"))}
        if found:
            raise t.Failure(f"{', '.join(sorted(found))}: see {reports}")

    def bench(self) -> None:
        """All benchmarks against stock, but "usdt" against a tree with the
        series and without probes."""
        stock = self.build / "stock"
        if not (stock / "vswitchd/ovs-vswitchd").exists():
            raise CanNotRun("there is no stock tree; 'make stock' makes it")
        without = self.make("noprobes", [
            *self.options, "--disable-usdt-probes"], "all-local") / "ovs"
        file = self.trees / "bench.json"
        left_out: Dict[str, str] = {}
        for against, names in (stock, ()), (without, ("usdt",)):
            self.run(t.TOP / "bench/run", "--quick", "--json", file, against,
                     self.build / "ovs", *names)
            left_out.pop("usdt", None)
            left_out.update(json.loads(file.read_text())["left_out"])
        if left_out:
            raise CanNotRun("; ".join(map(": ".join, left_out.items())))

    def demo(self) -> None:
        """The demo, which compares what it sent with what was counted."""
        self.run(t.TOP / "tools/demo", self.build)


def check(job: Job) -> None:
    steps = Steps(job)
    names = job.flags or list(steps.all)
    for name in names:
        if name not in steps.all:
            raise t.Failure(f"there is no step '{name}'; there are "
                            + ", ".join(steps.all))
        job.add(name, TODO)
    for name in names:
        print(f"{name}:", flush=True)
        log = job.build / "log" / f"long-{name}.log"
        try:
            with open(log, "w", encoding="utf-8") as out, \
                    contextlib.redirect_stdout(out):
                steps.all[name]()
            job.add(name, PASS)
        except CanNotRun as error:
            job.add(name, SKIP, str(error))
        except (t.Failure, SystemExit, OSError, ValueError,
                subprocess.SubprocessError) as error:
            job.add(name, FAIL, f"{error}, see {log}")
            print("\n".join(log.read_text(errors="replace")
                            .splitlines()[-40:]), flush=True)
