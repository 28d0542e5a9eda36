# SPDX-License-Identifier: Apache-2.0
"""How many packets leave a port at a time, and what that is worth.

One PMD thread of ovs-vswitchd with DPDK forwards from devices that need no
NIC to one output port:

full     net_pcap plays a capture of 64 flows for ever, from memory, in bursts
         of 32 packets; net_null swallows them.  With a tx-flush-interval of 0,
         50 and 1,000 us.
sparse   The same capture on each of 8 rx queues, of which 2 packets in 32 go
         to a net_af_packet device on a veth device, and the others are
         dropped.  There each burst is a system call: that is what a burst
         costs for which a device has to be told.
vhost    The same, but to a vhost-user port, whose peer, dpdk-testpmd, throws
         them away: there a burst is copied by the PMD thread.
split    The same capture on one rx queue, its flows to 4 net_null ports.
single   The same with 31 net_null ports, as many as DPDK takes beside the
         source: each packet is a burst of its own, and one in 32 is dropped,
         by a flow that says so: without it, that one would be an upcall.
rules    The same capture on one rx queue, and 4 OpenFlow flows that match the
         source address and have the same net_null port as their output.  Each
         of them gets 8 packets in 32, one in turn.  With a tx-flush-interval
         of 0 and 50 us.
latency  A program sends single packets through a veth device, net_af_packet
         devices and another veth device, and takes the time until each
         arrives.  That includes its own system calls.
loaded   The same, while the PMD thread has the capture on another rx queue,
         which is never empty, and forwards it to a net_null port.

A pair is a new process of stock and one of the patched Open vSwitch, each of
them started first in every other pair: of two processes of the same binary,
the first one is 1% faster, nobody knows why.  Only one of them runs at any
time, the other is stopped.  They take turns, in an order that is the same
backwards.  Rates, packets per burst and cycles per packet are those that
pmd-perf-show has for the PMD thread: all of its cycles, by the packets that it
sent.  They are medians of many short turns, since a virtual machine's
neighbours slow it down for some of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import (Callable, Dict, List, NamedTuple, Optional, Sequence,
                    TypeVar)

from dpdk import DpdkSwitch
from machine import Cores, HugePages, NotHere, choose_cores
from packets import write_capture
from report import Context, Result, ratio_line, table
from stats import ratio
from switch import Failed, Process, wait_until

PAGES_PER_SWITCH = 256          # 2 MB each.
PAGES_PER_PEER = 32
INTERVALS = {"full": [0, 50, 1000], "rules": [0, 50]}   # us.
N_FLOWS = 64
N_QUEUES = 8
SPARSE_MATCH = "ip,nw_src=10.0.0.0/0.0.0.15"    # 2 packets in 32.
N_SPLIT = 4                     # Ports, or OpenFlow flows.
N_SINGLE = 31                   # Ports.
SECONDS = 0.15                  # In each turn.
TURNS = 6                       # That both take twice, in each pair.
CASES = ["full", "sparse", "vhost", "split", "single", "latency", "loaded",
         "rules"]
LATENCY_CASES = ["latency", "loaded"]
LATENCY_PERCENTILES = (0.5, 0.9, 0.99)


T = TypeVar("T")


class Rate(NamedTuple):
    """What pmd-perf-show tells of a while."""
    mpps: float                 # Sent.
    burst: float                # Packets sent at a time.
    cycles: float               # Of the time stamp counter, per packet.


RATE_UNITS = ("Mpps", "packets a burst", "cycles a packet")     # Of a Rate.


class TxSwitch(DpdkSwitch):
    """A switch that forwards packets to output ports."""
    SPARSE = ("priority=1,actions=drop",
              f"priority=2,in_port=source,{SPARSE_MATCH},actions=output:sink")

    def __init__(self, tree: Path, directory: Path, cores: Cores) -> None:
        super().__init__(tree, directory, cores, PAGES_PER_SWITCH)
        self.peers: List[Process] = []

    def add_source(self, capture: Path, n_queues: int,
                   name: str = "source") -> None:
        """Adds a receiving device that always has packets."""
        self.add_port(name, f"net_pcap_{name},infinite_rx=1,"
                      + f"rx_pcap={capture}," * n_queues
                      + ",".join(["tx_pcap=/dev/null"] * n_queues),
                      f"options:n_rxq={n_queues}")

    def add_veth(self, ours: str, theirs: str) -> None:
        """Adds a pair of veth devices that only our packets go through."""
        self.ip(f"link add {ours} type veth peer name {theirs}",
                f"link set {ours} up arp off", f"link set {theirs} up arp off")

    def add_vhost(self, name: str) -> None:
        """Adds a vhost-user port, whose peer swallows all packets."""
        self.vsctl("add-port", "br0", name, "--", "set", "Interface", name,
                   "type=dpdkvhostuser")
        self.peers.append(self.spawn("dpdk-testpmd", [
            "dpdk-testpmd", f"--lcores=0@{self.cores.main},"
            f"1@{self.cores.main}", "--in-memory", "--single-file-segments",
            "--no-pci", "--no-telemetry",
            f"--socket-mem={PAGES_PER_PEER * 2}",
            f"--vdev=net_virtio_user0,path={self.directory}/{name},"
            "queue_size=1024", "--", "--forward-mode=rxonly",
            "--port-topology=loop", "--total-num-mbufs=8192",
            "--stats-period=3600", "--auto-start"]))
        wait_until(lambda: self.vsctl("get", "Interface", name, "link_state")
                   .strip() == "up", f"the peer of {name}")

    def pause(self) -> None:
        for process in (self.vswitchd, *self.peers):
            process.pause()

    def resume(self) -> None:
        for process in (*self.peers, self.vswitchd):
            process.resume()

    def set_up_full(self, capture: Path) -> None:
        self.start_dpdk()
        self.add_port("sink", "net_null_sink,no-rx=1")
        self.add_source(capture, 1)
        self.forward("actions=output:sink")

    def set_up_split(self, capture: Path, n_ports: int) -> None:
        self.start_dpdk()
        for i in range(n_ports):
            self.add_port(f"sink{i}", f"net_null_sink{i},no-rx=1")
        self.add_source(capture, 1)
        mask = (1 << (n_ports - 1).bit_length()) - 1
        self.forward("priority=1,actions=drop",
                     *(f"ip,nw_src=10.0.0.{i}/0.0.0.{mask},"
                       f"actions=output:sink{i}" for i in range(n_ports)))

    def set_up_rules(self, capture: Path) -> None:
        self.start_dpdk()
        self.add_port("sink", "net_null_sink,no-rx=1")
        self.add_source(capture, 1)
        self.forward(*(f"in_port=source,ip,nw_src=10.0.0.{i}"
                       f"/0.0.0.{N_SPLIT - 1},actions=output:sink"
                       for i in range(N_SPLIT)))
        # Each of them has to make a batch of its own.
        wait_until(lambda: self.n_flows() == N_SPLIT,
                   f"{N_SPLIT} flows in the datapath")

    def n_flows(self) -> int:
        return self.appctl("dpctl/dump-flows", "netdev@ovs-netdev",
                           "filter=in_port(source)").count("actions:")

    def set_up_sparse(self, capture: Path) -> None:
        self.start_dpdk()
        self.add_veth("v-sink", "out")
        self.add_port("sink", "net_af_packet_sink,iface=v-sink,qpairs=2")
        self.add_source(capture, N_QUEUES)
        self.forward(*self.SPARSE)

    def set_up_vhost(self, capture: Path) -> None:
        self.start_dpdk()
        self.add_vhost("sink")
        self.add_source(capture, N_QUEUES)
        self.forward(*self.SPARSE)

    def set_up_latency(self, load: Optional[Path]) -> None:
        self.start_dpdk()
        flows = ["in_port=source,actions=output:sink"]
        if load:
            self.add_port("null", "net_null_null,no-rx=1")
            self.add_source(load, 1, "load")
            flows.append("in_port=load,actions=output:null")
        self.add_veth("v-source", "in")
        self.add_veth("v-sink", "out")
        self.add_port("sink", "net_af_packet_sink,iface=v-sink,qpairs=2")
        self.add_port("source", "net_af_packet_source,iface=v-source,"
                      f"qpairs={N_QUEUES}", f"options:n_rxq={N_QUEUES}")
        self.forward(*flows)

    def set_interval(self, interval: int) -> None:
        self.vsctl("set", "Open_vSwitch", ".",
                   f"other_config:tx-flush-interval={interval}")

    def rate(self) -> Rate:
        """Returns what the PMD thread did since pmd-stats-clear."""
        text = self.appctl("dpif-netdev/pmd-perf-show")
        text = text.partition("main thread")[0]

        def number(pattern: str) -> float:
            match = re.search(pattern, text)
            if not match:
                raise Failed(f"pmd-perf-show has no {pattern}:\n{text}")
            return float(match.group(1))

        return Rate(number(r"Tx packets: .*\((\d+) Kpps") / 1e3,
                    number(r"Tx batches: .*\(([\d.]+) pkts/batch\)"),
                    number(r"Used TSC cycles: +(\d+)")
                    / number(r"Tx packets: +(\d+)"))

    def measure(self) -> Rate:
        time.sleep(SECONDS / 3)
        self.appctl("dpif-netdev/pmd-stats-clear")
        time.sleep(SECONDS)
        rate = self.rate()
        # The thread may not have cleared them yet.
        return rate if rate.cycles else self.measure()

    def measure_latency(self) -> List[int]:
        """Runs bench/latency in the switch's namespace."""
        with self.in_netns():
            program = subprocess.Popen(
                ["taskset", "-c", str(self.cores.main), sys.executable,
                 str(Path(__file__).with_name("latency"))],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = program.communicate(timeout=120)
        finally:
            program.kill()
            program.wait()
        if program.returncode:
            raise Failed(output.strip())
        self.check()
        return [int(ns) for ns in output.split()]


# Comparing.

def percentile(values: Sequence[int], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[min(int(len(ordered) * share), len(ordered) - 1)])


def show(results: List[Result]) -> None:
    """Prints 'results', and compares."""
    print(table(["", "n", "unit", "stock", "patched"],
                [[r.case, str(len(r.values["stock"])), r.unit,
                  *(f"{median(values):,.3f}" for values in r.values.values())]
                 for r in results]))
    for r in results:
        print(ratio_line(f"{r.case}: {r.unit}", r.ratio(), None,
                         note="patched/stock", judge=False))
    for r in results:
        kind = r.case.partition(",")[0]
        if r.unit == "Mpps" and r.case not in (kind, f"{kind}, 0 us"):
            stock = next(other.values["stock"] for other in results
                         if other[:2] == (f"{kind}, 0 us", "Mpps"))
            print(ratio_line(f"{r.case}, to stock at 0 us",
                             ratio(r.values["patched"], stock), None,
                             judge=False))


def run(context: Context) -> List[Result]:
    """Runs the benchmark; returns what it measured."""
    args = context.args
    if os.geteuid():
        raise NotHere("it takes root")
    kinds = list(args.cases or CASES)
    if "vhost" in kinds and not shutil.which("dpdk-testpmd"):
        kinds.remove("vhost")
        print("  without vhost: there is no dpdk-testpmd")
    cores = choose_cores()
    capture = context.directory / "flows.pcap"
    write_capture(capture, [i % N_FLOWS for i in range(N_FLOWS * 4)])
    n_turns = 1 if args.quick else TURNS
    rates: Dict[str, Dict[str, List[Rate]]] = {}
    pings: Dict[str, Dict[str, List[List[int]]]] = {}
    trees = {"stock": context.stock, "patched": context.ovs}

    def add(case: str, name: str, values: List[Rate]) -> None:
        rates.setdefault(case, {}).setdefault(name, []).append(
            Rate(*(median(v) for v in zip(*values))))

    def take_turns(switches: Dict[str, TxSwitch], n: int,
                   measure: Callable[[TxSwitch], T]) -> Dict[str, List[T]]:
        found: Dict[str, List[T]] = {name: [] for name in switches}
        names = list(switches)
        for name in (names + names[::-1]) * n:
            switches[name].resume()
            found[name].append(measure(switches[name]))
            switches[name].pause()
        return found

    set_ups: Dict[str, Callable[[TxSwitch], None]] = {
        "full": lambda switch: switch.set_up_full(capture),
        "sparse": lambda switch: switch.set_up_sparse(capture),
        "vhost": lambda switch: switch.set_up_vhost(capture),
        "split": lambda switch: switch.set_up_split(capture, N_SPLIT),
        "single": lambda switch: switch.set_up_split(capture, N_SINGLE),
        "latency": lambda switch: switch.set_up_latency(None),
        "loaded": lambda switch: switch.set_up_latency(capture),
        "rules": lambda switch: switch.set_up_rules(capture),
    }
    for k in range(args.pairs):
        for kind in kinds:
            set_up = set_ups[kind]
            context.progress(f"{kind}: pair {k + 1} of {args.pairs}")
            with contextlib.ExitStack() as stack:
                stack.enter_context(HugePages(
                    2 * (PAGES_PER_SWITCH + PAGES_PER_PEER)))
                switches = {}
                for name in list(trees)[::1 - k % 2 * 2]:
                    switches[name] = stack.enter_context(TxSwitch(
                        trees[name],
                        context.directory / f"{kind}-{k}-{name}", cores))
                    set_up(switches[name])
                    switches[name].pause()
                if kind in LATENCY_CASES:
                    for name, times in take_turns(
                            switches, 1, TxSwitch.measure_latency).items():
                        pings.setdefault(kind, {}).setdefault(name, []).append(
                            sum(times, []))
                    continue
                for interval in INTERVALS.get(kind, [0]):
                    for switch in switches.values():
                        switch.resume()
                        switch.set_interval(interval)
                        switch.pause()
                    for name, values in take_turns(
                            switches, n_turns, TxSwitch.measure).items():
                        add(f"{kind}, {interval} us" if kind in INTERVALS
                            else kind, name, values)
    results = [
        Result(case, unit, {name: [value[i] for value in values]
                            for name, values in variants.items()})
        for case, variants in rates.items()
        for i, unit in enumerate(RATE_UNITS)]
    results += [
        Result(f"{case}, p{p * 100:.0f}", "us", {
            name: [percentile(v, p) / 1e3 for v in values]
            for name, values in variants.items()})
        for case, variants in pings.items() for p in LATENCY_PERCENTILES]
    show(results)
    return results
