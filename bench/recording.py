# SPDX-License-Identifier: Apache-2.0
"""What it costs a switch to be recorded by ovs-cost, or scraped.

A switch with dummy ports, in which every port sends and receives, is left
alone and recorded in turns.  With --exporter, the metrics of ovs-cost-exporter
are got each second instead, and each time it has to ask the switch.  What the
switch's threads run meanwhile is what the kernel says
(/proc/PID/task/*/schedstat).  How long the main thread is held up by a request
is the stage 'appctl' of its loop, as bridge/cost-show has it, which is the
time of all requests of one iteration.  Percentiles are of all iterations, with
a request or without.  Of the requests, two are of this program, which asks for
that.
"""

from __future__ import annotations

import http.client
import re
import time
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from bench.machine import Threads
from bench.report import Context
from tools.switch import Failed, Process, Switch

N_FLOWS = 200                   # New ones of each port, before it starts.
EXPORTER = "127.0.0.1:10475"
schedstat = Threads.schedstat
# The options of bench/run.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "--exporter": dict(type=Path, metavar="PROGRAM", help="recording: this "
                       "ovs-cost-exporter is scraped each second instead"),
}


class Sample(NamedTuple):
    """What was run in one stretch of time, in ns."""
    seconds: float
    main: int                   # By the switch's main thread.
    all: int                    # By all of its threads.
    recorder: int               # By ovs-cost or the exporter.


class RecordedSwitch(Switch):
    """A switch of 'n_ports' dummy ports."""

    def __init__(self, tree: Path, directory: Path, n_ports: int) -> None:
        super().__init__(tree, directory,
                         options=["--enable-dummy", "--disable-system"])
        self.start_with_bridge("dummy")
        self.add_ports((f"p{i}" for i in range(n_ports)), "type=dummy")
        self.add_flows(*(f"in_port=p{i},actions=output:p{(i + 1) % n_ports}"
                         for i in range(n_ports)))
        self.appctl("upcall/disable-megaflows")
        for i in range(n_ports):
            for first in range(0, N_FLOWS, 50):
                self.appctl("netdev-dummy/receive", f"p{i}", *[
                    f"50540000000a5054{i:04x}{n:04x}1234" + "00" * 46
                    for n in range(first, first + 50)])

    def ran(self) -> Dict[int, int]:
        """Returns what each thread has run, in ns."""
        return {int(task.name): schedstat([task])[0]
                for task in Threads(self.vswitchd.pid).find("")}

    def sample(self, seconds: float, recorder: Optional[Process] = None,
               visit: Optional[Callable[[], None]] = None) -> Sample:
        """Measures 'seconds', while 'recorder' runs, which is stopped then,
        and 'visit' is called each second."""
        if recorder:
            time.sleep(3)               # It has started by now.
        before, start = self.ran(), time.monotonic()
        own = schedstat([Path(f"/proc/{recorder.pid}")])[0] if recorder else 0
        while visit and time.monotonic() < start + seconds:
            visit()
            time.sleep(1 - (time.monotonic() - start) % 1)
        time.sleep(max(0, start + seconds - time.monotonic()))
        after, end = self.ran(), time.monotonic()
        if recorder:
            own = schedstat([Path(f"/proc/{recorder.pid}")])[0] - own
            recorder.check()
            recorder.stop()
            self.processes.remove(recorder)
        pid = self.vswitchd.pid
        return Sample(end - start, after[pid] - before[pid],
                      sum(ns - before.get(tid, 0)
                          for tid, ns in after.items()), own)

    def export(self, program: Path) -> Process:
        # What was read is too old in a second, however long that took.
        return self.spawn("exporter", [
            str(program), f"--web.listen-address={EXPORTER}",
            "--ovs.interval=500ms", f"--ovs.target={self.control}"])

    def held_up(self) -> Dict[str, float]:
        """Returns what requests took of iterations of the main loop, since
        bridge/cost-clear, in ns."""
        found: Dict[str, float] = next(
            a for a in self.accounts("bridge", "main-loop")
            if a["kind"] == "iteration")["stages"]["appctl"]
        return found


def scrape() -> bytes:
    """Returns the metrics that the exporter has."""
    connection = http.client.HTTPConnection(EXPORTER, timeout=10)
    try:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read()
    except OSError as e:
        raise Failed(f"the exporter does not answer: {e}") from None
    finally:
        connection.close()
    if not re.search(rb"^ovs_cost_up({.*})? 1$", page, re.MULTILINE):
        raise Failed("the exporter has no metrics of the switch")
    return page


def check_refreshed(pages: List[bytes]) -> None:
    """Raises Failed unless the exporter has asked for each of 'pages'."""
    match = re.search(rb"^ovs_cost_refreshes_total({.*})? (.*)$", pages[-1],
                      re.MULTILINE)
    if not match or float(match.group(2)) != len(pages):
        raise Failed(f"{len(pages)} scrapes, but refreshes: "
                     f"{match.group(2).decode() if match else 'none'}")


def measure(context: Context, n_ports: int) -> None:
    """Measures what each interval of the recording takes."""
    args = context.args
    interval, seconds = 1.0, 5 if args.quick else 20
    directory = context.directory / str(n_ports)
    with RecordedSwitch(context.ovs, directory, n_ports) as switch:
        alone, recorded, held_up = [], [], []
        sizes: List[float] = []
        for i in range(context.choose("pairs", 3, 1)):
            alone.append(switch.sample(seconds))
            switch.appctl("bridge/cost-clear")
            pages: List[bytes] = []
            if args.exporter:
                recorded.append(switch.sample(
                    seconds, switch.export(args.exporter.resolve()),
                    lambda: pages.append(scrape())))
                check_refreshed(pages)
                sizes += map(len, pages)
            else:
                path = directory / f"{i}.jsonl.gz"
                recorded.append(switch.sample(
                    seconds, switch.record(path, "-i", "1")))
                sizes.append(path.stat().st_size / ((seconds + 3) / interval))
            held_up.append(switch.held_up())
            context.progress(f"{n_ports} ports, pair {i + 1}")

    def more(field: str) -> float:
        """Returns microseconds for each interval of the recording."""
        return median((getattr(r, field) / r.seconds
                       - getattr(a, field) / a.seconds) * interval / 1e3
                      for a, r in zip(alone, recorded))

    for unit, what, value in (
            ("us", "all threads", more("all")),
            ("us", "main thread", more("main")),
            ("us", "held up, p99", median(h["p99"] for h in held_up) / 1e3),
            ("us", "held up, most", max(h["max"] for h in held_up) / 1e3),
            ("% of a CPU", "alone",
             median(a.all / a.seconds for a in alone) / 1e7),
            ("% of a CPU", "more", more("all") / interval / 1e4),
            ("% of a CPU", "recorder",
             median(r.recorder / r.seconds for r in recorded) / 1e7),
            ("kB", "size", median(sizes) / 1e3)):
        context.add(f"{n_ports} ports", unit, what, value)


def run(context: Context) -> None:
    for n_ports in context.args.ports or [4, 100]:
        measure(context, n_ports)
