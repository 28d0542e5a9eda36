# SPDX-License-Identifier: Apache-2.0
"""Runs Autotest suites of a built Open vSwitch tree, and keeps results.

A test is named "FILE: TITLE", with its rank among equal titles of that file:
numbers change whenever a test is added.  A file of results has lines of
status, stage, test and detail, separated by tabs.  The last line for a test
counts: each test is "todo" at first, so the file also shows progress.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
from functools import cached_property
from pathlib import Path
from typing import (Callable, Dict, Iterable, List, NamedTuple, Optional,
                    TextIO)

PASS, FAIL, SKIP, TODO = "pass", "fail", "skip", "todo"

LIST_RE = re.compile(r"^ *(\d+): ([^ ]+):\d+ +(.*)$", re.M)
RESULT_RE = re.compile(r"^ *(\d+): .*?  *"
                       r"(ok|skipped|FAILED|failed|expected failure|"
                       r"UNEXPECTED PASS)(?: \((.*)\))?$")
STATUS = {"ok": PASS, "skipped": SKIP, "FAILED": FAIL, "failed": FAIL,
          "expected failure": PASS, "UNEXPECTED PASS": FAIL}

# Many tests wait for something most of their time.
JOBS = 2 * len(os.sched_getaffinity(0)) + 2


class CanNotRun(Exception):
    """Tests can't run here, for the reason given."""


class Result(NamedTuple):
    status: str
    detail: str = ""


class Recorder:
    """Writes the results of 'stage' to the file 'path', if there is one."""

    def __init__(self, path: Optional[Path], stage: str):
        self.stage = stage
        self.out: Optional[TextIO] = None
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.out = open(path, "w", encoding="utf-8")

    def add(self, test: object, status: str, detail: str = "") -> None:
        if self.out:
            self.out.write(f"{status}\t{self.stage}\t{test}\t{detail}\n")
            self.out.flush()


class Job(Recorder):
    """What a stage is to do, and the results of its tests."""

    def __init__(self, stage: str, options: argparse.Namespace):
        self.options = options
        self.flags: List[str] = options.flags
        self.build: Path = options.build
        self.ovs: Path = options.ovs
        self.file = self.build / f"check-{stage}.result"
        super().__init__(self.file, stage)


def read_results(path: Path) -> Dict[str, Result]:
    """Returns the results in the file 'path', in the order in which tests
    come first; none if there is no such file."""
    results: Dict[str, Result] = {}
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            words = line.split("\t")
            if len(words) == 4:
                results[words[2]] = Result(words[0], words[3])
    return results


class Suite:
    """The suite 'name' of the built tree 'tree', run by the command 'wrap',
    with programs of the directory 'path' before those of the tree."""

    def __init__(self, tree: Path, name: str = "testsuite",
                 wrap: Iterable[str] = (), path: str = ""):
        self.tree = tree.resolve()
        self.name = name
        match = re.search(r"^AUTOTEST_PATH *= *([\w:]+)",
                          (self.tree / "Makefile").read_text(), re.M)
        assert match
        # How many seconds tests wait for something.  In the environment alone,
        # tests/atlocal would set it to 30.
        wait = os.environ.get("OVS_CTL_TIMEOUT", "30")
        self.command = [*wrap, "/bin/bash", f"./tests/{name}", "-C", "tests",
                        f"AUTOTEST_PATH={path}:{match.group(1)}".rstrip(":"),
                        f"OVS_CTL_TIMEOUT={wait}"]
        # Some tests ask git where the top of the tree is.  It must not find
        # the repository around the build directory.
        self.env = {**os.environ,
                    "GIT_CEILING_DIRECTORIES": str(self.tree.parent)}

    @cached_property
    def tests(self) -> Dict[str, int]:
        """The numbers of all tests of the suite, in its order."""
        out = subprocess.run(
            ["/bin/bash", f"tests/{self.name}", "--list"], cwd=self.tree,
            env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, check=True).stdout
        numbers: Dict[str, int] = {}
        for number, file, title in LIST_RE.findall(out):
            name = first = f"{file}: {title.strip()}"
            rank = 1
            while name in numbers:
                rank += 1
                name = f"{first} #{rank}"
            numbers[name] = int(number)
        return numbers

    def log(self, test: str) -> Path:
        """Returns the log of a test that failed."""
        number = str(self.tests[test]).zfill(len(str(len(self.tests))))
        return self.tree / f"tests/{self.name}.dir/{number}/{self.name}.log"

    def run_raw(self, arguments: List[str]) -> int:
        """Runs the suite with Autotest's own 'arguments' and output."""
        return subprocess.run(self.command + arguments, cwd=self.tree,
                              env=self.env, check=False).returncode

    def _with_text(self, place: str) -> str:
        """Returns 'place', FILE:LINE, with the text of that line."""
        file, _, line = place.partition(":")
        try:
            text = (self.tree / "tests" / file).read_text(errors="replace")
            return f"{place}: {text.splitlines()[int(line) - 1].strip()}"
        except (OSError, ValueError, IndexError):
            return place

    def run(self, tests: Iterable[str], jobs: int = JOBS,
            on_result: Callable[[str, str, str], None] = lambda *_: None,
            prefix: Iterable[str] = ()) -> Dict[str, Result]:
        """Runs 'tests', 'jobs' of them at a time, by the command 'prefix',
        prints what the suite prints, and calls 'on_result' with the name,
        status and detail of each test that ends.  A test that ends without a
        verdict has failed; if none has one, the suite itself did not run."""
        names = {self.tests[name]: name for name in tests}
        results: Dict[str, Result] = {}
        if not names:
            return results
        # Not as ranges: Autotest chokes on the titles of some tests of OVS
        # 4.0 that are inside one.
        with subprocess.Popen(
                [*prefix, *self.command, f"-j{jobs}",
                 *map(str, sorted(names))], cwd=self.tree, env=self.env,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace",
                start_new_session=True) as suite:
            try:
                assert suite.stdout
                for text in suite.stdout:
                    print(text, end="", flush=True)
                    match = RESULT_RE.match(text.rstrip())
                    name = match and names.get(int(match.group(1)))
                    if not match or not name or name in results:
                        continue
                    status, detail = STATUS[match.group(2)], match.group(3)
                    results[name] = Result(
                        status, self._with_text(detail or "")
                        if status == SKIP else detail or "")
                    on_result(name, *results[name])
            except BaseException:
                os.killpg(suite.pid, signal.SIGTERM)
                try:
                    suite.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(suite.pid, signal.SIGKILL)
                raise
        if not results and len(names) > 1:
            raise SystemExit(f"{self.tree}/tests/{self.name} did not run")
        for name in set(names.values()) - set(results):
            results[name] = Result(FAIL, "no verdict")
            on_result(name, *results[name])
        return results

    def run_alone(self, tests: Iterable[str],
                  on_result: Callable[[str, str, str], None] = lambda *_: None
                  ) -> Dict[str, Result]:
        """Runs tests again that may have failed for what else was running,
        before all other processes of the machine if the user may do that:
        several of OVS's own tests expect flows to be there for some seconds
        of the clock."""
        return self.run(tests, 1, on_result, ("nice", "-n", "-20"))


def terminate_on_sigterm() -> None:
    """Makes SIGTERM and SIGHUP unwind like an interrupt, so that a suite in
    flight is stopped and not left behind."""
    def stop(_signo: int, _frame: object) -> None:
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)
