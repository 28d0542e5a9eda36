# SPDX-License-Identifier: Apache-2.0
"""What it takes of a processor to forward packets.

Packets come from a veth device at fixed rates, and
go to one other, or to two in turn.  Contenders:

af_packet         the userspace datapath, with packet sockets and no PMD
                  thread: the main thread forwards
AF_XDP            the same with a PMD thread, in copy mode
net_af_packet     the same with DPDK's device for packet sockets
kernel            the kernel datapath
XDP               the kernel: a BPF program redirects

One processor forwards: what packets take is how long its threads run.
bench/forwarding.rst has results, and says what they mean.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from pathlib import Path
from statistics import quantiles
from typing import Any, Dict, List

from bench.dpdk import CYCLES, DpdkSwitch
from bench.machine import (HugePages, NotHere, Threads, choose_cores, need,
                           on_cpus, read)
from bench.packets import make_packet
from bench.report import Context
from tools.switch import Failed, wait_until

HERE = Path(__file__).resolve().parent
CONTENDERS = ["af_packet", "AF_XDP", "net_af_packet", "kernel", "XDP"]
PAGES = 256                     # Huge pages, of 2 MB.
SATURATION = 0                  # As a rate: as many as can be sent.
N_FLOWS = 64                    # Of single packets.
N_SINGLE = 4000
GAP_NS = 200e3                  # From one of them to the next.
SLACK = 0.4                     # Seconds that packets come before or after.
# The options of bench/run.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "--contenders": dict(nargs="+", choices=CONTENDERS, default=CONTENDERS,
                         help="forwarding: (default: all)"),
    "--rates": dict(type=int, nargs="+", metavar="N",
                    default=[50000, 100000, 200000, 400000],
                    help="forwarding: packets a second, before as many as can "
                    "be sent"),
}


def run_first(thread: int, cpu: int, priority: int) -> None:
    """Has 'thread' run on 'cpu', ahead of what has no priority."""
    os.sched_setaffinity(thread, {cpu})
    os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))


def packet_socket(device: str, protocol: int = 0) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((device, protocol))
    return sock


class Forwarder(DpdkSwitch):
    """Forwards packets from "in" and fw0 to "out" and "out2"."""

    def __init__(self, name: str, tree: Path, directory: Path) -> None:
        super().__init__(tree, directory, choose_cores(), PAGES)
        self.name = name
        self.has_pmd = name in ("AF_XDP", "net_af_packet")

    def in_ns(self, *command: str) -> str:
        with self.in_netns():
            return self.run(*command)

    def threaded(self, device: str, cpu: int) -> Path:
        """Has 'device' receive in a thread of its own on 'cpu', first, as in
        an interrupt; returns the thread."""
        def threads() -> List[Path]:
            return [p.parent for p in Path("/proc").glob("[0-9]*/comm")
                    if read(p).startswith(f"napi/{device}-")]

        before = threads()
        self.in_ns("ethtool", "-K", device, "gro", "on")
        self.in_ns("unshare", "--mount", "sh", "-c",
                   "mount -t sysfs none /sys && "
                   f"echo 1 > /sys/class/net/{device}/threaded")
        new = [p for p in threads() if p not in before]
        if len(new) != 1:
            raise NotHere("the kernel has no threads that receive")
        run_first(int(new[0].name), cpu, 2)
        return new[0]

    def set_up(self) -> None:
        """Starts the contender."""
        if self.name == "net_af_packet":
            self.start_dpdk()
        else:
            # Of the switch, XDP only has the network namespace.
            self.start_database()
            self.vsctl("--no-wait", "set", "Open_vSwitch", ".",
                       f"other_config:pmd-cpu-mask={1 << self.cores.pmd:#x}")
            self.start()
            if self.name != "XDP":
                self.add_bridge()
        for i, peer in enumerate(("in", "out", "out2")):
            self.add_veths(f"fw{i}", peer)
        self.forwarders = [self.threaded(
            "fw0", self.cores.main if self.has_pmd else self.cores.pmd)]
        for device in "out", "out2":
            self.threaded(device, self.cores.main)
        if self.name == "XDP":
            self.redirect()
        else:
            self.add_switch_ports()
        self.accounted = (self.name not in ("kernel", "XDP") and "tx/cost-show"
                          in self.appctl("list-commands"))
        # Odd, for two ports in turn.
        self.vsctl("set", "Open_vSwitch", ".",
                   "other_config:cost-sample-interval-tx=63")

    def add_bridge(self) -> None:
        kind = "system" if self.name == "kernel" else "netdev"
        try:
            self.vsctl("add-br", "br0", "--", "set", "Bridge", "br0",
                       f"datapath_type={kind}", "fail-mode=secure")
        except Failed:
            if self.name != "kernel":
                raise
            raise NotHere("the kernel has no module for Open vSwitch")

    def redirect(self) -> None:
        indexes = {i: json.loads(self.in_ns(
            "ip", "-json", "link", "show", f"fw{i}"))[0]["ifindex"]
            for i in (1, 2)}
        program = self.directory / "forwarding.o"
        include, = self.run("cc", "-print-multiarch").split()
        self.run("clang", "-O2", "-target", "bpf", f"-I/usr/include/{include}",
                 *(f"-DOUT{i}={index}" for i, index in indexes.items()), "-c",
                 str(HERE / "forwarding.bpf.c"), "-o", str(program))
        try:
            self.in_ns("ip", "link", "set", "fw0", "xdpdrv", "object",
                       str(program), "section", "xdp")
        except Failed as error:
            raise NotHere(f"no XDP: {error}")

    def add_switch_ports(self) -> None:
        settings = {
            "af_packet": ["type=system"], "kernel": ["type=system"],
            "AF_XDP": ["type=afxdp", "options:xdp-mode=native"],
            "net_af_packet": ["type=dpdk",
                              "options:dpdk-devargs=net_af_packet{0},"
                              "iface=fw{0}"]}[self.name]
        try:
            for i in range(3):
                name = f"{'p' if self.name == 'net_af_packet' else 'fw'}{i}"
                self.add_ports([name], *(s.format(i) for s in settings),
                               f"ofport_request={i + 1}")
        except Failed as error:
            raise NotHere(f"no {self.name}: {error}")
        flows = [f"in_port=1,dl_dst=50:54:00:00:00:0{i + 1},"
                 f"actions=output:{i + 1}" for i in (1, 2)]
        if self.has_pmd:
            self.forward(*flows)
        else:
            self.add_flows(*flows)
        if self.name == "af_packet":
            pid = self.vswitchd.pid
            run_first(pid, self.cores.pmd, 1)
            self.forwarders.append(Path(f"/proc/{pid}/task/{pid}"))

    def devices(self) -> Dict[str, List[int]]:
        with self.in_netns():
            text = read(Path("/proc/thread-self/net/dev"))
        return {name.strip(): list(map(int, values.split()))
                for name, _, values in (line.partition(":")
                                        for line in text.splitlines()[2:])}

    def received(self) -> int:
        return sum(self.devices()[name][1] for name in ("out", "out2"))

    def counts(self) -> Dict[str, int]:
        """Returns the packets that were received, and where others were
        dropped: by devices, of which veth counts full rings; by sockets, which
        "ss" has, or OVS for AF_XDP; and by the switch, on output."""
        found = self.devices()
        counts = {"received": self.received(),
                  "devices": sum(found[name][i] for name in (
                      "in", "fw0", "fw1", "fw2") for i in (3, 11)),
                  "sockets": sum(map(int, re.findall(
                      r",d(\d+)\)", self.in_ns("ss", "-0", "-m", "-a"))))}
        if self.name == "AF_XDP":
            # Once in five seconds; see rate().
            counts["sockets"] += sum(map(int, re.findall(
                r"xsk_queue_\d+_rx_(?:dropped|queue_full)\w*=(\d+)",
                self.vsctl("get", "Interface", "fw0", "statistics"))))
        elif self.name == "kernel":
            # Upcalls that there was no room for.
            lost, = re.findall(r" lost:(\d+)", self.appctl("dpctl/show"))
            counts["switch"] = int(lost)
        elif self.has_pmd:
            # Its ring has a counter that DPDK does not show.
            ports = self.appctl("dpctl/show", "-s").split("\n  port ")
            values = {port.split()[1]: re.findall(
                r"[RT]X packets:(\d+).* dropped:(\d+)", port)
                for port in ports if "(dpdk" in port}
            counts["sockets"] += found["fw0"][1] - int(values["p0"][0][0])
            counts["switch"] = sum(int(values[port][1][1])
                                   for port in ("p1", "p2"))
        return counts

    def busy(self) -> float:
        """Returns what a packet has taken of the PMD thread since
        pmd-stats-clear, in ns."""
        seconds, used, percent, cycles = self.perf(
            r"duration: ([\d.]+) s", r"Used TSC cycles: +(\d+)",
            r"Used TSC cycles: +\d+ +\( *([\d.]+) %", CYCLES)
        if not cycles:
            raise Failed("pmd-perf-show has no packets")
        return cycles * seconds * 1e9 * percent / 100 / used

    def sending(self) -> float:
        """Returns the ns to send a packet, since tx/cost-clear, without those
        that it waits in an output queue."""
        ns = n_packets = 0
        for account in self.accounts("tx"):
            n_packets += account["counters"]["sent"]["packets"]
            if account["stages"]["send"]["count"]:
                ns += account["events"] * account["stages"]["send"]["mean"]
        return ns / max(n_packets, 1)

    def rate(self, rate: int, n_out: int, seconds: int) -> Dict[str, float]:
        """Sends 'rate' packets a second; returns what that took."""
        if self.accounted:
            # Not later: at saturation, the main thread does not answer.
            self.appctl("tx/cost-clear")
        before = self.counts()
        sender = self.spawn("sender", [
            "nsenter", "--net", f"--target={self.vswitchd.pid}", "taskset",
            "--cpu-list", str(self.cores.main), "sh", "-c",
            'exec "$@" < "$0"', str(self.directory / "packet"),
            str(self.directory.parent / "sender"), "in", str(rate),
            str(seconds + SLACK), str(n_out)], nice=-10)
        wait_until(lambda: self.received() > before["received"], "packets")
        if self.has_pmd:
            self.appctl("dpif-netdev/pmd-stats-clear")
        ran = Threads.schedstat(self.forwarders)[0]
        received, start = self.received(), time.monotonic()
        time.sleep(seconds)
        received = max(self.received() - received, 1)
        elapsed = time.monotonic() - start
        ran = Threads.schedstat(self.forwarders)[0] - ran
        if self.has_pmd:
            ran += self.busy() * received
        share = ran / elapsed / 1e9
        self.wait_for(sender)
        sent = int(sender.output.read_text())

        def rest() -> bool:
            seen = self.received()
            time.sleep(0.2)
            return self.received() == seen

        wait_until(rest, "packets to arrive")
        if self.name == "AF_XDP" and sent != sum(
                n - before[name] for name, n in self.counts().items()):
            time.sleep(6)
        counts = {name: n - before[name] for name, n in self.counts().items()}
        lost = sent - counts.pop("received")
        if lost != sum(counts.values()):
            raise Failed(f"{lost} packets are lost, but {counts} dropped")
        return {"% of a CPU": share * 100, "packets/s": received / elapsed,
                "ns a packet": share * elapsed / received * 1e9,
                "% dropped": 100 * lost / max(sent, 1),
                **({"ns to send": self.sending()} if self.accounted else {})}

    def latency(self) -> float:
        """Sends single packets, and returns the 99th percentile of the time
        that they take, in us."""
        times = []
        with self.in_netns(), on_cpus({self.cores.main}), \
                packet_socket("in") as source, \
                packet_socket("out", 3) as sink:
            sink.setblocking(False)
            for i in range(N_SINGLE):
                packet = make_packet(i % N_FLOWS, i)
                start = now = time.perf_counter_ns()
                source.send(packet)
                while True:
                    now = time.perf_counter_ns()
                    try:
                        if sink.recv(2048)[42:50] == packet[42:50]:
                            times.append(time.perf_counter_ns() - start)
                            break
                    except BlockingIOError:
                        pass
                    if now - start > 1e9:
                        raise Failed(f"packet {i} did not arrive")
                while time.perf_counter_ns() - start < GAP_NS:
                    pass
        return quantiles(times, n=100)[98] / 1e3


def run(context: Context) -> None:
    need("cc", "clang", "ethtool", "ip", "ss")
    directory = context.directory
    left_out: Dict[str, str] = {}
    subprocess.run(["cc", "-O2", "-o", str(directory / "sender"),
                    str(HERE / "forwarding.c")], check=True)

    def measure(switch: Forwarder) -> None:
        switch.set_up()
        for n_out in 1, 2:
            for rate in [*context.args.rates, SATURATION]:
                case = f"{n_out} out, {f'{rate:,}' if rate else 'all'}"
                context.progress(f"{switch.name}, {case} packets/s")
                for what, value in switch.rate(rate, n_out, 1).items():
                    context.add(case, what, switch.name, value)
        context.add("1 out, single", "us, p99", switch.name,
                    switch.latency())

    for k in range(context.choose("pairs", 3, 1)):
        for name in [c for c in context.args.contenders if c not in left_out]:
            where = directory / f"{name}{k}"
            where.mkdir()
            (where / "packet").write_bytes(make_packet(1))
            try:
                with HugePages(PAGES * (name == "net_af_packet")), \
                        Forwarder(name, context.ovs, where) as switch:
                    measure(switch)
            except NotHere as error:
                left_out[name] = str(error).splitlines()[0]
                print(f"  {name} is left out: {left_out[name]}")
