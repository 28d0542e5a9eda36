# SPDX-License-Identifier: Apache-2.0
"""How many instructions it takes to have many idle ports.

ovs-vswitchd runs under valgrind's callgrind with a bridge of N dummy ports and
one flow, whose action is to flood.  What is counted are instructions of the
main thread within bridge_run() and bridge_wait(), for

wake-up   one iteration of the main loop, which polls all ports: the average of
          those that requests of ovs-appctl take that do nothing;
stats     a request that sets the clock, which stands still, forward by 5 s, so
          that the statistics of all ports are read.  None have changed.
flood     a packet that a port receives and that goes to all others; its flow
          is there already.  Another process counts this, only within
          dpif_netdev_run(), which polls, looks up and sends.

N requests and 3 N, subtracted, leave out what does not depend on their number.
How often the main loop runs for a request is not always the same, so the
iterations are counted, too, and what those without a packet take is not part
of stats and flood.

A tree that has accounting is measured twice, with it off and on, by the same
process.
"""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import Dict, List, Tuple

from bench.callgrind import CallgrindSwitch, Count, parse_profile
from bench.machine import need
from bench.packets import make_packet
from bench.report import Context
from tools.switch import Failed

PORTS = (100, 1000, 3000)
N_REQUESTS = 10
# Bursts that are timed, of each port, after which memory need not be allocated
# for most times, and few are among the slowest.  If one in TIMED is, they take
# about as long as later, when it is one in 64.
N_TIMED = 20
TIMED = 4

# What each process does, the functions within which it counts, and one that
# these call once in each iteration of the main loop.
CASES = {"stats": (["bridge_run", "bridge_wait"], "ovsdb_idl_run"),
         "flood": (["dpif_netdev_run"], "tnl_port_map_run")}

# Of a tree that has accounting: "other_config:cost-accounting".
VARIANTS = {"off": "false", "patched": "true"}


class FloodSwitch(CallgrindSwitch):
    """A switch under callgrind that floods.  Counts what happens in 'case', a
    key of CASES."""

    def __init__(self, tree: Path, directory: Path, n_ports: int,
                 case: str) -> None:
        functions, self.iteration = CASES[case]
        self.floods = case == "flood"
        super().__init__(tree, directory, functions,
                         ["--enable-dummy", "--disable-system"])
        self.timeout = 1800
        self.start_with_bridge("dummy",
                               "other_config:stats-update-interval=5000",
                               "other_config:max-idle=3600000",
                               "other_config:max-revalidator=3600000")
        self.add_ports((f"p{i}" for i in range(n_ports)), "type=dummy")
        self.add_flows("actions=flood")
        self.appctl("time/stop")
        self.instrument()

    def variants(self) -> List[str]:
        """Returns VARIANTS, or nothing if there is no accounting."""
        if "cost/show" in self.appctl("list-commands"):
            return list(VARIANTS)
        return []

    def configure(self, *settings: str) -> None:
        self.instrument(False)          # It takes minutes.
        self.vsctl("set", "Open_vSwitch", ".",
                   *(f"other_config:{setting}" for setting in settings))
        self.instrument()

    def switch_accounting(self, variant: str) -> None:
        self.configure(f"cost-accounting={VARIANTS[variant]}",
                       f"cost-sample-interval-tx={TIMED}")
        for _ in range(TIMED * N_TIMED if self.floods else 0):
            self.flood()
        self.configure("cost-sample-interval-tx=64")

    def wake_up(self) -> None:
        self.appctl("version")

    def flood(self) -> None:
        self.appctl("netdev-dummy/receive", "p0", make_packet(1).hex())
        self.wake_up()                  # What was received comes after this.

    def stats(self) -> None:
        self.appctl("time/warp", "5000", "5000")
        self.wake_up()                  # Replies after a warp are early.

    def counted(self) -> Tuple[Count, int]:
        """Returns the instructions, and the number of iterations of the main
        loop, since the last time."""
        text = self.dump()
        function = re.search(rf"fn=\((\d+)\) {self.iteration}$", text, re.M)
        if not function:
            return parse_profile(text), 0
        calls = re.findall(rf"\ncfn=\({function.group(1)}\).*\n"
                           r"calls=(\d+)", text)
        return parse_profile(text), sum(map(int, calls))

    def settle(self) -> None:
        """Waits until an iteration takes what those before did: the kernel
        tells of devices, and what becomes of them, for a while."""
        last = 0.0
        for _ in range(100):
            for _ in range(N_REQUESTS):
                self.wake_up()
            count, iterations = self.counted()
            each = count.total / max(iterations, 1)
            if abs(each - last) < 0.01 * each:
                return
            last = each
            time.sleep(0.5)
        raise Failed("iterations of the main loop differ")

    def measure(self, what: str, wake_up: Count = Count(0, 0, 0)) -> Count:
        """Returns what a request takes, without iterations of the main loop if
        'wake_up' is what each of them takes, or what an iteration takes."""
        request = {"wake-up": self.wake_up, "flood": self.flood,
                   "stats": self.stats}[what]
        request()
        self.counted()
        counts = []
        for n in (N_REQUESTS, 3 * N_REQUESTS):
            for _ in range(n):
                request()
            counts.append(self.counted())
        (few, few_iterations), (many, many_iterations) = counts
        iterations = many_iterations - few_iterations
        if iterations <= 0:
            raise Failed("the main loop did not run under callgrind")

        def each(few: float, many: float, wake_up: float) -> float:
            if what == "wake-up":
                return (many - few) / iterations
            return (many - few - iterations * wake_up) / (2 * N_REQUESTS)
        return Count(*map(each, few, many, wake_up))


def run(context: Context) -> None:
    need("valgrind")
    for n_ports in context.args.ports or PORTS:
        counts: Dict[str, Dict[str, List[Count]]] = {}
        for case, n, (name, tree) in itertools.product(
                CASES, range(context.choose("rounds", 3, 1)),
                context.trees.items()):
            where = context.directory / f"{name}-{n_ports}-{case}-{n}"
            with FloodSwitch(tree, where, n_ports, case) as switch:
                variants = switch.variants() if name == "patched" else []
                for variant in variants[::1 - n % 2 * 2] or [name]:
                    if variants:
                        switch.switch_accounting(variant)
                    switch.settle()
                    wake_up = switch.measure("wake-up")
                    values = {case: switch.measure(case, wake_up)}
                    if case == "stats":
                        values["wake-up"] = wake_up
                    for what, value in values.items():
                        counts.setdefault(what, {}).setdefault(
                            variant, []).append(value)
            context.progress(f"{n_ports:,} ports, {name}: {case}")
        for what, found in counts.items():
            case = f"{what}, {n_ports:,} dummy ports"
            for name, each in found.items():
                context.add(case, "instructions", name,
                            *(count.total for count in each))
            for on, off in zip(found["patched"], found.get("off", [])):
                context.add(case, "instructions a port", "accounting",
                            (on.ours - off.ours - on.growth) / n_ports)
                context.add(case, "instructions a port", "growth",
                            on.growth / n_ports)
