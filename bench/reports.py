# SPDX-License-Identifier: Apache-2.0
"""How long the main thread takes for a report, at a time.

A switch has 3,000 dummy ports, to each of which 32 PMD threads have sent.
Each report is asked for in text and in JSON, at its defaults and with as many
accounts, and all of their threads, as a reply has room for.  What is taken is
what "bridge/cost-show" has as the longest time that the main loop, which has a
CPU of its own then, spent on commands in one iteration.  "nothing" is that of
the command that clears this number.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from bench.machine import Cores, Threads, choose_cores, on_cpus
from bench.packets import make_packet
from bench.report import Context
from tools.switch import Switch, wait_until

N_PORTS = 3000
N_THREADS = 32
REPORTS = ["upcall", "tx", "bridge", "netlink", "revalidator"]
N_ROUNDS = 9                    # Of each report.


class ScaleSwitch(Switch):
    """A switch whose PMD threads flood to 'n_ports' dummy ports what they
    receive from the port "source", each from an rx queue of its own."""

    def __init__(self, tree: Path, directory: Path, n_ports: int,
                 n_threads: int) -> None:
        super().__init__(tree, directory, [
            "--enable-dummy", "--disable-system",
            "--dummy-numa=" + ",".join(["0"] * n_threads)])
        # As many of malloc's arenas as on a host with a CPU for each of them:
        # the C library has 8 for each.  If threads share them, the main thread
        # waits while another one frees.
        self.env["MALLOC_ARENA_MAX"] = str(8 * n_threads)
        self.timeout = 600
        self.start_with_bridge(
            "dummy", f"other_config:pmd-cpu-mask={(1 << n_threads) - 1:#x}",
            # All of them share the CPUs that there are.
            "other_config:pmd-sleep-max=10000",
            "other_config:max-idle=3600000",
            "other_config:max-revalidator=3600000")
        self.add_ports((f"p{i}" for i in range(n_ports)), "type=dummy")
        self.add_ports(["source"], "type=dummy-pmd",
                       f"options:n_rxq={n_threads}")
        self.add_flows("in_port=source,actions=flood")

    def flood(self, queue: int) -> None:
        """Has a packet sent to all ports, by the thread of rx 'queue'."""
        self.appctl("dpif-netdev/pmd-stats-clear")
        self.appctl("netdev-dummy/receive", "source", "--qid", str(queue),
                    make_packet(1).hex())
        wait_until(lambda: bool(re.search(
            # 0 until it has been sent.
            r"Rx packets: +1 .*\b[1-9]\d* cycles/pkt",
            self.appctl("dpif-netdev/pmd-stats-show"))), "a packet")

    def isolate_main(self, cores: Cores) -> None:
        """Gives the main thread a CPU of its own: everything else of this
        benchmark gets another one."""
        threads = Threads(self.vswitchd.pid).find("")
        for pid in [int(task.name) for task in threads] + [
                os.getpid(), *(process.pid for process in self.processes)]:
            os.sched_setaffinity(pid, {cores.pmd})
        os.sched_setaffinity(self.vswitchd.pid, {cores.main})


def run(context: Context) -> None:
    quick = context.args.quick
    n_ports, n_threads = (100, 4) if quick else (N_PORTS, N_THREADS)
    context.progress(f"{n_ports:,} ports, {n_threads} threads")
    cores = choose_cores()
    with on_cpus(os.sched_getaffinity(0)), ScaleSwitch(
            context.ovs, context.directory / "switch", n_ports,
            n_threads) as switch:
        for queue in range(n_threads):
            switch.flood(queue)
        context.progress("all threads have sent to all ports")
        switch.appctl("tx/cost-show")   # Creates the thread that reads.
        switch.isolate_main(cores)

        def measure(name: str, *command: str) -> None:
            for _ in range(2 if quick else N_ROUNDS):
                switch.appctl("bridge/cost-clear")
                if command:
                    switch.appctl(*command)
                loop = switch.accounts("bridge", "main-loop")[0]
                context.add(name, "us", "patched",
                            loop["stages"]["appctl"]["max"] / 1e3)

        measure("nothing")
        for name in [f"{report}/cost-show" for report in REPORTS] + [
                "cost/show"]:
            everything = [name, "-n", "all"]
            if name != "cost/show":
                everything.append("-thread")
                measure(f"{name}, text", name)
                measure(f"{name}, text, all", *everything)
            measure(f"{name}, JSON", "--format", "json", name)
            measure(f"{name}, JSON, all", "--format", "json", *everything)
            context.progress(name)
