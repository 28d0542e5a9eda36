# SPDX-License-Identifier: Apache-2.0
"""What USDT probes cost, with and without a tracer attached.

Compares a tree that was built without probes, STOCKDIR, with one that has
them, OVSDIR: of the same source, both with DPDK, the former configured with
--disable-usdt-probes.

Two things are measured.  One is the storm of new flows of "upcalls": four
probes fire for each packet, twice in a stage.  The other is forwarding of 64
flows from one DPDK port to another one: a probe fires for each burst that is
received, and three for each that is sent.  For each of them, these variants
are compared, accounting being off except in the last one:

  without   built without probes
  with      built with probes, nothing attached
  attached  bpftrace counts how often each of the probes fires
  cost      nothing attached, accounting on, as by default

Each run starts new processes and has every variant twice, in an order that is
the same backwards.  The counts of bpftrace have to be equal to the number of
upcalls, and of bursts.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Callable, Dict, List

import upcalls
from machine import Cores, HugePages, NotHere, choose_cores
from packets import write_capture
from report import Context, Result, ratio_line, table
from switch import Failed, Process, wait_until
from upcalls import PAGES_PER_SWITCH, StormSwitch, Variant

WITHOUT, WITH, ATTACHED, COST = "without", "with", "attached", "cost"
VARIANTS = [WITHOUT, WITH, ATTACHED, COST]
BASES = {WITH: WITHOUT, ATTACHED: WITH, COST: WITH}     # Of their ratios.
N_FORWARDED_FLOWS = 64
SECONDS = 1.5                   # Of forwarding, for each figure.

UPCALL_PROBES = ["handle_packet_upcall:entry", "handle_packet_upcall:exit",
                 "upcall_cb:translate_start", "upcall_cb:translate_done"]
FORWARD_PROBES = ["netdev_dpdk_rxq_recv:rx_burst"] + [
    f"dp_netdev_pmd_flush_output_on_port:{name}"
    for name in ("flush", "tx_burst_start", "tx_burst_done")]


class Tracer:
    """bpftrace that counts how often each of 'probes' fires."""

    def __init__(self, switch: StormSwitch, probes: List[str]) -> None:
        self.switch = switch
        self.probes = probes

    def __enter__(self) -> Tracer:
        pid = self.switch.vswitchd.pid
        binary = os.path.realpath(f"/proc/{pid}/exe")
        script = "BEGIN { printf(\"started\\n\"); } " + " ".join(
            f"usdt:{binary}:{probe} {{ @p{i} = count(); }}"
            for i, probe in enumerate(self.probes))
        self.bpftrace = Process(
            "bpftrace", ["bpftrace", "-p", str(pid), "-e", script],
            dict(os.environ), self.switch.directory / "bpftrace.out")

        def started() -> bool:
            self.bpftrace.check()
            return "started" in self.bpftrace.tail()
        try:
            wait_until(started, "bpftrace")
            time.sleep(1)       # It starts to attach now.
        except BaseException:
            self.bpftrace.stop()
            raise
        return self

    def counts(self) -> List[int]:
        """Ends counting and returns the counts."""
        self.bpftrace.popen.send_signal(signal.SIGINT)
        try:
            self.bpftrace.popen.wait(30)
        except subprocess.TimeoutExpired:
            raise Failed("bpftrace does not end")
        found = dict(re.findall(r"^@(p\d+): (\d+)",
                                self.bpftrace.output.read_text(), re.M))
        return [int(found.get(f"p{i}", 0)) for i in range(len(self.probes))]

    def __exit__(self, *args: object) -> None:
        self.bpftrace.stop()


def has_accounting(tree: Path) -> bool:
    return (tree / "lib/upcall-cost.c").exists()


def storm(switch: StormSwitch, name: str) -> float:
    """Returns the cycles per upcall in a storm under variant 'name'."""
    variant = Variant(name, has_accounting(switch.tree), name == COST)
    if name != ATTACHED:
        return switch.storm(variant).cycles
    n = -switch.n_upcalls
    with Tracer(switch, UPCALL_PROBES) as tracer:
        cycles = switch.storm(variant).cycles
        counts = tracer.counts()
    n += switch.n_upcalls
    if counts != [n] * len(counts):
        raise Failed(f"bpftrace counted {counts} of {n} upcalls")
    return cycles


def forward(switch: StormSwitch, name: str) -> float:
    """Returns the cycles per packet that is forwarded under variant
    'name'."""
    if has_accounting(switch.tree):
        switch.vsctl("set", "Open_vSwitch", ".",
                     "other_config:cost-accounting="
                     + ("true" if name == COST else "false"))

    def measure() -> float:
        switch.appctl("dpif-netdev/pmd-stats-clear")
        ran, waited = switch.threads.schedstat(switch.pmd)
        time.sleep(SECONDS)
        perf = switch.perf()
        ran_now, waited_now = switch.threads.schedstat(switch.pmd)
        ran, waited = ran_now - ran, waited_now - waited
        if not perf["cycles"]:
            raise Failed("nothing is forwarded")
        return perf["cycles"] * ran / (ran + waited)

    if name != ATTACHED:
        return measure()
    with Tracer(switch, FORWARD_PROBES) as tracer:
        cycles = measure()
        counts = tracer.counts()
    # A burst is 32 packets.
    expected = SECONDS * switch.tsc_hz() / cycles / 32
    if not 0.7 * expected < min(counts):
        raise Failed(f"bpftrace counted {counts} of some "
                     f"{expected:.0f} bursts")
    return cycles


class Usdt:
    """The benchmark: collects figures by workload, variant and run."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.tsc_hz = 0.0
        self.figures: Dict[str, Dict[str, List[float]]] = {}

    def one_run(self, number: int, name: str, capture: str, n: int,
                cores: Cores,
                measure: Callable[[StormSwitch, str], float]) -> None:
        with contextlib.ExitStack() as stack:
            switches = {}
            for with_probes, tree in ((False, self.context.stock),
                                      (True, self.context.ovs)):
                where = (self.context.directory
                         / f"{number}-{name}-{int(with_probes)}")
                switch = StormSwitch(tree, where, Path(capture), n, cores)
                stack.callback(shutil.rmtree, where, ignore_errors=True)
                stack.enter_context(switch)
                switch.set_up()
                measure(switch, WITH if with_probes else WITHOUT)
                switch.vswitchd.pause()
                switches[with_probes] = switch
            self.tsc_hz = switches[False].tsc_hz()
            found: Dict[str, List[float]] = {v: [] for v in VARIANTS}
            half = VARIANTS if number % 2 == 0 else VARIANTS[::-1]
            for variant in half + half[::-1]:
                with upcalls.running(switches[variant != WITHOUT]) as switch:
                    found[variant].append(measure(switch, variant))
        into = self.figures.setdefault(name, {v: [] for v in VARIANTS})
        for variant in VARIANTS:
            into[variant].append(median(found[variant]))
        self.context.progress(
            f"{name}, run {number + 1} of {self.context.args.pairs}:  "
            + "  ".join(f"{v} {into[v][-1]:,.0f}" for v in VARIANTS)
            + " cycles")

    def run(self) -> List[Result]:
        cores = choose_cores()
        n = self.context.args.flows
        storm_capture = self.context.directory / "storm.pcap"
        write_capture(storm_capture, range(n))
        loop_capture = self.context.directory / "loop.pcap"
        write_capture(loop_capture, range(N_FORWARDED_FLOWS))
        allowed = os.sched_getaffinity(0)
        with HugePages(2 * PAGES_PER_SWITCH):
            try:
                os.sched_setaffinity(0, allowed - {cores.pmd})
                for number in range(self.context.args.pairs):
                    self.one_run(number, "upcalls", str(storm_capture), n,
                                 cores, storm)
                    self.one_run(number, "forwarding",
                                 f"{loop_capture},infinite_rx=1",
                                 N_FORWARDED_FLOWS, cores, forward)
            finally:
                os.sched_setaffinity(0, allowed)
        return self.report()

    def report(self) -> List[Result]:
        results = [Result(name, "ns", {
            variant: [c / self.tsc_hz * 1e9 for c in cycles]
            for variant, cycles in figures.items()})
            for name, figures in self.figures.items()]
        print(table(["per upcall or packet", "ns", "cycles", "per second"],
                    [[f"{r.case}, {variant}", f"{median(ns):,.1f}",
                      f"{median(ns) * self.tsc_hz / 1e9:,.0f}",
                      f"{1e9 / median(ns):,.0f}"]
                     for r in results for variant, ns in r.values.items()]))
        print()
        for result in results:
            for name, base in BASES.items():
                r = result.ratio(name, base)
                # Throughput is what decreases.
                loss = 1 - 1 / r.median
                print(ratio_line(f"{result.case[:7]} {name}/{base}", r, None,
                                 f"throughput {-loss:+7.2%}"))
        return results


def run(context: Context) -> List[Result]:
    if os.geteuid():
        raise NotHere("root is needed, for huge pages and bpftrace")
    if not shutil.which("bpftrace"):
        raise NotHere("there is no bpftrace")
    for tree, wanted in ((context.stock, False), (context.ovs, True)):
        config = (tree / "config.h").read_text()
        if "#define DPDK_NETDEV" not in config:
            raise NotHere(f"{tree} is built without DPDK, which takes "
                          "--with-dpdk")
        if ("#define HAVE_USDT_PROBES" in config) != wanted:
            raise NotHere(
                f"{tree} is built with{'out' if wanted else ''} USDT probes: "
                "STOCKDIR has to be a tree that was configured with "
                "--disable-usdt-probes, OVSDIR one with --enable-usdt-probes")
    return Usdt(context).run()
