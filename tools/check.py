#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the project's tests in stages, the cheap and telling ones first.

Every stage runs, whatever has failed before.  A stage in which no test ends,
and which prints nothing, for ten minutes is stopped, with all its processes.
While stages run, a line shows their progress each half minute.  At the end
comes a summary, with tests that failed or could not run here; the last line is
"N passed, N failed, N skipped", and the exit status 1 if anything has failed.

TESTSUITEFLAGS choose tests of STAGE (default: suite) in Autotest's own words,
or name classes or tests of stage "tools", or faults of stage "mutations".
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from itertools import groupby
from pathlib import Path
from typing import Dict, List, Optional, Tuple

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools import autotest
from tools import project as t
from tools.autotest import FAIL, PASS, SKIP, TODO, CanNotRun, Job, Result
from tools.stages import STAGES, Stage
from tools.suites import MAY_SKIP, Tests, our_tests

GRACE = 20                      # Seconds to clean up after a signal.
INTERVAL = 25                   # Seconds between lines of progress.

say = functools.partial(print, flush=True)


@functools.lru_cache(maxsize=None)
def contained() -> Tuple[str, ...]:
    """Returns a command that runs another one in a namespace of processes, all
    of which end with it, if there are such namespaces here."""
    user = ("--user", "--map-current-user") if os.geteuid() else ()
    # The shell waits for processes that have lost their parents.
    command = ("unshare", *user, "--pid", "--fork", "--kill-child",
               "--mount-proc", "sh", "-c", "\"$@\" & wait $!", "sh")
    done = subprocess.run([*command, "true"], stdin=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False)
    return () if done.returncode else command


class Running:
    """A stage that runs, or has run."""

    def __init__(self, stage: Stage, args: argparse.Namespace):
        self.stage = stage
        self.name = stage.name
        self.args = args
        self.log = args.build / f"log/check-{self.name}.log"
        self.file = args.build / f"check-{self.name}.result"
        self.file.unlink(missing_ok=True)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*contained(), sys.executable, __file__,
                 f"--inside={self.name}", *sys.argv[1:]],
                stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)
        self.began = time.time()
        self.took = 0.0         # Seconds, once it has ended.
        self.results: Dict[str, Result] = {}

    def count(self, status: str) -> int:
        return sum(r.status == status for r in self.results.values())

    def counts(self) -> List[int]:
        return [self.count(status) for status in (PASS, FAIL, SKIP)]

    def doing(self) -> str:
        text = self.name
        if self.results:
            n_done = len(self.results) - self.count(TODO)
            text += f" {n_done:,} of {len(self.results):,}"
        if self.count(FAIL):
            text += f" ({self.count(FAIL)} failed)"
        said = [line.strip() for line in tail(self.log, 5) if line.strip()]
        return ": ".join([text, *said[-1:]])

    def stop(self) -> None:
        """Has it clean up, and ends it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def has_ended(self) -> bool:
        """Gathers its results when it has ended, which it is made to if it
        hangs."""
        why = ""
        if self.process.poll() is None:
            self.results = autotest.read_results(self.file)
            moved = max(path.stat().st_mtime for path in (self.file, self.log)
                        if path.exists())
            if time.time() < moved + self.stage.limit:
                return False
            why = f"no test has ended for {self.stage.limit:.0f} s"
            self.stop()
        self.took = time.time() - self.began
        self.results = autotest.read_results(self.file)
        todo = [k for k, r in self.results.items() if r.status == TODO]
        status = self.process.returncode
        if not why and (todo or status and not self.count(FAIL)):
            why = ": ".join([f"exit status {status}", *tail(self.log, 1)])
        if todo:
            why += f", {len(todo)} tests did not end, first '{todo[0]}'"
        self.results = {name: result for name, result in self.results.items()
                        if name not in todo}
        if why:
            self.results["the stage itself"] = Result(FAIL, why)
        if self.args.require and self.stage.required:
            self.demand()
        return True

    def demand(self) -> None:
        """Makes tests that were skipped failures, of OVS's suites those of
        this project."""
        ours = ("",)
        if isinstance(self.stage.run, Tests):
            ours = ("all tests", *our_tests(self.args.ovs))
        for name, result in self.results.items():
            if (result.status == SKIP and name.startswith(ours)
                    and name not in MAY_SKIP):
                self.results[name] = Result(
                    FAIL, f"may not be skipped: {result.detail}")

    def conclusion(self) -> str:
        """Returns how it has ended, and the end of its log if it failed."""
        text = "{}: {:,} passed, {} failed, {} skipped in {}".format(
            self.name, *self.counts(), minutes(self.took))
        if self.count(FAIL):
            text += f"\n  the end of {self.log}:\n" + textwrap.indent(
                "\n".join(tail(self.log, 180)), "    ")
        return text


def tail(path: Path, n: int) -> List[str]:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 200 * n))
        return file.read().decode(errors="replace").splitlines()[-n:]


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def run(stages: List[Stage], args: argparse.Namespace) -> int:
    """Runs 'stages', writes the results, and returns the exit status."""
    start = shown = time.monotonic()
    ran: List[Running] = []
    try:
        for _, group in groupby(stages, lambda s: s.together or s.name):
            for stage in group:
                ran.append(Running(stage, args))
            running = [one for one in ran if not one.took]
            while running:
                time.sleep(0.5)
                for one in running:
                    if one.has_ended():
                        say(one.conclusion())
                running = [one for one in running if not one.took]
                if running and time.monotonic() > shown + INTERVAL:
                    shown = time.monotonic()
                    say(f"{minutes(shown - start):>5}  " + "; ".join(
                        one.doing() for one in running))
    except BaseException:
        # Once is enough.
        autotest.on_signals(signal.SIG_IGN)
        say("stopping")
        for one in ran:
            if not one.took:
                one.stop()
        raise
    with open(args.build / "check.result", "w", encoding="utf-8") as out:
        for one in ran:
            for name, (status, detail) in one.results.items():
                out.write(f"{status}\t{one.name}\t{name}\t{detail}\n")
    return summarize(ran, time.monotonic() - start)


def named(ran: List[Running], status: str) -> List[str]:
    """Names the tests of 'status', of those that passed if there is a note."""
    return [f"{one.name}: {test}" + (f"  ({r.detail})" if r.detail else "")
            for one in ran for test, r in one.results.items()
            if r.status == status and (r.detail or status != PASS)]


def summarize(ran: List[Running], took: float) -> int:
    row = "  {:12}{:>7}{:>8}{:>9}{:>7}"
    say("\n" + row.format("", "passed", "failed", "skipped", "time"))
    for one in ran:
        say(row.format(one.name, *one.counts(), minutes(one.took)))
    n = [sum(counts) for counts in zip(*(one.counts() for one in ran))]
    say(row.format("all", *n, minutes(took)))
    for title, lines in (
            ("Notes", named(ran, PASS)),
            ("Skipped", named(ran, SKIP)),
            ("Failed", named(ran, FAIL) + [f"  see {one.log}" for one in ran
                                           if one.count(FAIL)])):
        if lines:
            say("\n  ".join([f"\n{title}:", *lines]))
    say("\n{} passed, {} failed, {} skipped".format(*n))
    return 1 if n[1] or not n[0] else 0


def inside(stage: Stage, args: argparse.Namespace) -> Optional[int]:
    """Does the work of 'stage'."""
    job = Job(stage.name, args)
    try:
        status = stage.run(job)
    except CanNotRun as error:
        print(f"{stage.name}: {error}")
        job.add("all tests", SKIP, str(error))
        return 0
    if not job.file.stat().st_size and not args.flags:
        t.fail("no test has run")
    return status


def main() -> Optional[int]:
    known = {stage.name: stage for stage in STAGES}
    groups = ["check", "all", "long"]
    parser = argparse.ArgumentParser(
        prog="check.py", description=__doc__,
        usage="%(prog)s [OPTION]... BUILD [STAGE]... [-- TESTSUITEFLAGS...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="stages:\n" + "\n".join(textwrap.fill(
            f"  {stage.name:13}{stage.what}", 79, subsequent_indent=" " * 15)
            for stage in STAGES))
    parser.add_argument("build", type=Path, metavar="BUILD",
                        help="directory with the built tree 'ovs', or a tree")
    parser.add_argument("stages", nargs="*", metavar="STAGE",
                        help="run only these; 'long' is a group of them")
    for option, text in (
            ("all", "run all tests of the stages, not only those that tell "
             "most, and stages exporter, differential and lint"),
            ("ours", "run none of Open vSwitch's own tests"),
            ("upstream", "run Open vSwitch's own tests in stages system, dpdk "
             "and kernel, too"),
            ("long", "take a quarter of an hour for changes under load in "
             "stage dpdk, and with --all, run the stages of group long"),
            ("require", "a test that is skipped has failed: in suites of Open "
             "vSwitch, one of this project")):
        parser.add_argument(f"--{option}", action="store_true", help=text)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args, args.flags = parser.parse_intermixed_args(words[:at]), words[at + 1:]
    args.build = args.build.absolute()
    args.ovs = args.build / "ovs"
    if not args.ovs.exists():
        args.ovs = args.build
    for name in args.stages:
        if name not in [*known, *groups]:
            parser.error(f"there is no stage '{name}'; there are "
                         + ", ".join(known))
    for name in "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "TESTSUITEFLAGS":
        os.environ.pop(name, None)      # They are for this make alone.
    autotest.on_signals()
    if args.inside:
        return inside(known[args.inside], args)
    if args.flags:
        args.stages = args.stages or ["suite"]
        suites = [name for name in args.stages if name in known
                  and isinstance(known[name].run, Tests)]
        if args.stages not in (suites[:1], ["tools"], ["mutations"]):
            parser.error("TESTSUITEFLAGS are for one stage, a suite, 'tools' "
                         "or 'mutations'")
        if suites:
            return inside(known[suites[0]], args)
    (args.build / "log").mkdir(parents=True, exist_ok=True)
    chosen = args.stages or groups[:1 + args.all + (args.all and args.long)]
    try:
        return run([stage for stage in STAGES
                    if stage.name in chosen or stage.runs in chosen], args)
    except KeyboardInterrupt:
        say("interrupted")
        return 130


if __name__ == "__main__":
    t.run_main(main)
