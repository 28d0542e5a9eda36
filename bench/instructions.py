# SPDX-License-Identifier: Apache-2.0
"""How many instructions an upcall, and an OpenFlow rule, take: the companion
without noise.

ovs-vswitchd runs under valgrind's callgrind, with the dummy datapath, which
is the userspace datapath without a NIC.  Packets of new flows go through the
same pipeline of one flow, one at a time, in the main thread.  All that
dp_netdev_input__() does for them is counted: looking the packet up, the
upcall, and executing the actions.  What N packets and 5 N packets take,
subtracted, leaves out what does not depend on the number of packets.  A rule
is an OFPT_FLOW_MOD and an OFPT_BARRIER_REQUEST, as ovs-ofctl sends them: what
connmgr_run() does is counted.

Two results each: the whole upcall or rule, which varies by some 0.3% because
hash tables are scrambled differently each time, and those of its instructions
that come from the source files of the accounting or are called from there,
which vary by next to nothing.

Instructions are not time.  Reading the time stamp counter is one instruction
but takes some 10 to 25 ns, and under valgrind no cache ever misses.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

from bench.callgrind import CallgrindSwitch, Count, parse_profile
from bench.machine import NotHere, need
from bench.packets import make_packet
from bench.report import Context
from bench.upcalls import STOCK, VARIANTS, Variant
from tools.switch import Failed, wait_until

# What is counted, and the function within which it is.
EVENTS = {"an upcall": "dp_netdev_input__", "a rule": "connmgr_run"}
N_WARM_UP = 100                         # Packets or rules.
N_EVENTS = 200                          # And five times that.
N_AT_ONCE = 50                          # What netdev-dummy queues is limited.


class CountedSwitch(CallgrindSwitch):
    """A switch under callgrind."""

    def __init__(self, tree: Path, directory: Path, event: str) -> None:
        super().__init__(tree, directory, [EVENTS[event]],
                         ["--enable-dummy=override", "--disable-system"])
        self.timeout = 120
        self.next_number = 0
        self.cause = {"an upcall": self.inject,
                      "a rule": self.add_rules}[event]

    def set_up(self) -> None:
        """Starts the switch and makes it ready for packets."""
        try:
            self.start_with_bridge("dummy",
                                   "other_config:emc-insert-inv-prob=0",
                                   "other_config:flow-limit=200000",
                                   "other_config:max-idle=36000000",
                                   "other_config:max-revalidator=36000000")
        except Failed:
            if self.vswitchd.popen.poll() == -signal.SIGILL:
                raise NotHere(f"{self.tree} is built for a CPU that valgrind "
                              "does not know; -march=haswell is fine")
            raise
        self.add_ports(["p1", "p2"], "type=dummy")
        self.add_flows("in_port=p1,actions=output:p2")
        self.appctl("upcall/disable-megaflows")
        self.appctl("upcall/set-flow-limit", "200000")
        # After each tick, the next upcalls are the slowest so far.  Callgrind
        # is so slow that these would be a large part of all.
        self.appctl("time/stop")
        self.instrument()

    def n_upcalls(self) -> int:
        match = re.search(r"missed:(\d+)", self.appctl("dpctl/show"))
        return int(match.group(1)) if match else 0

    def inject(self, n: int) -> None:
        """Has 'n' upcalls."""
        expected = self.n_upcalls()
        while n:
            now = min(n, N_AT_ONCE)
            self.appctl("netdev-dummy/receive", "p1", *(
                make_packet(self.next_number + i).hex() for i in range(now)))
            self.next_number += now
            expected += now
            n -= now
            wait_until(lambda: self.n_upcalls() >= expected, "upcalls")
        if self.n_upcalls() != expected:
            raise Failed("there are more upcalls than packets")

    def add_rules(self, n: int) -> None:
        first = self.next_number
        self.next_number += n
        self.add_flows(*(f"table=1,reg0={i},actions=drop"
                         for i in range(first, self.next_number)))

    def counted(self) -> Count:
        """Returns what was counted since the last time."""
        count = parse_profile(self.dump())
        if not count.total:
            raise Failed("callgrind has not seen the function")
        return count

    def measure(self, variant: Variant) -> Count:
        """Returns instructions per event."""
        if variant.patched:
            self.vsctl(*variant.settings()[1:])
        self.appctl("revalidator/purge")
        self.run("ovs-ofctl", "del-flows", "br0", "table=1")
        self.cause(N_WARM_UP)
        self.counted()
        self.cause(N_EVENTS)
        few = self.counted()
        self.cause(N_EVENTS * 5)
        many = self.counted()
        return Count(*((b - a) / (N_EVENTS * 4) for a, b in zip(few, many)))


def run_switches(context: Context, event: str) -> None:
    n_rounds = context.choose("rounds", 5, 1)
    trees = ((context.stock, [STOCK]),
             (context.ovs, [v for v in VARIANTS if v.patched]))
    for tree, variants in trees:
        where = context.directory / f"{variants[0].name}-{EVENTS[event]}"
        with CountedSwitch(tree, where, event) as switch:
            switch.set_up()
            # The first time, tables grow that will not shrink again.
            switch.measure(variants[0])
            for number in range(n_rounds):
                for variant in variants:
                    count = switch.measure(variant)
                    context.add(event, "instructions", variant.name,
                                count.total)
                    context.add(f"{event}, of accounting", "instructions",
                                variant.name, count.ours)
                context.progress(f"{event}, {tree.name}: round {number + 1} "
                                 f"of {n_rounds}")


def run(context: Context) -> None:
    need("valgrind", "vgdb")
    for event in EVENTS:
        run_switches(context, event)
