# SPDX-License-Identifier: Apache-2.0
"""Runs the Autotest suites of a built Open vSwitch tree and reads their
results.

Used by tools/check and tools/check-upstream.  A test is identified by the
file that defines it, its title, and its rank among equal titles of that file:
numbers change whenever a test is added.

A file of results has lines of status, suite, test and detail, separated by
tabs.  Of several lines for a test, the last one counts, so that such a file
also tells how far the tests are: each is "todo" at first.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import (Callable, Dict, Iterable, List, NamedTuple, Optional,
                    TextIO, Tuple)

PASS, FAIL, SKIP, TODO = "pass", "fail", "skip", "todo"

LIST_RE = re.compile(r"^ *(\d+): ([^ ]+):(\d+) +(.*)$")
RESULT_RE = re.compile(r"^ *(\d+): .*?  *"
                       r"(ok|skipped|FAILED|failed|expected failure|"
                       r"UNEXPECTED PASS)(?: \((.*)\))?$")
STATUS = {"ok": PASS, "skipped": SKIP, "FAILED": FAIL, "failed": FAIL,
          "expected failure": PASS, "UNEXPECTED PASS": FAIL}


class Key(NamedTuple):
    """What stays the same about a test from one tree to another."""
    file: str
    title: str
    rank: int

    def __str__(self) -> str:
        rank = f" #{self.rank + 1}" if self.rank else ""
        return f"{self.file}: {self.title}{rank}"


@dataclass
class Test:
    number: int
    line: int
    key: Key
    keywords: List[str]


@dataclass
class Result:
    status: str
    detail: str = ""


def default_jobs() -> int:
    """Many tests wait for something most of their time, so twice as many
    run at once as there are processors, and one more pair."""
    return 2 * len(os.sched_getaffinity(0)) + 2


class Recorder:
    """Writes the results of 'suite' to the file 'path', if there is one."""

    def __init__(self, path: Optional[Path], suite: str):
        self.suite = suite
        self.out: Optional[TextIO] = None
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.out = open(path, "w", encoding="utf-8")

    def add(self, test: object, status: str, detail: str = "") -> None:
        if self.out:
            self.out.write(f"{status}\t{self.suite}\t{test}\t{detail}\n")
            self.out.flush()


def read_results(path: Path) -> Dict[Tuple[str, str], Result]:
    """Returns the results in the file 'path', in the order in which the tests
    come first; none if there is no such file."""
    results: Dict[Tuple[str, str], Result] = {}
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            words = line.split("\t")
            if len(words) == 4:
                results[words[1], words[2]] = Result(words[0], words[3])
    return results


class Progress:
    """One line that updates on a terminal, a plain line now and then
    elsewhere."""

    def __init__(self, what: str, total: int, interval: float = 30.0):
        self.what = what
        self.total = total
        self.done = 0
        self.bad = 0
        self.tty = sys.stderr.isatty()
        self.interval = 0.2 if self.tty else interval
        self.start = self.last = time.monotonic()

    def step(self, status: str) -> None:
        self.done += 1
        self.bad += status == FAIL
        now = time.monotonic()
        if now - self.last >= self.interval or self.done == self.total:
            self.last = now
            self.show()

    def show(self) -> None:
        took = int(time.monotonic() - self.start)
        text = (f"{self.what}: {self.done:,} of {self.total:,} tests, "
                f"{self.bad} failed, {took // 60}:{took % 60:02d}")
        if self.tty:
            end = "\n" if self.done == self.total else ""
            print(f"\r{text}\033[K", end=end, file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


class Suite:
    """The suite 'name' of the built tree 'tree', run by the command 'wrap' if
    there is one, with programs of the directory 'path' instead of those of the
    same name in the tree."""

    def __init__(self, tree: Path, name: str = "testsuite",
                 wrap: Iterable[str] = (), path: str = ""):
        self.wrap = list(wrap)
        self.path = f"{path}:" if path else ""
        self.tree = tree.resolve()
        self.name = name
        self.script = self.tree / "tests" / name
        self.env = {k: v for k, v in os.environ.items()
                    if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL",
                                 "TESTSUITEFLAGS", "RECHECK")}
        # Some tests ask git where the top of the tree is.  It must not find
        # the repository around the build directory.
        self.env["GIT_CEILING_DIRECTORIES"] = str(self.tree.parent)

    def build(self, *suites: str) -> None:
        """Brings the programs and data that the suite needs, and other
        'suites', up to date."""
        make = os.environ.get("MAKE", "make")
        jobs = len(os.sched_getaffinity(0))
        log = self.tree / "tests" / "build.log"
        targets = [f"tests/{name}" for name in {self.name, *suites}]
        with open(log, "w", encoding="utf-8") as out:
            done = subprocess.run(
                [make, "-j", str(jobs), "check", "TESTSUITEFLAGS=--version"],
                cwd=self.tree, env=self.env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, check=False)
            if done.returncode == 0:
                done = subprocess.run(
                    [make, *targets], cwd=self.tree,
                    env=self.env, stdin=subprocess.DEVNULL,
                    stdout=out, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            tail = log.read_text(errors="replace").splitlines()[-20:]
            raise SystemExit("\n".join(tail) +
                             f"\nbuilding {self.tree} failed; see {log}")

    def _command(self) -> List[str]:
        make = os.environ.get("MAKE", "make")
        path = subprocess.run(
            [make, "-s", "--no-print-directory",
             "--eval=ovs-cost-print: ; @echo '$(AUTOTEST_PATH)'",
             "ovs-cost-print"],
            cwd=self.tree, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=True)
        # How many seconds tests wait for something.  In the environment alone,
        # tests/atlocal would set it to 30.
        wait = os.environ.get("OVS_CTL_TIMEOUT", "30")
        return self.wrap + [
            "/bin/bash", f"./tests/{self.name}", "-C", "tests",
            f"AUTOTEST_PATH={self.path}{path.stdout.splitlines()[-1]}",
            "OVS_CTL_TIMEOUT=" + wait]

    def tests(self) -> Dict[Key, Test]:
        """All tests of the suite, in its order."""
        out = subprocess.run(
            ["/bin/bash", str(self.script), "--list"], cwd=self.tree,
            env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=True).stdout
        found: Dict[Key, Test] = {}
        test: Optional[Test] = None
        for text in out.splitlines():
            match = LIST_RE.match(text)
            if match:
                file, title = match.group(2), match.group(4).strip()
                rank = 0
                while Key(file, title, rank) in found:
                    rank += 1
                key = Key(file, title, rank)
                test = Test(int(match.group(1)), int(match.group(3)), key, [])
                found[key] = test
            elif test and text.startswith("      "):
                test.keywords += text.split()
        return found

    def run_alone(self, tests: Iterable[Test],
                  on_result: Optional[Callable[[Test, Result], None]] = None
                  ) -> Dict[Key, Result]:
        """Runs tests again that may have failed for what else was running.
        Several of OVS's own expect flows, or neighbors, that they need to be
        there for some seconds of the clock."""
        return self.run(tests, 1, on_result, first=True)

    def run_raw(self, arguments: List[str]) -> int:
        """Runs the suite with Autotest's own 'arguments' and output."""
        return subprocess.run(self._command() + arguments, cwd=self.tree,
                              env=self.env, check=False).returncode

    def _reason(self, place: str) -> str:
        """Returns 'place', FILE:LINE, with what is there."""
        file, _, line = place.partition(":")
        try:
            text = (self.tree / "tests" / file).read_text(errors="replace")
            return f"{place}: {text.splitlines()[int(line) - 1].strip()}"
        except (OSError, ValueError, IndexError):
            return place

    def run(self, tests: Iterable[Test], jobs: int,
            on_result: Optional[Callable[[Test, Result], None]] = None,
            on_text: Optional[Callable[[str], None]] = None,
            first: bool = False) -> Dict[Key, Result]:
        """Runs 'tests', 'jobs' of them at a time, and calls 'on_text' for
        each line that the suite prints, 'on_result' as each test ends.  A test
        that ended without a verdict counts as failed; if none has one, the
        suite itself did not run.  With 'first', they come before all other
        processes of the machine, as far as the user may do that."""
        by_number = {t.number: t for t in tests}
        results: Dict[Key, Result] = {}
        if not by_number:
            return results
        command = self._command() + [f"-j{jobs}"]
        if first:
            command = ["nice", "-n", "-20", *command]
        # Not as ranges: Autotest chokes on the titles of some tests of OVS
        # 4.0 that are inside one.
        command += map(str, sorted(by_number))
        said: List[str] = []
        with subprocess.Popen(command, cwd=self.tree, env=self.env,
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              errors="replace",
                              start_new_session=True) as suite:
            try:
                assert suite.stdout
                for text in suite.stdout:
                    said = (said + [text])[-20:]
                    if on_text:
                        on_text(text)
                    match = RESULT_RE.match(text.rstrip())
                    test = match and by_number.get(int(match.group(1)))
                    if not match or not test or test.key in results:
                        continue
                    result = Result(STATUS[match.group(2)],
                                    match.group(3) or "")
                    if result.status == SKIP:
                        result.detail = self._reason(result.detail)
                    results[test.key] = result
                    if on_result:
                        on_result(test, result)
            except BaseException:
                os.killpg(suite.pid, signal.SIGTERM)
                try:
                    suite.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(suite.pid, signal.SIGKILL)
                raise
        if not results and len(by_number) > 1:
            raise SystemExit(f"{self.script} did not run:\n" + "".join(said))
        for test in by_number.values():
            if test.key not in results:
                results[test.key] = Result(FAIL, "no verdict")
                if on_result:
                    on_result(test, results[test.key])
        return results


def terminate_on_sigterm() -> None:
    """Makes SIGTERM and SIGHUP unwind like an interrupt, so that a suite in
    flight is stopped and not left behind."""
    def stop(_signo: int, _frame: object) -> None:
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)
