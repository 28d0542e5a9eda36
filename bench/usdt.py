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

import os
import time
from pathlib import Path
from statistics import median
from typing import Callable, Dict, List

from bench import upcalls
from bench.dpdk import CYCLES
from bench.machine import (Cores, HugePages, NotHere, choose_cores, need,
                           on_cpus)
from bench.packets import write_capture
from bench.report import Context
from bench.tracer import Counter
from bench.upcalls import PAGES_PER_SWITCH, StormSwitch, Variant
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
    tracer = Counter(switch, UPCALL_PROBES)
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
        cycles, = switch.perf(CYCLES)
        ran_now, waited_now = switch.threads.schedstat(switch.pmd)
        ran, waited = ran_now - ran, waited_now - waited
        if not cycles:
            raise Failed("nothing is forwarded")
        return cycles * ran / (ran + waited)

    if name != ATTACHED:
        return measure()
    tracer = Counter(switch, FORWARD_PROBES)
    cycles = measure()
    counts = tracer.counts()
    # A burst is 32 packets.
    expected = SECONDS * switch.tsc_hz() / cycles / 32
    if not 0.7 * expected < min(counts):
        raise Failed(f"bpftrace counted {counts} of some "
                     f"{expected:.0f} bursts")
    return cycles


def measure_pair(context: Context, number: int, name: str, capture: str,
                 n: int, cores: Cores,
                 measure: Callable[[StormSwitch, str], float]) -> None:
    """Measures each variant under the workload 'name'."""
    def warm_up(switch: StormSwitch) -> None:
        measure(switch, WITH if switch.tree == context.ovs else WITHOUT)

    with upcalls.two_switches(context, f"{number}-{name}", capture, n,
                              cores, warm_up) as switches:
        tsc_hz = switches["stock"].tsc_hz()
        found: Dict[str, List[float]] = {v: [] for v in VARIANTS}
        half = VARIANTS if number % 2 == 0 else VARIANTS[::-1]
        for variant in half + half[::-1]:
            which = "stock" if variant == WITHOUT else "patched"
            with switches[which].running() as switch:
                found[variant].append(measure(switch, variant))
    for variant, cycles in found.items():
        context.add(name, "ns", variant, median(cycles) / tsc_hz * 1e9)
    context.progress(f"{name}, run {number + 1}:  " + "  ".join(
        f"{v} {median(found[v]):,.0f}" for v in VARIANTS) + " cycles")


def run(context: Context) -> None:
    need("bpftrace")
    upcalls.check_trees(context)
    for tree, wanted in ((context.stock, False), (context.ovs, True)):
        config = (tree / "config.h").read_text()
        if ("#define HAVE_USDT_PROBES" in config) != wanted:
            raise NotHere(
                f"{tree} is built with{'out' if wanted else ''} USDT probes: "
                "STOCKDIR has to be a tree that was configured with "
                "--disable-usdt-probes, OVSDIR one with --enable-usdt-probes")
    cores = choose_cores()
    n = context.choose("flows", 60000, 20000)
    storm_capture = context.directory / "storm.pcap"
    write_capture(storm_capture, range(n))
    loop_capture = context.directory / "loop.pcap"
    write_capture(loop_capture, range(N_FORWARDED_FLOWS))
    with HugePages(2 * PAGES_PER_SWITCH), \
            on_cpus(os.sched_getaffinity(0) - {cores.pmd}):
        for number in range(context.choose("pairs", 11, 2)):
            measure_pair(context, number, "upcalls", str(storm_capture), n,
                         cores, storm)
            measure_pair(context, number, "forwarding",
                         f"{loop_capture},infinite_rx=1", N_FORWARDED_FLOWS,
                         cores, forward)
