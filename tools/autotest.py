# SPDX-License-Identifier: Apache-2.0
"""Runs Autotest suites of a built Open vSwitch tree, and keeps results.

A test is named "FILE: TITLE", with its rank among equal titles of that file:
numbers change whenever a test is added.  A file of results has lines of
status, stage, test and detail, separated by tabs.  The last line for a test
counts: each test is "todo" at first, so the file also shows progress.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
from collections import Counter
from functools import cached_property
from linecache import getline
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple

from tools.project import Failure

PASS, FAIL, SKIP, TODO = "pass", "fail", "skip", "todo"

LIST_RE = re.compile(r"^ *(\d+): ([^ ]+):\d+ +(.*)$", re.M)
RESULT_RE = re.compile(r"^ *(\d+): .*? "
                       r"(ok|skipped|FAILED|failed|expected failure|"
                       r"UNEXPECTED PASS)(?: \((.*)\))?$")
STATUS = {"ok": PASS, "skipped": SKIP, "expected failure": PASS}

# Many tests wait for something most of their time.
JOBS = 2 * len(os.sched_getaffinity(0)) + 2


class CanNotRun(Exception):
    """Tests can't run here, for the reason given."""


class Result(NamedTuple):
    status: str
    detail: str = ""


NO_VERDICT = Result(FAIL, "no verdict")


class Job:
    """What a stage is to do, and the results of its tests."""

    def __init__(self, stage: str, options: argparse.Namespace):
        self.stage = stage
        self.options = options
        self.flags: List[str] = options.flags
        self.build: Path = options.build
        self.ovs: Path = options.ovs
        self.file = self.build / f"check-{stage}.result"
        self.out = open(self.file, "w", encoding="utf-8")

    def add(self, test: str, status: str, detail: str = "") -> None:
        print(status, self.stage, test, detail, sep="\t", file=self.out,
              flush=True)


def read_results(path: Path) -> Dict[str, Result]:
    """Returns the results in the file 'path', in the order in which tests
    come first; none if there is no such file."""
    if not path.exists():
        return {}
    lines = path.read_text(errors="replace").splitlines()
    return {words[2]: Result(words[0], words[3]) for words in
            (line.split("\t") for line in lines) if len(words) == 4}


class Suite:
    """The suite 'name' of the built tree 'tree', run by the command 'wrap',
    'jobs' tests at a time, with programs of the directory 'path' before those
    of the tree."""

    def __init__(self, tree: Path, name: str = "testsuite",
                 wrap: Iterable[str] = (), jobs: int = JOBS, path: str = ""):
        self.tree = tree.resolve()
        self.name = name
        self.jobs = jobs
        [programs] = re.findall(r"^AUTOTEST_PATH *= *([\w:]+)",
                                (self.tree / "Makefile").read_text(), re.M)
        self.wrap = [*wrap]
        # Tests wait so many seconds for something; by default, 30.
        self.command = ["/bin/bash", f"./tests/{name}", "-C", "tests",
                        f"AUTOTEST_PATH={path}:{programs}".rstrip(":"),
                        "OVS_CTL_TIMEOUT=120"]
        # Some tests ask git where the top of the tree is.  It must not find
        # the repository around the build directory.
        self.env = {**os.environ,
                    "GIT_CEILING_DIRECTORIES": str(self.tree.parent)}

    @cached_property
    def tests(self) -> Dict[str, int]:
        """The numbers of all tests of the suite, in its order."""
        out = subprocess.check_output(
            ["/bin/bash", f"tests/{self.name}", "--list"], cwd=self.tree,
            env=self.env, text=True)
        numbers: Dict[str, int] = {}
        ranks: Counter[str] = Counter()
        for number, file, title in LIST_RE.findall(out):
            name = f"{file}: {title.strip()}"
            ranks[name] += 1
            rank = f" #{ranks[name]}" if ranks[name] > 1 else ""
            numbers[name + rank] = int(number)
        return numbers

    def run_raw(self, arguments: Iterable[str]) -> int:
        """Runs the suite with Autotest's own 'arguments' and output."""
        return subprocess.run(
            [*self.wrap, *self.command, f"-j{self.jobs}", *arguments],
            cwd=self.tree, env=self.env, check=False).returncode

    def run(self, tests: Iterable[str],
            on_result: Callable[[str, str, str], None] = lambda *_: None,
            options: Iterable[str] = (), recheck: bool = True
            ) -> Dict[str, Result]:
        """Runs 'tests' with Autotest's 'options', prints what the suite
        prints, and calls 'on_result' with the name, status and detail of each
        test that ends.  A test without a verdict has failed.

        With 'recheck', prints the logs of tests that have failed, and runs
        these again, one by one, as RECHECK=yes of Open vSwitch does, before
        other processes if the user may do that: many wait for something that a
        busy machine reaches late."""
        numbers = {self.tests[name]: name for name in tests}
        results: Dict[str, Result] = {}
        if not numbers:
            return results
        # Not as ranges: Autotest chokes on the titles of some tests of OVS
        # 4.0 that are inside one.  Logs without the files that they add.
        script = " ".join(['"$@"', f"-j{self.jobs}", *options,
                           *map(str, sorted(numbers))])
        if recheck:
            log = f"{self.name}.log"
            script = (f": >tests/began; {script} || {{ find tests/{self.name}"
                      f".dir -name {log} -newer tests/began -exec grep -hv "
                      "'^> ' {} +; nice -n -20 \"$@\" --recheck; }")
        with subprocess.Popen(
                [*self.wrap, "/bin/sh", "-c", script, "sh", *self.command],
                cwd=self.tree, env=self.env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace") as run:
            try:
                assert run.stdout
                for line in run.stdout:
                    print(line, end="", flush=True)
                    match = RESULT_RE.match(line.rstrip())
                    name = match and numbers.get(int(match[1]))
                    if match and name:
                        status = STATUS.get(match[2], FAIL)
                        place = match[3] or ""
                        if status == SKIP:      # The line says why.
                            file, _, n = place.partition(":")
                            place += ": " + getline(
                                f"{self.tree}/tests/{file}", int(n)).strip()
                        elif status == PASS and name in results:
                            place = "only when run again"
                        results[name] = Result(status, place)
                        on_result(name, status, place)
            finally:
                # A signal that stops the stage stops the suite, too.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(10)
                run.kill()
        if not results:
            raise Failure(f"{self.tree}/tests/{self.name} did not run")
        for name in {*numbers.values()} - {*results}:
            results[name] = NO_VERDICT
            on_result(name, *NO_VERDICT)
        return results


def on_signals(handler: Any = signal.default_int_handler) -> None:
    """Has 'handler' handle what ends a program, but for what was ignored when
    it started.  By default, all of it unwinds like an interrupt, so that a
    suite in flight is stopped and not left behind."""
    for signo in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        if signal.getsignal(signo) != signal.SIG_IGN:
            signal.signal(signo, handler)
