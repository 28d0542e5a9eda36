# SPDX-License-Identifier: Apache-2.0
"""The stage "exporter", for exporter/ and monitoring/: Go's own checks, unit
tests, tests against a real Prometheus and real switches of a built tree, and
the rules.

It needs Go (1.23 or later).  Prometheus is the one in PATH, or $PROMETHEUS, or
Debian's package, which is downloaded and unpacked below BUILD/cache.  With
--long, a Prometheus 3 is built there from its Go modules and tested against as
well.  What can't run here is skipped and named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

import prometheus as p
import project as t
from autotest import FAIL, PASS, SKIP, Job

EXPORTER = t.TOP / "exporter"
MONITORING = t.TOP / "monitoring"


def add(job: Job, name: str, status: str, detail: str = "") -> None:
    job.add(name, status, detail)
    print(f"{name:55} {status}" + (f" ({detail})" if detail else ""),
          flush=True)


def run(job: Job, name: str, command: List[str], cwd: Path = EXPORTER,
        quiet: bool = False) -> None:
    """Passes if 'command' succeeds, and if 'quiet', without a word."""
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    bad = done.returncode or (quiet and done.stdout.strip())
    if bad:
        print(done.stdout)
    add(job, name, FAIL if bad else PASS)


def go_test(job: Job, title: str, *packages: str) -> None:
    """Runs Go tests, each of which is a verdict."""
    for package in packages:
        with subprocess.Popen(
                ["go", "test", "-count=1", "-v", package], cwd=EXPORTER,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout
            reason, failed = "", False
            for line in process.stdout:
                print(line, end="")
                said = re.match(r" +\w+\.go:\d+: (.*)", line)
                reason = said.group(1) if said else reason
                match = re.match(r"--- (PASS|FAIL|SKIP): (\w+)", line)
                if match:
                    status = match.group(1).lower()
                    failed |= status == FAIL
                    add(job, f"{title}: {package}: {match.group(2)}", status,
                        reason if status == SKIP else "")
        if process.returncode and not failed:
            add(job, f"{title}: {package}", FAIL)


def check_unit(job: Job) -> None:
    """systemd understands the unit, alone and with root.conf, and finds it
    well protected: in its words, an exposure of less than 2 of 10."""
    if not shutil.which("systemd-analyze"):
        add(job, "systemd unit", SKIP, "there is no systemd-analyze")
        return
    unit = "ovs-cost-exporter.service"
    for overrides in (), ("root.conf",):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, unit)
            # The program need not be installed.
            path.write_text((EXPORTER / "systemd" / unit).read_text().replace(
                "ExecStart=/usr/bin/ovs-cost-exporter", "ExecStart=/bin/true"))
            for name in overrides:
                path.with_name(unit + ".d").mkdir()
                shutil.copy(EXPORTER / "systemd" / name,
                            path.with_name(unit + ".d"))
            title = " with ".join(["systemd unit", *overrides])
            for what, *words in (("", "verify", "--man=no"),
                                 (" is protected", "security",
                                  "--offline=yes", "--threshold=20",
                                  "--no-pager")):
                run(job, title + what, ["systemd-analyze", *words, str(path)],
                    Path(directory), quiet=not what)


def check(job: Job) -> None:
    run(job, "the dashboard is as it is generated",
        [sys.executable, "make-dashboard", "--check"], MONITORING)
    check_unit(job)
    cache = job.build / "cache"
    found = p.find_prometheus(cache)
    if found[0]:
        for what, files in ("check", "*.yml"), ("test", "tests/*.yml"):
            run(job, f"promtool {what} rules", [
                str(found[0].with_name("promtool")), what, "rules",
                *sorted(map(str, (MONITORING / "rules").glob(files)))],
                MONITORING)
    else:
        add(job, "promtool", SKIP, found[1])

    version = p.go_version() or (0, 0)
    if version < p.GO:
        add(job, "exporter", SKIP, "it needs Go {}.{}".format(*p.GO) + (
            ", here is {}.{}".format(*version) if version[0] else ""))
        return
    os.environ.update(GOTOOLCHAIN="local", GOWORK="off",
                      OVS_COST_TREE=str(job.ovs))
    os.environ.pop("GOFLAGS", None)
    run(job, "gofmt", ["gofmt", "-l", "."], quiet=True)
    run(job, "go vet", ["go", "vet", "./..."])
    run(job, "go mod tidy", ["go", "mod", "tidy", "-diff"])
    # No module that it needs may need more.
    run(job, "modules need no more than Go {}.{}".format(*p.GO),
        ["grep", r"^go {}\.{}\(\.\|$\)".format(*p.GO), "go.mod"])
    if shutil.which("staticcheck"):
        run(job, "staticcheck", ["staticcheck", "./..."])
    go_test(job, "unit", ".", "./report", "./unixctl",
            "./cmd/ovs-cost-exporter")
    against = [("prometheus", found)]
    if job.options.long:
        against.append(("prometheus 3", p.build_prometheus3(cache)))
    for title, (program, why) in against:
        if program:
            os.environ["PROMETHEUS"] = str(program)
            go_test(job, title, "./integration")
        else:
            add(job, title, SKIP, why)
