# SPDX-License-Identifier: Apache-2.0
"""ovs-cost top: what the last interval was spent on."""

from __future__ import annotations

import itertools
import os
import re
import select
import shutil
import sys
import termios
import textwrap
import time
import tty
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ovs.cost import doctor, model, rules, text
from ovs.cost.model import Body, Window
from ovs.cost.record import Poller, warn
from ovs.cost.recording import Recording
from ovs.cost.rules import Case
from ovs.cost.target import Target

MAX_NAME = 30                   # Columns of a name.
SORTS = ("time", "events", "p99", "max", "name")
HELP = """  0: all reports   1 to 5, Tab: one report, the next one
  s: sort by time, events, p99, max or name   t, c: with threads, classes
  arrows, PgUp, PgDn: scroll   p: pause   h: help   q: quit

  ~ is an estimate: from a sample, or to the edge of a bucket.
  "mostly" is a reason for which much is lost or refused, or a port or rule
  that most are of, or the stage that takes most of the time.
  The first line is what ovs-cost doctor says of the last 10 s.""".splitlines()

# Columns after the name, and their widths; which are left out first if a
# terminal is narrow.
COLUMNS = {"share": 6, "ms/s": 8, "mostly": 17, "events/s": 9, "p50 (us)": 8,
           "p99 (us)": 8, "max (us)": 9, "lost": 5}
SPARED = ("p50 (us)", "lost", "share", "p99 (us)", "max (us)", "events/s")
VERDICT_S = 10.0                # The doctor looks back so far.
TOGGLES = {"t": "threads", "c": "classes", "p": "paused", " ": "paused",
           "h": "help"}
KEYS = r"\x1b(?:\[[0-9;]*|O)[A-Za-z~]|."

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
        self.help = False
        self.columns = 0                # Of the terminal; 0: any number.
        self.offset = 0                 # Lines that are scrolled away.
        self.page = 1                   # Lines that are seen.

    def key(self, key: str) -> bool:
        """Obeys a key.  Returns false if it says to quit."""
        report = self.report
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
        elif key in TOGGLES:
            setattr(self, TOGGLES[key], not getattr(self, TOGGLES[key]))
        elif key[:1] == "\x1b":
            self.offset = max(self.offset + {
                "A": -1, "B": 1, "5": -self.page, "6": self.page}.get(
                    key.rstrip("~")[-1], 0), 0)
        if self.report != report:
            self.offset = 0
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


def _own(row: Row) -> bool:
    """Returns true if 'row' is of commands that this program executes."""
    return row.name.startswith("cost/") or "/cost-" in row.name


def ordered(rows: List[Row], sort: str) -> List[Row]:
    return sorted(rows, key=lambda r: (
        _own(r), 0 if sort == "name" else -_number(r, sort), r.name))


def mostly(body: Body, tops: Sequence[List[Dict[str, Any]]] = ()) -> str:
    """Returns what there is most of in 'body', of which 'tops' are rows of
    ports and the like."""
    bad = {name: n / max(body.events, 1)
           for group, members in body.counters.items()
           for name, n in members.items()
           if group in ("lost", "packets dropped") or name == "flow-limit"}
    time_ns = sum(stage.sum for _, stage in body.parts()) or 1
    for shares, least in (
            (bad, rules.REFUSED),
            ({row["name"].split(" ")[-1]: row["share"] for rows in tops
              for row in rows if len(rows) > 2 and row["least"] > rules.MOST},
             rules.MOST),
            ({name: s.sum / time_ns for name, s in body.parts()}, 0.0)):
        name = model.most(shares)
        if shares.get(name, 0) > least:
            return f"{_cut(text.printable(name), 12)} {shares[name]:.0%}"
    return ""


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[:width - 3] + "..."


def table(title: str, rows: List[Row], seconds: float, view: View,
          tops: Optional[Dict[str, str]] = None) -> List[str]:
    """Returns a table of who took how much.  If 'tops' says what they were
    mostly, one may be part of another, and there are no shares."""
    whole_time = sum(r.body.time_ns for r in rows) or 1
    longest = max([len(text.printable(r.name)) for r in rows] + [12])
    columns = [c for c in COLUMNS if c != "share" or tops is None]
    width = min(longest, MAX_NAME)
    if view.columns:
        def room() -> int:
            return view.columns - 2 - sum(1 + COLUMNS[c] for c in columns)
        for spared in SPARED:
            if room() < width and spared in columns:
                columns.remove(spared)
        width = min(longest, max(room(), 8))
    lines = [f"  {title:{width}}" + "".join(
        f" {c:>{COLUMNS[c]}}" for c in columns)]
    for name, body in ordered(rows, view.sort):
        whole = body.whole
        known = whole if whole and whole.count else None
        cells = {
            "share": f"{body.time_ns / whole_time:.1%}",
            "ms/s": text.estimate(whole, body.events)
            + text.real(body.time_ns / seconds / 1e6),
            "mostly": (tops or {}).get(name) or mostly(body),
            "events/s": text.real(body.events / seconds),
            "p50 (us)": text.us(known.percentile(50)) if known else "-",
            "p99 (us)": text.us(known.percentile(99)) if known else "-",
            "max (us)": ("" if known.max_exact else "~") + text.us(known.max)
            if known else "-",
            "lost": text.count(body.lost)}
        lines.append(f"  {_cut(text.printable(name), width):{width}}"
                     + "".join(f" {cells[c]:>{COLUMNS[c]}}" for c in columns))
    return lines


def render(cases: Dict[str, Case], view: View) -> List[str]:
    """Returns the lines of what happened, by target."""
    lines: List[str] = []
    for target, case in sorted(cases.items()):
        if len(cases) > 1:
            lines += ([""] if lines else []) + [text.printable(target)]
        if view.report is None:
            rows, seconds = [], 0.0
            for window in case.windows.values():
                seconds = max(seconds, window.seconds)
                rows += [Row(model.kind_title(k), a.total) for k, a
                         in window.totals.items() if a.total.events]
            upcalls = [case.tops.get(f"upcall {what}", [])
                       for what in ("port", "rule")]
            lines += (table("what", rows, seconds, view, {
                name: mostly(body, upcalls if body.kind == "upcall" else ())
                for name, body in rows}) if rows else ["  nothing happened"])
            continue
        window = case.windows.get(view.report)
        lines += (_one_report(window, view) if window else
                  [f"  nothing known of {view.report} in this interval"])
    return lines


def _one_report(window: Window, view: View) -> List[str]:
    """Returns the lines of one report."""
    lines: List[str] = []
    for key, total in sorted(window.totals.items(),
                             key=lambda i: -i[1].total.time_ns):
        if total.total.is_empty:
            continue
        lines += ([""] if lines else []) + [
            f"  {model.kind_title(key)}: {text.count(total.total.events)} in "
            f"{window.seconds:.1f} s" + text.lost(total.total)]
        noun = model.OBJECTS.get(window.report, "account")
        rows = [Row(k.name, a.total) for k, a in window.accounts.items()
                if model.sum_key(a) == key and a.total.events]
        lines += table(noun, rows, window.seconds, view)
        if view.classes:
            lines += table("class", [Row(n, b) for n, b
                                     in total.classes.items() if b.events],
                           window.seconds, view)
        if view.threads:
            threads = [Row(n, b) for n, b in model.threads(
                a for a in window.accounts.values()
                if model.sum_key(a) == key).items() if b.events]
            lines += table("thread", threads, window.seconds, view
                           ) if threads else []
        lines += text.table(total.total) + text.groups(total.total)
    for note in window.notes:
        lines.append(f"  ({text.printable(note)})")
    return lines or ["  nothing happened"]


class Watch:
    """Polls targets, and keeps what they have replied lately."""

    def __init__(self, targets: List[Target], reports: Sequence[str],
                 accounts: int) -> None:
        self.pollers = [Poller(t, reports, accounts) for t in targets]
        self.rounds: List[Tuple[float, Recording]] = []
        self.cases: Dict[str, Case] = {}        # Since the last round.
        self.findings: List[Dict[str, Any]] = []
        self.errors: List[str] = []
        self.off: List[str] = []                # Without accounting.

    def poll(self) -> None:
        now = Recording()
        for poller in self.pollers:
            for line in poller.round(False):
                if "reply" in line:
                    now.add(f"/{poller.target.name}", line["reply"])
        self.errors = [p.failed for p in self.pollers if p.failed]
        self.rounds.append((time.monotonic(), now))
        while (len(self.rounds) > 2
               and self.rounds[1][0] < self.rounds[-1][0] - VERDICT_S):
            self.rounds.pop(0)
        if len(self.rounds) > 1:
            self.cases = {source[1:]: case for source, case
                          in doctor.cases(now.after(self.rounds[-2][1]))}
            self.findings = doctor.findings(now.after(self.rounds[0][1]))
            self.off = doctor.off(now)

    @property
    def verdict(self) -> str:
        """What the doctor says, in a line."""
        if not self.cases:
            return "" if self.errors else "waiting for the first interval"
        if not self.findings:
            return "; ".join(self.off) or (
                "nothing is wrong, as far as ovs-cost doctor can see")
        line = next(doctor.render(self.findings, len(self.cases) > 1))
        more = f" (and {len(self.findings) - 1} more)"
        return line + more * (len(self.findings) > 1)


def title(watch: Watch, view: View) -> str:
    seconds = max((window.seconds for case in watch.cases.values()
                   for window in case.windows.values()), default=0.0)
    return (f"ovs-cost top: {time.strftime('%H:%M:%S')}, last {seconds:.1f} s,"
            f" {view.report or 'all'} by {view.sort}"
            + (", paused, " if view.paused else ", ")
            + ", ".join(text.printable(p.target.name) for p in watch.pollers))


def run_batch(watch: Watch, view: View, interval: float,
              count: Optional[int]) -> int:
    """Prints 'count' intervals, or does so until it is interrupted."""
    watch.poll()
    for error in watch.errors:
        warn(error)
    try:
        for _ in itertools.count() if count is None else range(count):
            time.sleep(interval)
            watch.poll()
            lines = [title(watch, view), watch.verdict]
            lines += [f"  {text.printable(e)}" for e in watch.errors]
            print("\n".join(lines + render(watch.cases, view)) + "\n",
                  flush=True)
    except KeyboardInterrupt:
        pass
    return 2 if watch.errors else 0


def screen(watch: Watch, view: View, columns: int, rows: int) -> List[str]:
    """Returns the lines of a terminal of that size."""
    view.columns = columns
    head = [title(watch, view)] + textwrap.wrap(watch.verdict, columns)[:3]
    body = HELP if view.help else [
        f"  {text.printable(e)}" for e in watch.errors
    ] + render(watch.cases, view)
    view.page = max(rows - len(head) - 1, 1)
    view.offset = max(min(view.offset, len(body) - view.page), 0)
    more = len(body) - view.offset - view.page
    last = f"-- {more} more lines: Down, PgDn --" if more > 0 else "h: help"
    shown = body[view.offset:view.offset + view.page]
    shown += [""] * (view.page - len(shown))
    return [line[:columns] for line in head + shown + [last]][:rows]


def _draw(watch: Watch, view: View) -> None:
    size = shutil.get_terminal_size()
    lines = screen(watch, view, size.columns, size.lines)
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
                watch.poll()
                due = max(due + interval, time.monotonic())
                n += 1
            _draw(watch, view)
            # The terminal may have another size soon.
            left = due - time.monotonic()
            wait = 0.5 if view.paused else min(max(left, 0), 0.5)
            if select.select([fd], [], [], wait)[0]:
                keys = os.read(fd, 64).decode(errors="replace")
                if not keys or not all(map(view.key,
                                           re.findall(KEYS, keys, re.S))):
                    break
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
        warn("this is not a terminal: use --batch")
        return 2
    return run_terminal(watch, view, interval, count)
