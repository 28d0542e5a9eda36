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
import shutil
import time
from pathlib import Path
from statistics import median
from typing import Callable, Dict, List

from bench.machine import Cores, HugePages, NotHere, choose_cores
from bench.packets import write_capture
from bench.report import Context, Result
from bench.upcalls import (PAGES_PER_SWITCH, StormSwitch, Tracer, Variant,
                           running)
from tools.switch import Failed

WITHOUT, WITH, ATTACHED, COST = "without", "with", "attached", "cost"
VARIANTS = [WITHOUT, WITH, ATTACHED, COST]
N_FORWARDED_FLOWS = 64
SECONDS = 1.5                   # Of forwarding, for each figure.

UPCALL_PROBES = ["usdt:{}:" + name for name in (
    "handle_packet_upcall:entry", "handle_packet_upcall:exit",
    "upcall_cb:translate_start", "upcall_cb:translate_done")]
FORWARD_PROBES = ["usdt:{}:netdev_dpdk_rxq_recv:rx_burst"] + [
    "usdt:{}:dp_netdev_pmd_flush_output_on_port:" + name
    for name in ("flush", "tx_burst_start", "tx_burst_done")]


def has_accounting(tree: Path) -> bool:
    return (tree / "lib/upcall-cost.c").exists()


def storm(switch: StormSwitch, name: str) -> float:
    """Returns the cycles per upcall in a storm under variant 'name'."""
    variant = Variant(name, has_accounting(switch.tree), name == COST)
    if name != ATTACHED:
        return switch.storm(variant).cycles
    n = -switch.n_upcalls
    with Tracer(switch.vswitchd.pid, switch.directory,
                UPCALL_PROBES) as tracer:
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
    with Tracer(switch.vswitchd.pid, switch.directory,
                FORWARD_PROBES) as tracer:
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
        self.n_pairs = context.choose("pairs", 11, 2)
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
                with running(switches[variant != WITHOUT]) as switch:
                    found[variant].append(measure(switch, variant))
        into = self.figures.setdefault(name, {v: [] for v in VARIANTS})
        for variant in VARIANTS:
            into[variant].append(median(found[variant]))
        self.context.progress(
            f"{name}, run {number + 1} of {self.n_pairs}:  "
            + "  ".join(f"{v} {into[v][-1]:,.0f}" for v in VARIANTS)
            + " cycles")

    def run(self) -> List[Result]:
        cores = choose_cores()
        n = self.context.choose("flows", 60000, 20000)
        storm_capture = self.context.directory / "storm.pcap"
        write_capture(storm_capture, range(n))
        loop_capture = self.context.directory / "loop.pcap"
        write_capture(loop_capture, range(N_FORWARDED_FLOWS))
        allowed = os.sched_getaffinity(0)
        with HugePages(2 * PAGES_PER_SWITCH):
            try:
                os.sched_setaffinity(0, allowed - {cores.pmd})
                for number in range(self.n_pairs):
                    self.one_run(number, "upcalls", str(storm_capture), n,
                                 cores, storm)
                    self.one_run(number, "forwarding",
                                 f"{loop_capture},infinite_rx=1",
                                 N_FORWARDED_FLOWS, cores, forward)
            finally:
                os.sched_setaffinity(0, allowed)
        return [Result(name, "ns", {
            variant: [c / self.tsc_hz * 1e9 for c in cycles]
            for variant, cycles in figures.items()})
            for name, figures in self.figures.items()]


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
