# SPDX-License-Identifier: Apache-2.0
"""ovs-cost top: what the last interval was spent on."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ovs.cost import model, text
from ovs.cost.model import Body, Key, Window
from ovs.cost.record import Poller, warn
from ovs.cost.target import Target

MAX_NAME = 30                   # Columns of a name.
SORTS = ("time", "events", "p99", "max", "name")
HELP = ("0 all  1-5 one report  tab next  s sort  t threads  c classes  "
        "p pause  q quit")

CLEAR, HOME, CLEAR_LINE = "\x1b[2J", "\x1b[H", "\x1b[K"
ALTERNATE, MAIN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
REVERSE, NORMAL = "\x1b[7m", "\x1b[0m"


class View:
    """What is shown, and how."""

    def __init__(self, reports: Sequence[str]) -> None:
        self.reports = list(reports)
        self.report: Optional[str] = None       # None: all of them.
        self.sort = SORTS[0]
        self.threads = True
        self.classes = True
        self.paused = False

    def key(self, key: str) -> bool:
        """Obeys a key.  Returns false if it says to quit."""
        if key in ("q", "\x03", "\x04"):
            return False
        elif key == "0":
            self.report = None
        elif key.isdigit() and 0 < int(key) <= len(self.reports):
            self.report = self.reports[int(key) - 1]
        elif key == "\t":
            order = [None] + self.reports
            self.report = order[(order.index(self.report) + 1) % len(order)]
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == "t":
            self.threads = not self.threads
        elif key == "c":
            self.classes = not self.classes
        elif key in ("p", " "):
            self.paused = not self.paused
        return True


class Row(NamedTuple):
    name: str
    body: Body


def _number(row: Row, sort: str) -> float:
    whole = row.body.whole
    if sort == "events":
        return row.body.events
    if sort in ("p99", "max") and whole and whole.count:
        return whole.percentile(99) if sort == "p99" else whole.max
    return row.body.time_ns


def ordered(rows: List[Row], sort: str) -> List[Row]:
    if sort == "name":
        return sorted(rows, key=lambda r: r.name)
    return sorted(rows, key=lambda r: (-_number(r, sort), r.name))


def table(title: str, rows: List[Row], seconds: float, sort: str,
          shares: bool = True) -> List[str]:
    """Returns a table of who took how much, with shares unless one may be
    part of another."""
    whole_time = sum(r.body.time_ns for r in rows)
    names = [text.printable(r.name) for r in rows]
    width = min(max([len(n) for n in names] + [12]), MAX_NAME)
    lines = [f"  {title:{width}} " + (f"{'share':>6} " if shares else "")
             + f"{'ms/s':>7} {'events/s':>9} {'p50 (us)':>8} {'p99':>8} "
             f"{'max':>8} {'lost':>5}"]
    for name, body in ordered(rows, sort):
        whole = body.whole
        name = text.printable(name)
        if len(name) > width:
            name = name[:width - 3] + "..."
        share = 100 * body.time_ns / whole_time if whole_time else 0.0
        times = (["-"] * 3 if whole is None or not whole.count else
                 [text.us(whole.percentile(50)), text.us(whole.percentile(99)),
                  text.us(whole.max)])
        lines.append(
            f"  {name:{width}} " + (f"{share:5.1f}% " if shares else "")
            + f"{text.real(body.time_ns / seconds / 1e6):>7} "
            f"{text.real(body.events / seconds):>9} "
            + " ".join(f"{t:>8}" for t in times)
            + f" {text.count(body.lost):>5}")
    return lines


def render(windows: Dict[Tuple[str, str], Window], view: View) -> List[str]:
    """Returns the lines of what happened, by target and report."""
    lines: List[str] = []
    targets = sorted({target for target, _ in windows})
    for target in targets:
        if len(targets) > 1:
            lines += ([""] if lines else []) + [text.printable(target)]
        if view.report is None:
            rows, seconds = [], 0.0
            for report in view.reports:
                window = windows.get((target, report))
                if window:
                    seconds = max(seconds, window.seconds)
                    rows += [Row(model.kind_title(k), a.total) for k, a
                             in window.totals.items() if a.total.events]
            if rows:
                lines += table("what", rows, seconds, view.sort, False)
            else:
                lines.append("  nothing happened")
            continue
        window = windows.get((target, view.report))
        if not window:
            lines.append(f"  nothing known of {view.report} in this interval")
            continue
        lines += _one_report(window, view)
    return lines


def _one_report(window: Window, view: View) -> List[str]:
    """Returns the lines of one report."""
    lines: List[str] = []
    for key, total in sorted(window.totals.items()):
        if total.total.is_empty:
            continue
        lines += ([""] if lines else []) + [
            f"  {model.kind_title(key)}: {text.count(total.total.events)} in "
            f"{window.seconds:.1f} s" + text.lost(total.total)]
        noun = model.OBJECTS.get(window.report, "account")
        rows = [Row(k.name, a.total) for k, a in window.accounts.items()
                if model.sum_key(a) == key and a.total.events]
        lines += table(noun, rows, window.seconds, view.sort)
        if view.classes:
            lines += table("class", [Row(n, b) for n, b
                                     in total.classes.items() if b.events],
                           window.seconds, view.sort)
        if view.threads:
            lines += _threads(window, key, view)
        lines += text.table(total.total, False)
        if any(not s.is_time for s in total.total.stages.values()):
            lines += text.table(total.total, True)
        lines += text.groups(total.total)
    for note in window.notes:
        lines.append(f"  ({text.printable(note)})")
    return lines or ["  nothing happened"]


def _threads(window: Window, key: Key, view: View) -> List[str]:
    threads: Dict[str, Body] = {}
    for account in window.accounts.values():
        if model.sum_key(account) == key:
            for name, body in account.threads.items():
                threads.setdefault(name, Body(key.kind)).merge(body)
    rows = [Row(n, b) for n, b in threads.items() if b.events]
    return table("thread", rows, window.seconds, view.sort) if rows else []


class Watch:
    """Polls targets, and keeps the last two replies of each report."""

    def __init__(self, targets: List[Target], reports: Sequence[str],
                 accounts: int) -> None:
        self.pollers = [Poller(t, reports, accounts) for t in targets]
        self.last: Dict[Tuple[str, str, bool], model.Reply] = {}
        self.windows: Dict[Tuple[str, str], Window] = {}
        self.errors: List[str] = []

    def poll(self, view: View) -> None:
        """Reads the reports that are shown, threads only if there is one;
        'windows' is what happened since last time."""
        self.windows = {}
        self.errors = []
        one = view.report is not None
        last, self.last = self.last, {}
        for poller in self.pollers:
            name = poller.target.name
            for line in poller.shows([view.report] if view.report
                                     else view.reports, "-hist",
                                     *(["-thread"] if one else [])):
                if "reply" not in line:
                    continue
                reply = model.Reply.from_json(line["reply"])
                key = (name, reply.report, one)
                if key in last:
                    self.windows[name, reply.report] = model.between(
                        last[key], reply)
                self.last[key] = reply
            if poller.failed:
                self.errors.append(poller.failed)


def title(watch: Watch, view: View, interval: float) -> str:
    names = ", ".join(text.printable(p.target.name) for p in watch.pollers)
    return (f"ovs-cost top: {names}, {time.strftime('%H:%M:%S')}, every "
            f"{interval:g} s, {view.report or 'all'} by {view.sort}"
            + (", paused" if view.paused else ""))


def run_batch(watch: Watch, view: View, interval: float,
              count: Optional[int]) -> int:
    """Prints 'count' intervals, or does so until it is interrupted."""
    n = 0
    watch.poll(view)
    for error in watch.errors:
        warn(error)
    try:
        while count is None or n < count:
            time.sleep(interval)
            watch.poll(view)
            n += 1
            print(title(watch, view, interval))
            if watch.windows:
                print("\n".join(render(watch.windows, view)))
            for error in watch.errors:
                print(f"  {text.printable(error)}")
            print(flush=True)
    except KeyboardInterrupt:
        pass
    return 2 if watch.errors else 0


def _draw(watch: Watch, view: View, interval: float) -> None:
    size = shutil.get_terminal_size()
    lines = [title(watch, view, interval), HELP, ""]
    lines += [f"  {text.printable(e)}" for e in watch.errors]
    if watch.windows:
        lines += render(watch.windows, view)
    elif not watch.errors:
        lines.append("  waiting for the first interval")
    lines = [line[:size.columns] for line in lines[:size.lines]]
    lines[0] = REVERSE + lines[0].ljust(size.columns) + NORMAL
    sys.stdout.write(HOME + "\r\n".join(line + CLEAR_LINE for line in lines)
                     + "\x1b[J")
    sys.stdout.flush()


def run_terminal(watch: Watch, view: View, interval: float,
                 count: Optional[int]) -> int:
    """Shows intervals on the terminal and obeys keys."""
    fd = sys.stdin.fileno()
    saved = termios.tcgetattr(fd)
    sys.stdout.write(ALTERNATE + CLEAR)
    n = -1                              # The first reply is no interval.
    try:
        tty.setcbreak(fd)
        due = time.monotonic()
        while count is None or n < count:
            if time.monotonic() >= due and not view.paused:
                watch.poll(view)
                due = max(due + interval, time.monotonic())
                n += 1
            _draw(watch, view, interval)
            left = due - time.monotonic()
            wait = None if view.paused else max(left, 0)
            if select.select([fd], [], [], wait)[0]:
                keys = os.read(fd, 64).decode(errors="replace")
                report = view.report
                if not keys or not all(view.key(k) for k in keys):
                    break
                if view.report != report and not view.paused:
                    # A first reply now, and what there is soon.
                    watch.poll(view)
                    due = time.monotonic() + min(interval, 0.5)
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, saved)
        sys.stdout.write(MAIN)
        sys.stdout.flush()
    return 0


def run(targets: List[Target], reports: Sequence[str], accounts: int,
        interval: float, count: Optional[int], batch: bool) -> int:
    watch = Watch(targets, reports, accounts)
    view = View(reports)
    if batch:
        if len(reports) == 1:
            view.report = reports[0]
        return run_batch(watch, view, interval, count)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        warn("this is no terminal: use --batch")
        return 2
    return run_terminal(watch, view, interval, count)
