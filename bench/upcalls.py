# SPDX-License-Identifier: Apache-2.0
"""What an upcall costs in a storm of new flows.

One PMD thread of ovs-vswitchd with DPDK receives a capture in which every
packet is a flow of its own, from memory-like devices that need no NIC:
net_pcap plays the capture once, net_null swallows the packets.  The pipeline
is one flow and megaflows are disabled, so that each packet is one upcall,
and an upcall is as cheap as it gets: the hardest case for accounting.

A storm starts with no flow in the datapath, and with everything else in
ovs-vswitchd at rest.  Reconfiguring the receiving device starts the capture
over.  When it is through, the datapath must have counted exactly as many
upcalls as the capture has packets, none lost, and ofproto as many flows.
The cost of an upcall is the number of cycles in busy iterations of the PMD
thread, as pmd-perf-show tells, less the share of time in which the thread was
waiting for its CPU, by the number of packets.  It thus has everything in it
that the PMD thread does for a packet.  (The time per upcall that pmd-perf-show
itself prints is not used: it takes the detailed PMD metrics, which cost time
themselves, and ends before what accounting does at the end of an upcall.)

A pair is a new process of stock and one of the patched Open vSwitch.  Only
one of them runs at any time, the other is stopped.  Their storms alternate,
the patched process being switched between its variants at run time, in an
order that is the same backwards, so that a machine that becomes slower or
faster does so for all variants.  The figure of a variant in a pair is the
median of its storms.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from statistics import median
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence

from bench.dpdk import CYCLES, DpdkSwitch
from bench.machine import (Cores, HugePages, NotHere, Threads, choose_cores,
                           need, on_cpus)
from bench.packets import write_capture
from bench.report import Context
from bench.tracer import Counter
from tools.switch import Failed, wait_until

PAGES_PER_SWITCH = 64           # 2 MB each; some 50 are used.
N_WARM_UP = 2                   # Storms that fault memory in.
N_TRIES = 3                     # Of a storm that something disturbs.
MAX_WAITED = 0.05               # Share of time above which something does.
RECEIVED = r"Rx packets: +(\d+)"
QUIET = 1                       # Percent of time, on a quiet machine.
PROBED = ["uprobe:{}:upcall_cb", "uprobe:{}:dp_netdev_flow_add"]


class Variant(NamedTuple):
    """Something to compare, and how to get there in a running switch."""
    name: str
    patched: bool
    accounting: bool = False
    sample_interval: int = 0             # 0: the default.

    def settings(self) -> List[str]:
        if not self.patched:
            return []
        words = ["--", "set", "Open_vSwitch", ".",
                 "other_config:cost-accounting="
                 + ("true" if self.accounting else "false")]
        if self.sample_interval:
            words.append("other_config:cost-sample-interval="
                         f"{self.sample_interval}")
        else:
            words += ["--", "remove", "Open_vSwitch", ".", "other_config",
                      "cost-sample-interval"]
        return words


STOCK = Variant("stock", False)
OFF = Variant("off", True)
ON = Variant("on", True, True)
EVERY = Variant("every", True, True, 1)
VARIANTS = [STOCK, OFF, ON, EVERY]
UPROBES = Variant("uprobes", False)
BESIDE_UPROBES = "beside"       # The storms of stock between those.


class Storm(NamedTuple):
    """The figures of one storm."""
    cycles: float               # Per upcall, without waiting for a CPU.
    waited: float               # Share of time that the thread waited.


class StormSwitch(DpdkSwitch):
    """A switch that gets storms."""

    def __init__(self, tree: Path, directory: Path, capture: str,
                 n_packets: int, cores: Cores) -> None:
        super().__init__(tree, directory, cores, PAGES_PER_SWITCH)
        # Memory that is freed is kept, so that storms after the first ones
        # don't fault it in again.
        self.env["MALLOC_TRIM_THRESHOLD_"] = str(2 ** 40)
        self.env["MALLOC_MMAP_THRESHOLD_"] = str(2 ** 25)
        self.capture = capture
        self.n_packets = n_packets
        self.n_descriptors = 2048               # The default.
        self.n_upcalls = 0                      # So far.

    def set_up(self) -> None:
        """Starts the switch and makes it ready for storms."""
        # Revalidators have nothing to do in hours.
        self.start_dpdk("other_config:emc-insert-inv-prob=0",
                        "other_config:flow-limit=200000",
                        "other_config:max-idle=36000000",
                        "other_config:max-revalidator=36000000")
        self.add_port("source", f"net_pcap_source,rx_pcap={self.capture}",
                      "ofport_request=1")
        self.add_port("sink", "net_null_sink,no-rx=1", "ofport_request=2")
        self.forward("in_port=1,actions=output:2")
        self.appctl("upcall/disable-megaflows")
        self.appctl("upcall/set-flow-limit", "200000")

    def tsc_hz(self) -> float:
        log = (self.directory / "ovs-vswitchd.log").read_text()
        match = re.search(r"TSC frequency: (\d+) KHz", log)
        if not match:
            raise Failed("ovs-vswitchd does not tell the frequency of "
                         "the time stamp counter")
        return int(match.group(1)) * 1e3

    def settle(self) -> None:
        """Returns when no thread but the PMD thread has anything to do."""
        Threads.rest(self.threads.find("pmd", other=True), 10e6)

    def n_flows(self) -> int:
        """Returns the number of flows that ofproto has in the datapath."""
        return sum(int(n) for n in re.findall(r"\(keys (\d+)\)",
                                              self.appctl("upcall/show")))

    def storm(self, variant: Variant) -> Storm:
        """Has a storm of exactly 'n_packets' upcalls under 'variant'.  When
        other programs take the CPU too often, tries again, and returns the
        storm that was disturbed least."""
        storms = []
        for _ in range(N_TRIES):
            self.prepare(variant)
            ran, waited = self.threads.schedstat(self.pmd)
            # Another number of receive descriptors restarts the device.
            self.n_descriptors = 3072 - self.n_descriptors
            self.vsctl("set", "Interface", "source",
                       f"options:n_rxq_desc={self.n_descriptors}")
            wait_until(lambda: self.perf(RECEIVED)[0] >= self.n_packets,
                       "the capture to be received", timeout=60)
            received, n_upcalls, lost, cycles = self.perf(
                RECEIVED, r"- Upcalls: +(\d+)", r"- Lost upcalls: +(\d+)",
                CYCLES)
            ran_now, waited_now = self.threads.schedstat(self.pmd)
            ran, waited = ran_now - ran, waited_now - waited
            self.n_upcalls += int(n_upcalls)
            if lost == 0 and n_upcalls == self.n_packets:
                self.verify(variant)
                storm = Storm(cycles * ran / (ran + waited),
                              waited / (ran + waited))
                if storm.waited <= MAX_WAITED:
                    return storm
                storms.append(storm)
        if not storms:
            raise Failed(
                f"of {received:.0f} packets, {n_upcalls:.0f} were upcalls and "
                f"{lost:.0f} were lost, {N_TRIES} times in a row")
        return min(storms, key=lambda storm: storm.waited)

    def prepare(self, variant: Variant) -> None:
        """Makes everything ready for a storm under 'variant'."""
        self.appctl("revalidator/purge")
        wait_until(lambda: self.n_flows() == 0, "flows to be removed")
        if variant.patched:
            self.vsctl(*variant.settings()[1:])
            self.appctl("upcall/cost-clear")
        self.settle()
        self.appctl("dpif-netdev/pmd-stats-clear")

    def verify(self, variant: Variant) -> None:
        """Checks that what has just happened was what was meant to be."""
        n = self.n_packets
        if self.n_flows() != n:
            raise Failed(f"{n} upcalls installed {self.n_flows()} flows")
        if not variant.patched:
            return
        stages = self.accounts("upcall")[0]["stages"]
        total = stages["total"]["count"]
        splits = stages["translate"]["count"]
        if total != (n if variant.accounting else 0):
            raise Failed(f"{variant.name}: {n} upcalls, but "
                         f"accounting has counted {total}")
        if variant.sample_interval == 1 and splits != n:
            raise Failed(f"{variant.name}: stages of {splits} upcalls "
                         f"instead of {n}")


def order(block: int) -> List[Variant]:
    """Returns the order of storms: the same backwards, and every other time
    from the inside out."""
    half = VARIANTS if block % 2 == 0 else VARIANTS[::-1]
    return half + half[::-1]


@contextlib.contextmanager
def two_switches(context: Context, name: str, capture: str, n: int,
                 cores: Cores, warm_up: Callable[[StormSwitch], object]
                 ) -> Iterator[Dict[str, StormSwitch]]:
    """Yields switches of both trees that have 'capture' of 'n' packets, after
    'warm_up', and are stopped."""
    with contextlib.ExitStack() as stack:
        switches = {}
        for which, tree in context.trees.items():
            where = context.directory / f"{name}-{which}"
            switch = StormSwitch(tree, where, capture, n, cores)
            stack.callback(shutil.rmtree, where, ignore_errors=True)
            switches[which] = stack.enter_context(switch)
            switch.set_up()
            warm_up(switch)
            switch.vswitchd.pause()
        yield switches


class Upcalls:
    """The benchmark: has storms in each pair."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.n_storms = 2 if context.args.quick else 8  # Of each variant.
        self.n_flows = context.choose("flows", 60000, 20000)
        self.waited: Dict[str, List[float]] = {}
        self.left_out = not shutil.which("bpftrace")
        if self.left_out:
            print("  uprobes: left out, there is no bpftrace")

    def add(self, name: str, storms: Sequence[Storm], tsc_hz: float) -> float:
        """Adds the result of a pair, and returns it: the time of an upcall, in
        ns."""
        ns = median(s.cycles for s in storms) / tsc_hz * 1e9
        self.context.add("an upcall", "ns", name, ns)
        self.waited.setdefault(name, []).extend(s.waited for s in storms)
        return ns

    def pair(self, number: int, capture: Path, cores: Cores) -> None:
        def warm_up(switch: StormSwitch) -> None:
            for _ in range(N_WARM_UP):
                switch.storm(ON if switch.tree == self.context.ovs else STOCK)

        with two_switches(self.context, str(number), str(capture),
                          self.n_flows, cores, warm_up) as switches:
            tsc_hz = switches["stock"].tsc_hz()
            storms: Dict[str, List[Storm]] = {v.name: [] for v in VARIANTS}
            for block in range(self.n_storms // 2):
                for variant in order(block):
                    which = "patched" if variant.patched else "stock"
                    with switches[which].running() as switch:
                        storms[variant.name].append(switch.storm(variant))
            self.context.progress("  ".join([f"pair {number + 1}:", *(
                f"{name} {self.add(name, collected, tsc_hz):,.0f}"
                for name, collected in storms.items()), "ns"]))
            self.uprobes(switches["stock"], tsc_hz)

    def uprobes(self, switch: StormSwitch, tsc_hz: float) -> None:
        """Has storms with uprobes, between storms without, if they can be
        had."""
        if self.left_out:
            return
        with switch.running():
            without = [switch.storm(STOCK)
                       for _ in range(self.n_storms // 2)]
            n_upcalls = -switch.n_upcalls
            try:
                tracer = Counter(switch, PROBED)
                storms = [switch.storm(UPROBES) for _ in range(self.n_storms)]
                counts = tracer.counts()
            except Failed as error:
                if "bpftrace" not in str(error):
                    raise
                print(f"  uprobes: left out, {error}")
                self.left_out = True
                return
            n_upcalls += switch.n_upcalls
            without += [switch.storm(STOCK)
                        for _ in range(self.n_storms // 2)]
        if counts != [n_upcalls] * len(PROBED):
            raise Failed(f"bpftrace counted {counts} in {n_upcalls} "
                         "upcalls")
        self.add(UPROBES.name, storms, tsc_hz)
        self.add(BESIDE_UPROBES, without, tsc_hz)


def check_trees(context: Context) -> None:
    """Raises NotHere unless there can be storms."""
    need()
    for tree in (context.stock, context.ovs):
        binary = tree / "vswitchd/ovs-vswitchd"
        version = subprocess.run([binary, "--version"], text=True,
                                 stdout=subprocess.PIPE).stdout
        if "DPDK" not in version:
            raise NotHere(f"{tree} is built without DPDK, which takes "
                          "--with-dpdk")


def run(context: Context) -> None:
    check_trees(context)
    cores = choose_cores()
    benchmark = Upcalls(context)
    capture = context.directory / "storm.pcap"
    write_capture(capture, range(benchmark.n_flows))
    # The PMD thread has its CPU to itself, as far as we can.
    with HugePages(2 * PAGES_PER_SWITCH), \
            on_cpus(os.sched_getaffinity(0) - {cores.pmd}):
        for number in range(context.choose("pairs", 11, 2)):
            benchmark.pair(number, capture, cores)
    most = max(100 * median(shares) for shares in benchmark.waited.values())
    if most > QUIET:
        print(f"  The machine was not quiet: the PMD thread had to wait "
              f"for its CPU {most:.0f}% of\n  the time.")
