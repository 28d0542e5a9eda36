#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the project's tests in stages, the cheap and telling ones first.

Every stage runs, whatever has failed before.  A stage in which no test ends,
and which prints nothing, for some minutes is stopped, with all its processes;
the time depends on the speed of the machine at the start.  While stages run, a
line shows their progress: on a terminal it is updated, elsewhere there is a
new line at least each half minute.  At the end comes a summary, with tests
that failed or could not run here; the last line is "N passed, N failed, N
skipped", and the exit status 1 if anything has failed.

TESTSUITEFLAGS choose tests of STAGE (default: suite) in Autotest's own words,
or name steps of stage "long" or faults of stage "mutations".
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from itertools import groupby
from pathlib import Path
from typing import Dict, List, Optional

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import autotest                                                # noqa: E402
import suites                                                  # noqa: E402
import project as t                                            # noqa: E402
from autotest import (FAIL, PASS, SKIP, TODO, CanNotRun, Job,  # noqa: E402
                      Result)
from stages import STAGES, Stage                               # noqa: E402

# Most of a test's time goes into starting programs.  On the machine for which
# the limits of the stages were set, starting this many takes so many seconds.
SPEED_PROGRAMS = 400
SPEED_SECONDS = 0.25

BOOT = 120                      # Seconds for a virtual machine to come up.
TAIL = 180                      # Lines that are shown of a log.
GRACE = 20                      # Seconds to clean up after a signal.

# Environment variable of all processes: tags, separated by commas, as there
# can be stages within a stage.
TAG = "OVS_COST_STAGE"


class Running:
    """A stage that runs, or has run."""

    def __init__(self, stage: Stage, build: Path, words: List[str],
                 limit: float, env: Dict[str, str]):
        self.stage = stage
        self.name = stage.name
        self.limit = limit
        self.log = build / "log" / f"check-{self.name}.log"
        self.console = self.log.with_suffix(".console")
        self.file = build / f"check-{self.name}.result"
        self.command = [sys.executable, __file__, f"--inside={self.name}",
                        *words]
        self.tag = f"{os.getpid()}.{self.name}"
        self.env = {**env, "KERNEL_VM_CONSOLE": str(self.console),
                    TAG: ",".join(filter(None, [env.get(TAG), self.tag]))}
        self.process: Optional[subprocess.Popen] = None
        self.began = self.moved = time.monotonic()
        self.size = 0           # Of its results and its log.
        self.took = 0.0
        self.why = ""           # It failed itself, not only tests of it.
        self.results: Dict[str, Result] = {}

    def count(self, status: str) -> int:
        return sum(r.status == status for r in self.results.values())

    def counts(self) -> List[int]:
        return [self.count(status) for status in (PASS, FAIL, SKIP)]

    def kill_all(self) -> None:
        """Kills its processes, and theirs, wherever they are."""
        tagged = re.compile(rb"(?:^|\0)%b=(?:[^\0]*,)?%b(?:,|\0|$)" % (
            TAG.encode(), re.escape(self.tag.encode())))
        found = True
        while found:
            found = False
            for environ in Path("/proc").glob("[0-9]*/environ"):
                # It may be gone, or somebody else's.
                with contextlib.suppress(OSError):
                    if tagged.search(environ.read_bytes()):
                        os.kill(int(environ.parent.name), signal.SIGKILL)
                        found = True
            time.sleep(0.05)

    def start(self) -> None:
        for path in self.file, self.console:
            path.unlink(missing_ok=True)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
                env=self.env)
        self.began = self.moved = time.monotonic()

    def look(self) -> None:
        """Reads its results so far.  It moves if these or its log grow."""
        size = sum(path.stat().st_size for path in (self.file, self.log)
                   if path.exists())
        if size != self.size:
            self.size = size
            self.moved = time.monotonic()
            self.results = autotest.read_results(self.file)

    def doing(self) -> str:
        """Returns its progress and what is running: of tests that run
        together, the one that was started first."""
        text = self.name
        n_todo = self.count(TODO)
        n_done = len(self.results) - n_todo
        if self.results:
            text += f" {n_done:,} of {len(self.results):,}"
            if self.count(FAIL):
                text += f" ({self.count(FAIL)} failed)"
        last = (tail(self.log, 1) or [""])[0].strip()
        if not (n_done and n_todo) and last and not last.startswith("##"):
            return f"{text}: {last}"    # It prepares or concludes.
        for test, result in self.results.items():
            if result.status == TODO:
                return f"{text}: {test.partition(': ')[2] or test}"
        return text

    def terminate(self) -> None:
        """Has it clean up."""
        with contextlib.suppress(ProcessLookupError):
            if self.process:
                os.killpg(self.process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Ends it after terminate(), when it has cleaned up."""
        if self.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE)
        self.kill_all()         # It may just have been started.
        if self.process:
            self.process.wait()

    def end(self, why: str = "") -> None:
        """Gathers its results after it has ended, because of 'why' if it was
        stopped."""
        assert self.process
        self.kill_all()
        self.took = time.monotonic() - self.began
        self.look()
        status = self.process.returncode
        unfinished = [k for k, r in self.results.items() if r.status == TODO]
        for n, key in enumerate(unfinished):
            before = self.results[key].detail   # It failed, and ran again.
            self.results[key] = (
                Result(FAIL, before or why or "did not end")
                if n == 0 or before else Result(SKIP, "the stage had ended"))
        if why or (status not in (0, 77) and not self.count(FAIL)):
            self.why = why or f"exit status {status}"
            if not unfinished:
                self.results["the stage itself"] = Result(FAIL, self.why)

    def demand(self) -> None:
        """Makes tests that were skipped failures."""
        for name, result in self.results.items():
            if result.status == SKIP:
                self.results[name] = suites.demanded(result.detail)
        if not self.results:
            self.results["all tests"] = Result(FAIL, "there is none")

    def notes(self) -> List[str]:
        lines = self.log.read_text(errors="replace").splitlines()
        return list(dict.fromkeys(line[len("note: "):] for line in lines
                                  if line.startswith("note: ")))


def tail(path: Path, n: int) -> List[str]:
    if not path.exists():
        return []
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 200 * n))
        return file.read().decode(errors="replace").splitlines()[-n:]


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def slowness() -> float:
    """Returns how many times slower than a quiet machine of SPEED_SECONDS this
    one is now, or will be as others get their share; 1 if it is faster."""
    start = time.monotonic()
    subprocess.run(["/bin/sh", "-c", "i=0; while test $((i += 1)) -le "
                    f"{SPEED_PROGRAMS}; do /bin/true; done"], check=True)
    return max((time.monotonic() - start) / SPEED_SECONDS,
               1 + os.getloadavg()[0] / len(os.sched_getaffinity(0)))


class Line:
    """The line that moves."""

    def __init__(self) -> None:
        self.tty = sys.stdout.isatty()
        self.interval = 0.5 if self.tty else 25.0
        self.start = self.shown = time.monotonic()

    def say(self, text: str = "") -> None:
        print(("\r\033[K" if self.tty else "") + text, flush=True)

    def update(self, running: List[Running]) -> None:
        now = time.monotonic()
        if now < self.shown + self.interval:
            return
        self.shown = now
        text = f"{minutes(now - self.start):>5}  " \
            + "; ".join(one.doing() for one in running)
        if self.tty:
            text = text[:shutil.get_terminal_size().columns - 1]
            print(f"\r{text}\033[K", end="", flush=True)
        else:
            print(text, flush=True)

    def conclude(self, one: Running) -> None:
        """Says how a stage has ended, and shows the end of its logs if it
        failed."""
        self.say("{}: {:,} passed, {} failed, {} skipped in {}".format(
            one.name, *one.counts(), minutes(one.took))
            + (f"; {one.why}" if one.why else ""))
        for log in (one.log, one.console) if one.count(FAIL) else ():
            lines = tail(log, TAIL)
            if lines:
                self.say(f"  the end of {log}:\n"
                         + textwrap.indent("\n".join(lines), "    "))


def run_together(stages: List[Running], line: Line) -> None:
    """Runs 'stages' and returns when all of them have ended."""
    running = list(stages)
    try:
        for one in stages:
            one.start()
        while running:
            time.sleep(0.2)
            for one in list(running):
                assert one.process
                one.look()
                why = ""
                if one.process.poll() is None:
                    if time.monotonic() < one.moved + one.limit:
                        continue
                    why = f"no test has ended for {one.limit:.0f} s"
                    one.terminate()
                    one.stop()
                running.remove(one)
                one.end(why)
                line.conclude(one)
            if running:
                line.update(running)
    except BaseException:
        # Once is enough.
        for signo in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            signal.signal(signo, signal.SIG_IGN)
        line.say("stopping")
        for one in running:
            one.terminate()
        for one in running:
            one.stop()
        raise


def show(title: str, lines: List[str]) -> None:
    if lines:
        print("\n  ".join([f"\n{title}:", *lines]))


def named(ran: List[Running], status: str) -> List[str]:
    """Names the tests of 'status'; where a stage has skipped many for the same
    reason, says how many."""
    lines: List[str] = []
    for one in ran:
        by_detail: Dict[str, List[str]] = {}
        for test, result in one.results.items():
            if result.status == status:
                by_detail.setdefault(result.detail, []).append(test)
        for detail, tests in by_detail.items():
            if status == SKIP and detail and len(tests) > 5:
                tests = [f"{len(tests):,} tests"]
            lines += [f"{one.name}: {test}"
                      + (f"  ({detail})" if detail else "") for test in tests]
    return lines


def summarize(ran: List[Running], took: float) -> int:
    row = "  {:9}{:7,}{:8}{:9}{:>7}"
    print(f"\n{'Summary':11}{'passed':>7}{'failed':>8}{'skipped':>9}"
          f"{'time':>7}")
    for one in ran:
        print(row.format(one.name, *one.counts(), minutes(one.took))
              + (f"  {one.why}" if one.why else ""))
    n = [sum(counts) for counts in zip(*(one.counts() for one in ran))]
    print(row.format("all", *n, minutes(took)))
    show("Notes", [f"{one.name}: {note}" for one in ran
                   for note in one.notes()])
    show("Skipped", named(ran, SKIP))
    show("Failed", named(ran, FAIL)
         + [f"  see {one.log}" for one in ran if one.count(FAIL)])
    print("\n{} passed, {} failed, {} skipped".format(*n))
    return 1 if n[1] or not n[0] else 0


def inside(stage: Stage, args: argparse.Namespace) -> Optional[int]:
    """Does the work of 'stage'."""
    job = Job(stage.name, args)
    if isinstance(stage.run, list):
        command = [word.format(ovs=args.ovs) for word in stage.run]
        program = str(t.TOP / "tools" / command[0])
        os.execv(program, [program, *command[1:], "--results",
                           str(job.file)])
    try:
        return stage.run(job)
    except CanNotRun as error:
        print(f"{stage.name}: not run, {error}")
        job.add("all tests", *(
            suites.demanded(str(error)) if args.require and stage.required
            else Result(SKIP, str(error))))
        return 77


def main() -> Optional[int]:
    known = {stage.name: stage for stage in STAGES}
    parser = argparse.ArgumentParser(
        prog="check.py", description=__doc__,
        usage="%(prog)s [OPTION]... BUILD [STAGE]... [-- TESTSUITEFLAGS...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="stages:\n" + "\n".join(textwrap.fill(
            f"  {stage.name:10}{stage.what}", 79, subsequent_indent=" " * 12)
            for stage in STAGES))
    parser.add_argument("build", type=Path, metavar="BUILD",
                        help="directory with the built tree 'ovs', or a tree")
    parser.add_argument("stages", nargs="*", metavar="STAGE",
                        help="run only these")
    for option, text in (
            ("all", "run all tests of the stages, not only those that tell "
             "most, and stages exporter and lint"),
            ("ours", "run none of Open vSwitch's own tests"),
            ("upstream", "run Open vSwitch's own tests in stages system, dpdk "
             "and kernel, too"),
            ("long", "take a quarter of an hour for changes under load in "
             "stage dpdk, test against a Prometheus 3, too, in stage exporter,"
             " and with --all, run stage long"),
            ("require", "a test that is skipped or missing has failed: in "
             "stage suite, one of this project")):
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
        if name not in known:
            parser.error(f"there is no stage '{name}'; there are "
                         + ", ".join(known))
    for name in "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "TESTSUITEFLAGS":
        os.environ.pop(name, None)      # They are for this make alone.
    autotest.terminate_on_sigterm()
    if args.inside:
        return inside(known[args.inside], args)
    if args.flags:
        args.stages = args.stages[:1] or ["suite"]
        if isinstance(known[args.stages[0]].run, suites.Tests):
            return inside(known[args.stages[0]], args)
    (args.build / "log").mkdir(parents=True, exist_ok=True)

    slow = slowness()
    if slow >= 4:
        print(f"this machine is slow or busy: its tests get {slow:.0f} times "
              "as long")
    env = {**os.environ, "KERNEL_VM_BOOT": f"{BOOT * slow:.0f}",
           "OVS_CTL_TIMEOUT": f"{min(30 * slow, 300):.0f}"}
    runs = ["check", *(["all"] if args.all else []),
            *(["long"] if args.all and args.long else [])]
    chosen = args.stages or [
        stage.name for stage in STAGES if stage.runs in runs
        and (stage.name != "dpdk" or args.require
             or suites.has_dpdk(args.ovs))]
    line = Line()
    ran: List[Running] = []
    try:
        for _, group in groupby([s for s in STAGES if s.name in chosen],
                                lambda s: s.together or s.name):
            stages = [Running(stage, args.build, words, stage.limit * slow
                              * (5 if args.long else 1), env)
                      for stage in group]
            ran += stages
            run_together(stages, line)
    except KeyboardInterrupt:
        line.say("interrupted")
        return 130
    with open(args.build / "check.result", "w", encoding="utf-8") as out:
        for one in ran:
            if args.require and one.stage.required and not isinstance(
                    one.stage.run, suites.Tests):
                one.demand()
            for name, result in one.results.items():
                out.write("\t".join((result.status, one.name, name,
                                     result.detail)) + "\n")
    return summarize(ran, time.monotonic() - line.start)


if __name__ == "__main__":
    t.run_main(main)
