# SPDX-License-Identifier: Apache-2.0
"""How many packets leave a port at a time, and what that is worth.

One PMD thread of ovs-vswitchd with DPDK forwards from devices that need no
NIC to one output port:

full     net_pcap plays a capture of 64 flows for ever, from memory, in bursts
         of 32 packets; net_null swallows them.  With a tx-flush-interval of 0,
         50 and 1,000 us.
split    The same capture on one rx queue, its flows to 4 net_null ports.
single   The same with 31 net_null ports, as many as DPDK takes beside the
         source: each packet is a burst of its own, and one in 32 is dropped,
         by a flow that says so: without it, that one would be an upcall.
rules    The same capture on one rx queue, and 4 OpenFlow flows that match the
         source address and have the same net_null port as their output.  Each
         of them gets 8 packets in 32, one in turn.  With a tx-flush-interval
         of 0 and 50 us.

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
import time
from pathlib import Path
from statistics import median
from typing import Callable, Dict, List, NamedTuple

from bench.dpdk import DpdkSwitch
from bench.machine import HugePages, choose_cores, need
from bench.packets import write_capture
from bench.report import Context
from tools.switch import Failed, wait_until


PAGES_PER_SWITCH = 256          # 2 MB each.
INTERVALS = {"full": [0, 50, 1000], "rules": [0, 50]}   # us.
N_FLOWS = 64
N_SPLIT = 4                     # Ports, or OpenFlow flows.
N_SINGLE = 31                   # Ports.
SECONDS = 0.15                  # In each turn.
TURNS = 6                       # That both take twice, in each pair.
CASES = ["full", "split", "single", "rules"]


class Rate(NamedTuple):
    """What pmd-perf-show tells of a while."""
    mpps: float                 # Sent.
    burst: float                # Packets sent at a time.
    cycles: float               # Of the time stamp counter, per packet.


RATE_UNITS = ("Mpps", "packets a burst", "cycles a packet")     # Of a Rate.


class TxSwitch(DpdkSwitch):
    """A switch that forwards packets to output ports."""

    def add_source(self, capture: Path) -> None:
        """Adds a receiving device that always has packets."""
        self.add_port("source", f"net_pcap_source,infinite_rx=1,rx_pcap="
                      f"{capture},tx_pcap=/dev/null")

    def set_up_one(self, capture: Path, *flows: str) -> None:
        self.start_dpdk()
        self.add_port("sink", "net_null_sink,no-rx=1")
        self.add_source(capture)
        self.forward(*flows)

    def set_up_split(self, capture: Path, n_ports: int) -> None:
        self.start_dpdk()
        for i in range(n_ports):
            self.add_port(f"sink{i}", f"net_null_sink{i},no-rx=1")
        self.add_source(capture)
        mask = (1 << (n_ports - 1).bit_length()) - 1
        self.forward("priority=1,actions=drop",
                     *(f"ip,nw_src=10.0.0.{i}/0.0.0.{mask},"
                       f"actions=output:sink{i}" for i in range(n_ports)))

    def set_up_rules(self, capture: Path) -> None:
        self.set_up_one(capture, *(
            f"in_port=source,ip,nw_src=10.0.0.{i}/0.0.0.{N_SPLIT - 1},"
            "actions=output:sink" for i in range(N_SPLIT)))
        # Each of them has to make a batch of its own.
        wait_until(lambda: self.n_flows() == N_SPLIT,
                   f"{N_SPLIT} flows in the datapath")

    def n_flows(self) -> int:
        return self.appctl("dpctl/dump-flows", "netdev@ovs-netdev",
                           "filter=in_port(source)").count("actions:")

    def set_interval(self, interval: int) -> None:
        self.vsctl("set", "Open_vSwitch", ".",
                   f"other_config:tx-flush-interval={interval}")

    def measure(self) -> Rate:
        time.sleep(SECONDS / 3)
        self.appctl("dpif-netdev/pmd-stats-clear")
        time.sleep(SECONDS)
        kpps, burst, cycles, packets = self.perf(
            r"Tx packets: .*\((\d+) Kpps",
            r"Tx batches: .*\(([\d.]+) pkts/batch\)",
            r"Used TSC cycles: +(\d+)", r"Tx packets: +(\d+)")
        if not packets:
            raise Failed("pmd-perf-show has no packets that were sent")
        # The thread may not have cleared them yet.
        return Rate(kpps / 1e3, burst, cycles / packets) if cycles \
            else self.measure()


def run(context: Context) -> None:
    need()
    cores = choose_cores()
    capture = context.directory / "flows.pcap"
    write_capture(capture, [i % N_FLOWS for i in range(N_FLOWS * 4)])
    set_ups: Dict[str, Callable[[TxSwitch], None]] = {
        "full": lambda switch: switch.set_up_one(
            capture, "actions=output:sink"),
        "split": lambda switch: switch.set_up_split(capture, N_SPLIT),
        "single": lambda switch: switch.set_up_split(capture, N_SINGLE),
        "rules": lambda switch: switch.set_up_rules(capture),
    }

    def take_turns(switches: Dict[str, TxSwitch], case: str) -> None:
        found: Dict[str, List[Rate]] = {name: [] for name in switches}
        names = list(switches)
        n_turns = 1 if context.args.quick else TURNS
        for name in (names + names[::-1]) * n_turns:
            with switches[name].running() as switch:
                found[name].append(switch.measure())
        for name, values in found.items():
            for unit, numbers in zip(RATE_UNITS, zip(*values)):
                context.add(case, unit, name, median(numbers))

    for k in range(context.choose("pairs", 11, 2)):
        for kind in context.args.cases or CASES:
            context.progress(f"{kind}: pair {k + 1}")
            with contextlib.ExitStack() as stack:
                stack.enter_context(HugePages(2 * PAGES_PER_SWITCH))
                switches = {}
                for name, tree in [*context.trees.items()][::1 - k % 2 * 2]:
                    switches[name] = stack.enter_context(TxSwitch(
                        tree, context.directory / f"{kind}-{k}-{name}",
                        cores, PAGES_PER_SWITCH))
                    set_ups[kind](switches[name])
                    switches[name].vswitchd.pause()
                for interval in INTERVALS.get(kind, [0]):
                    for switch in switches.values():
                        with switch.running():
                            switch.set_interval(interval)
                    take_turns(switches, f"{kind}, {interval} us"
                               if kind in INTERVALS else kind)
