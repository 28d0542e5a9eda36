# SPDX-License-Identifier: Apache-2.0
"""Stages of commands of the shell, and the stage "tools": Python's tests."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import project as t
from tools.autotest import FAIL, PASS, SKIP, Job

# How a test begins, of unittest, or ends, of Go or unittest.
BEGIN_RE = re.compile(r"\w+ \([\w.]+\)")
END_RE = re.compile(r"--- (PASS|FAIL|SKIP): (\w+)|"
                    r".*\.\.\. (ok|FAIL|ERROR|skipped)(.*)")
STATUS = {"ok": PASS, "skipped": SKIP, "PASS": PASS, "SKIP": SKIP}


def run(job: Job, name: str, command: str, cwd: Path = t.TOP) -> None:
    """Passes if the shell's 'command' succeeds; each test that it runs is a
    test, too."""
    print(f"{name}: {command}", flush=True)
    test = ""
    with subprocess.Popen(["/bin/sh", "-c", command], cwd=cwd, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            begin, end = BEGIN_RE.match(line), END_RE.match(line)
            test = begin[0] if begin else test
            if end:
                job.add(f"{name}: {end[2] or test}",
                        STATUS.get(end[1] or end[3], FAIL), end[4] or "")
    job.add(name, FAIL if process.returncode else PASS)


def unit_tests(job: Job) -> None:
    command = f"{shlex.quote(sys.executable)} -m unittest discover -v -t . -s"
    words = "".join(f" -k {shlex.quote(word)}" for word in job.flags)
    # Newer versions fail if no test is chosen.
    words += " || test $? = 5" * bool(words)
    # Tests do not clean up after a signal.
    with tempfile.TemporaryDirectory(prefix="ovs-cost-tools.") as directory:
        for name in "tools", "bench", "differential":
            run(job, name, f"TMPDIR={directory} {command} {name}{words}")
