# SPDX-License-Identifier: Apache-2.0
"""What the statistics of 1,024 ports cost the main thread.

ovs-vswitchd has a bridge with 1,024 ports of a type and no OpenFlow flow, so
that nothing but statistics goes on:

dummy   ports without a system device, userspace datapath
veth    veth devices, userspace datapath
tap     ports of type "internal", that is, tap devices, userspace datapath
kernel  veth devices, kernel datapath; only if there is a kernel module for it

IPv6 is off.  The clock of ovs-vswitchd is stopped, and set forward by the
statistics interval, again and again:

idle   nothing has changed since the round before
busy   each port has sent or received a packet since then

"loop" is how long the loop over all interfaces takes, from when its
transaction has been created until it is committed, as bpftrace sees it.  The
processor time of the main thread tells the rest: "round" is what it takes
until it has nothing left to do, including the transaction with ovsdb-server,
and "step" what it takes to set the clock forward if no statistics are due.  A
round counts only if ovs-vswitchd has read the statistics of each port exactly
once.

In each pair, processes of both trees take turns.  What they have written to
the database must be what the kernel counts.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import List, NamedTuple

from bench.machine import Threads, has_kernel_datapath, need, read
from bench.report import Context
from bench.tracer import Tracer
from tools.switch import Failed, Switch, wait_until

N_PORTS = 1024
N_ROUNDS = 10                   # In each measurement.
INTERVAL = 5000                 # The least stats-update-interval, ms.
KINDS = ("dummy", "veth", "tap", "kernel")
COUNTERS = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")

# Prints how many nanoseconds pass from one to the other in the main thread.
TRACER = """
uprobe:{0}:ovsdb_idl_txn_create /tid == {1}/ {{ @start = nsecs; }}
uprobe:{0}:ovsdb_idl_txn_commit /tid == {1} && @start/ {{
    printf("loop %lld\\n", nsecs - @start);
    @start = (uint64) 0;
}}
"""


class Times(NamedTuple):
    """What a step takes, in ms."""
    loop: float                 # 0 if no statistics are due.
    cpu: float


class StatsSwitch(Switch):
    """A switch with N_PORTS ports of a kind whose clock is stopped."""

    def __init__(self, tree: Path, directory: Path, kind: str) -> None:
        super().__init__(tree, directory, ["--enable-dummy"])
        self.nice = -20
        self.timeout = 300
        self.kind = kind

    def set_up(self) -> None:
        self.start_with_bridge("system" if self.kind == "kernel" else "netdev")
        pid = self.vswitchd.pid
        self.main = Threads(pid).directory / str(pid)
        kind = {"dummy": "dummy", "tap": "internal"}.get(self.kind, "system")
        ports = [f"v{i}" for i in range(N_PORTS)]
        if kind == "system":
            self.add_veths(*(name for port in ports
                             for name in (port, f"w{port}")))
        self.add_ports(ports, f"type={kind}")
        self.ip(*(f"link set {port} up" for port in ports
                  if self.kind == "tap"))
        with self.in_netns():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        binary = os.path.realpath(f"/proc/{pid}/exe")
        self.tracer = Tracer(self, TRACER.format(binary, pid), "-B", "line",
                             "-p", str(pid))
        self.appctl("time/stop")
        for _ in range(4):
            self.step(True)

    def loops(self) -> List[float]:
        """Returns how long all loops have taken, in ms."""
        return [int(line.split()[1]) / 1e6
                for line in self.tracer.output().splitlines()
                if line.startswith("loop ")]

    def count(self) -> int:
        """Returns how often ovs-vswitchd has read a device's statistics."""
        return int(self.appctl("coverage/read-counter", "netdev_get_stats"))

    def settle(self) -> None:
        """Waits until the main thread, whose clock does not run, has nothing
        left to do, nor ovsdb-server, which might answer."""
        pid = self.processes[0].pid
        tasks = [self.main, Threads(pid).directory / str(pid)]
        deadline = time.monotonic() + 30
        n_same = 0
        latest = -1
        while n_same < 5:
            if time.monotonic() > deadline:
                raise Failed("the main thread does not come to rest")
            time.sleep(0.01)
            now = Threads.schedstat(tasks)[0]
            asleep = all(read(task / "stat").rpartition(")")[2].split()[0]
                         == "S" for task in tasks)
            n_same = n_same + 1 if asleep and now == latest else 0
            latest = now

    def step(self, due: bool) -> None:
        """Sets the clock forward; if statistics are 'due', to when they
        are."""
        msec = str(INTERVAL if due else 1)
        self.appctl("time/warp", msec, msec)
        self.settle()

    def send(self) -> None:
        packet = bytes.fromhex("02000000000102000000000208ff") + bytes(46)
        for i in range(N_PORTS):
            self.socket.sendto(packet, (f"v{i}", 0))

    def measure(self, due: bool, busy: bool) -> Times:
        """Returns what a step takes."""
        total = 0
        n = 0
        known = len(self.loops())
        for _ in range(N_ROUNDS):
            if busy:
                self.send()
            before = self.count()
            self.settle()
            start = Threads.schedstat([self.main])[0]
            self.step(due)
            total += Threads.schedstat([self.main])[0] - start
            n += self.count() - before
        if n != (N_ROUNDS * (N_PORTS + 1) if due else 0):
            raise Failed(f"{n} statistics in {N_ROUNDS} rounds of "
                         f"{N_PORTS + 1} ports")
        n_loops = N_ROUNDS if due else 0
        wait_until(lambda: len(self.loops()) >= known + n_loops, "bpftrace")
        loops = self.loops()[known:]
        if len(loops) != n_loops:
            raise Failed(f"{len(loops)} transactions in {n_loops} loops")
        return Times(median(loops) if loops else 0, total / N_ROUNDS / 1e6)

    def verify(self) -> None:
        """Compares the database with the kernel."""
        if self.kind == "dummy":
            return
        # A tap device sends what the switch receives.
        swap = {"rx": "tx", "tx": "rx"} if self.kind == "tap" else {}
        with self.in_netns():
            for i in range(0, N_PORTS, 97):
                dev = f"v{i}"
                found = self.vsctl("get", "Interface", dev, "statistics")
                words = dict(word.split("=") for word in
                             found.strip().strip("{}").split(", "))
                text = subprocess.run(
                    ["ip", "-s", "-j", "link", "show", dev], check=True,
                    stdout=subprocess.PIPE).stdout
                stats = json.loads(text)[0]["stats64"]
                for counter in COUNTERS:
                    way, what = counter.split("_")
                    count = stats[swap.get(way, way)][what]
                    if int(words[counter]) != count:
                        raise Failed(f"{dev}: {counter} is "
                                     f"{words[counter]}, not {count}")


def run_kind(context: Context, kind: str) -> None:
    """Measures what takes how long in which tree, in each pair, in ms."""
    cases = {"step": (False, False), "idle": (True, False)}
    if kind != "dummy":
        cases["busy"] = (True, True)

    def measure(name: str, switch: StatsSwitch) -> None:
        for case, how in cases.items():
            found = switch.measure(*how)
            figures = {f"{case} round" if how[0] else case: found.cpu}
            if how[0]:
                figures[f"{case} loop"] = found.loop
            for what, ms in figures.items():
                context.add(f"{kind}, {what}", "ms", name, ms)

    context.compare(f"{N_PORTS} ports, {kind}",
                    lambda tree, where: StatsSwitch(tree, where, kind),
                    measure, StatsSwitch.verify)


def run(context: Context) -> None:
    need("bpftrace")
    for kind in context.args.kinds or KINDS:
        if kind == "kernel" and not has_kernel_datapath():
            print("  kernel: there is no openvswitch module here")
            continue
        run_kind(context, kind)
