# SPDX-License-Identifier: Apache-2.0
"""What accounting for upcalls from the kernel datapath costs.

Sends packets of new flows into the kernel datapath, in storms that are handled
in turn by:

  stock  ovs-vswitchd of the tree STOCK
  off    that of the tree OVS, accounting is off
  on     the same process, accounting is on, as by default
  queue  and includes the time in the queue
  trace  stock, while bpftrace counts the same upcalls

What is compared is the processor time of an upcall: that of the handler
threads and of the sender, in whose name the kernel does its part.  'make
bench-kernel-vm' runs this in a virtual machine whose clocks count
instructions, so that a microsecond is 1,000 instructions, of the kernel and of
ovs-vswitchd, and storms of one variant differ by less than a percent.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from bench.machine import NotHere, Threads, has_kernel_datapath, need, read
from bench.packets import make_packet
from bench.report import Context
from bench.tracer import Tracer
from tools.switch import Failed, Switch, libc, wait_until

TRACE = """
tracepoint:openvswitch:ovs_dp_upcall { @n_upcall = count(); }
usdt:%(bin)s:dpif_recv:recv_upcall { @n_recv = count(); }
usdt:%(bin)s:dpif_netlink_operate__:op_flow_put { @n_put = count(); }
usdt:%(bin)s:dpif_netlink_operate__:op_flow_execute { @n_execute = count(); }
kprobe:ovs_packet_cmd_execute { @n_kernel_execute = count(); }
"""


def named_tree(text: str) -> Tuple[str, str]:
    name, tree = text.split("=", 1)
    return name, tree


# The options of bench/run.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "--burst": dict(type=int, metavar="N", help="kernel: packets sent at "
                    "once; they must fit into a socket's buffer (default: 400;"
                    " batches: all)"),
    "--trees": dict(nargs="+", metavar="NAME=DIR", default=[],
                    type=named_tree,
                    help="batches: compare these trees"),
    "--sizes": dict(type=int, nargs="+", default=[100, 1000], metavar="N",
                    help="batches: packets of new flows"),
}

# Seconds in which all upcalls of a burst have been handled.
PAUSE = 0.1
# What is kept of the total of a storm.
TOTALS = ("mean", "p50", "p90", "p99", "max")


class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class MsgHdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint),
                ("iov", ctypes.POINTER(IoVec)), ("iovlen", ctypes.c_size_t),
                ("control", ctypes.c_void_p),
                ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]


class MMsgHdr(ctypes.Structure):
    _fields_ = [("hdr", MsgHdr), ("len", ctypes.c_uint)]


class Cost(NamedTuple):
    """Processor time of an upcall, in us."""
    handlers: float
    sender: float

    def total(self) -> float:
        return self.handlers + self.sender


class StormSwitch(Switch):
    """A switch with a port that packets of new flows come from."""

    timeout = 600

    def __init__(self, tree: Path, directory: Path, burst: int) -> None:
        super().__init__(tree, directory)
        self.burst = burst

    def set_up(self) -> None:
        self.start_with_bridge("system", "other_config:flow-limit=200000",
                               "other_config:max-idle=3600000")
        self.add_veths("p0", "p1")
        self.ip("link set br0 up")
        self.vsctl("add-port", "br0", "p0")
        self.add_flows("in_port=p0,udp,actions=LOCAL")
        self.appctl("upcall/disable-megaflows")
        with self.in_netns():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self.socket.bind(("p1", 0))
        self.softirq = [p for p in Path("/proc").iterdir() if p.name.isdigit()
                        and read(p / "comm").startswith("ksoftirqd/")]

    def n_flows(self) -> int:
        text = self.appctl("dpctl/show", "system@ovs-system")
        return int(text.split("flows: ")[1].split()[0])

    def send(self, frames: List[bytes]) -> int:
        """Returns the processor time that it takes, in ns."""
        buffers = [ctypes.create_string_buffer(f, len(f)) for f in frames]
        vectors = (IoVec * len(frames))()
        messages = (MMsgHdr * len(frames))()
        for i, buffer in enumerate(buffers):
            vectors[i] = IoVec(ctypes.addressof(buffer), len(buffer))
            messages[i].hdr.iov = ctypes.pointer(vectors[i])
            messages[i].hdr.iovlen = 1
        before = time.process_time_ns()
        n = libc.sendmmsg(self.socket.fileno(), messages, len(frames), 0)
        took = time.process_time_ns() - before
        if n != len(frames):
            raise Failed(f"sent {n} of {len(frames)} packets")
        return took

    def clear(self) -> None:
        """Removes all flows."""
        self.appctl("revalidator/purge")
        wait_until(lambda: self.n_flows() == 0, "the flows to go")

    def send_all(self, n: int) -> int:
        """Sends 'n' packets.  Returns the processor time that it takes, in
        ns."""
        took = 0
        for i in range(0, n, self.burst):
            took += self.send([make_packet(j) for j in
                               range(i, min(i + self.burst, n))])
            time.sleep(PAUSE)
        return took

    def storm(self, n: int) -> Cost:
        """Sends 'n' packets of new flows."""
        self.clear()
        tasks = Threads(self.vswitchd.pid).find("handler"), self.softirq
        before = [Threads.schedstat(each)[0] for each in tasks]
        sender = self.send_all(n)
        self.check()
        after = [Threads.schedstat(each)[0] for each in tasks]
        if self.n_flows() != n:
            raise Failed(f"{n} packets have made {self.n_flows()} flows")
        return Cost((after[0] - before[0]) / n / 1e3,
                    (after[1] - before[1] + sender) / n / 1e3)


# Settings of the tree with the series.
VARIANTS = {
    "off": {"accounting": "false", "kernel-queue": "false"},
    "on": {"accounting": "true", "kernel-queue": "false"},
    "queue": {"accounting": "true", "kernel-queue": "true"},
}


def run_variant(switch: StormSwitch, variant: str, n: int) -> Cost:
    switch.vsctl("set", "Open_vSwitch", ".", *(
        f"other_config:cost-{name}={value}"
        for name, value in VARIANTS[variant].items()))
    # Handlers turn it on when they have received something.
    switch.storm(20)
    switch.appctl("upcall/cost-clear")
    cost = switch.storm(n)
    shown, = switch.accounts("upcall", "ovs-system")
    # Stages without times are not there.
    queue, split = (shown["stages"].get(stage, {"count": 0})["count"]
                    for stage in ("queue", "translate"))
    if (shown["events"] != (n if variant != "off" else 0)
            or bool(queue) != (variant == "queue")
            or queue not in (0, split)
            or sum(shown["counters"]["queue"].values())):
        raise Failed(f"{variant}: wrong counts:\n"
                     + switch.appctl("upcall/cost-show", "ovs-system")
                     + switch.appctl("upcall/cost-queue"))
    return cost


def run_traced(switch: StormSwitch, n: int) -> Cost:
    tracer = Tracer(switch, TRACE % {
        "bin": switch.tree / "vswitchd/ovs-vswitchd"}, "-B", "none")
    cost = switch.storm(n)
    text = tracer.finish()
    if text.count(f": {n}\n") != 5:
        raise Failed(f"bpftrace has not counted {n} of each:\n{text}")
    return cost


def measure_pair(pair: int, context: Context) -> None:
    """Starts both switches anew, and sends a storm to each variant."""
    directory = context.directory
    n = context.choose("packets", 2000, 200)
    burst = context.args.burst or 400
    with StormSwitch(context.stock, directory / f"stock{pair}",
                     burst) as stock, \
            StormSwitch(context.ovs, directory / f"ovs{pair}", burst) as ovs:
        for switch in stock, ovs:
            switch.set_up()
            switch.storm(n)     # Memory is new here.
        variants = ["stock", *VARIANTS]
        if pair % 2:
            variants.reverse()
        if shutil.which("bpftrace"):
            variants.append("trace")
        for variant in variants:
            if variant == "stock":
                stock.storm(20)
                cost = stock.storm(n)
            elif variant == "trace":
                cost = run_traced(stock, n)
            else:
                cost = run_variant(ovs, variant, n)
            # Nanoseconds are instructions.
            context.add("an upcall", "ns", variant, cost.total() * 1e3)
            context.progress(f"pair {pair + 1}, {variant}: handlers "
                             f"{cost.handlers:.2f} us, sender "
                             f"{cost.sender:.2f} us an upcall")


def learn(tree: Path, directory: Path, n: int,
          burst: int) -> Tuple[Cost, Dict[str, Any]]:
    """Starts a switch, and sends it 'n' packets of new flows.  Also returns
    what a switch with accounting reports of them."""
    with StormSwitch(tree.resolve(), directory, burst) as switch:
        switch.set_up()
        has_cost = "upcall/cost-show" in switch.appctl("list-commands")
        switch.vsctl("set", "Open_vSwitch", ".",
                     "other_config:cost-kernel-queue=true",
                     "other_config:cost-sample-interval=1")
        switch.storm(n)         # Memory is new here.
        if has_cost:
            switch.appctl("upcall/cost-clear")
        cost = switch.storm(n)
        if not has_cost:
            return cost, {}
        shown, = switch.accounts("upcall", "-hist", "ovs-system")
        stages: Dict[str, Any] = shown["stages"]
        if shown["events"] != n or stages["queue"]["count"] != n:
            raise Failed(f"not every one of {n} upcalls has been timed")
        return cost, stages


def prepare() -> None:
    need()
    if not has_kernel_datapath():
        raise NotHere("it needs the openvswitch module")
    # Handlers wait until a burst is complete.
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK,
                          os.sched_param(1))


def batches(context: Context) -> None:
    """Measures what an upcall takes with each of the trees, and, of those with
    accounting, the 'total' that they report of each storm."""
    prepare()
    if not context.args.trees:
        raise NotHere("it needs --trees")
    trees = dict(context.args.trees)
    for n in context.args.sizes:
        for pair, name in context.turns(trees, 9, 2):
            cost, stages = learn(
                Path(trees[name]), context.directory / f"{n}-{name}-{pair}",
                n, context.args.burst or n)
            context.add(f"{n} flows", "ns", name, cost.total() * 1e3)
            context.progress(f"{n} flows, pair {pair + 1}, {name}: "
                             f"{cost.total():.2f} us an upcall")
            for what in TOTALS if stages else ():
                context.add(f"{n} flows, total, {what}", "us", name,
                            stages["total"][what] / 1e3)


def run(context: Context) -> None:
    prepare()
    for pair in range(context.choose("pairs", 9, 2)):
        measure_pair(pair, context)
