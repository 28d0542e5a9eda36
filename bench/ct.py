# SPDX-License-Identifier: Apache-2.0
"""Upcalls of the same packets with and without connection tracking.

Packets of new flows come from a veth
device, and each one is an upcall in each of its passes through the datapath,
as megaflows are disabled.  Cases differ in OpenFlow rules and in connections
that are there before:

plain             one rule, without connection tracking
new               ct() commits a connection for each packet, in its second pass
established       connections of these packets are there, and had a reply
nat               the same with ct(nat), which changes the destination
100,000           with as many other connections
two zones         ct() in one zone, and then in another, as from pod to pod

bench/ct.rst has results, and says what they mean.
"""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from bench.machine import NotHere, has_kernel_datapath, need
from bench.packets import make_packet
from bench.report import Context
from tools.switch import Failed, Switch, wait_until

# The options of bench/run.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "--kernel": dict(action="store_true", help="ct: use the kernel datapath"),
}

CONNECTIONS = 100000            # There before, in some cases.
BURST = 64                      # Fits into the receive buffer of a port.
BACKEND = 0x0c000001            # Instead of the destination 11.0.0.1.
PLAIN = ["in_port=p1,actions=p2"]


def rules(nat: str = "", dst: str = "") -> List[str]:
    """Returns rules with one zone, and arguments of ct()."""
    return [f"ip,actions=ct({nat}table=1)",
            f"table=1,in_port=p1,ip,ct_state=+new,actions=ct({dst}commit),p2",
            "table=1,in_port=p1,ip,ct_state=+est,actions=p2",
            "table=1,in_port=p2,ip,ct_state=+est,actions=p1"]


CT = rules()
NAT = rules("nat,", "nat(dst=12.0.0.1),")
ZONES = ["ip,actions=ct(zone=1,table=1)",
         "table=1,ip,ct_state=+new,"
         "actions=ct(zone=1,commit),ct(zone=2,table=2)",
         "table=2,ip,ct_state=+new,actions=ct(zone=2,commit),p2"]


class Case(NamedTuple):
    name: str
    passes: int                 # Upcalls of each packet.
    rules: List[str]
    established: bool = False
    beside: bool = False        # There are many other connections.


CASES = [
    Case("plain", 1, PLAIN),
    Case("ct, new", 2, CT),
    Case("ct, established", 2, CT, True),
    Case("nat, new", 2, NAT),
    Case("nat, established", 2, NAT, True),
    Case("nat, new, {}", 2, NAT, False, True),
    Case("nat, est., {}", 2, NAT, True, True),
    Case("two zones, new", 3, ZONES),
]


def replies(frames: List[bytes]) -> List[bytes]:
    """Returns answers to packets, with their addresses and ports swapped."""
    return [f[:26] + f[30:34] + f[26:30] + f[36:38] + f[34:36] + f[38:]
            for f in frames]


class CtSwitch(Switch):
    """A bridge with the ports p1 and p2, whose other ends are q1 and q2."""

    def set_up(self, kernel: bool) -> None:
        self.nice = -20
        self.timeout = 300
        self.datapath = "system@ovs-system" if kernel else "netdev@ovs-netdev"
        self.start_with_bridge("system" if kernel else "netdev",
                               "other_config:cost-sample-interval=1",
                               "other_config:flow-limit=500000",
                               "other_config:max-idle=3600000")
        self.add_veths("p1", "q1", "p2", "q2")
        self.add_ports(["p1", "p2"], "type=system")
        with self.in_netns():
            self.socket = self.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            for name in "udp_timeout", "udp_timeout_stream", "max":
                with contextlib.suppress(OSError):
                    Path(f"/proc/sys/net/netfilter/nf_conntrack_{name}"
                         ).write_text("1000000")

    def account(self) -> Any:
        account, = self.accounts("upcall", self.datapath)
        return account

    def send(self, port: str, frames: List[bytes], passes: int) -> None:
        """Sends 'frames' to 'port', each of which is 'passes' upcalls."""
        self.appctl("upcall/cost-clear")
        for i in range(0, len(frames), BURST):
            burst = frames[i:i + BURST]
            for frame in burst:
                self.socket.sendto(frame, (f"q{port[1:]}", 0))
            time.sleep(0.02)    # Questions disturb upcalls.
            n = (i + len(burst)) * passes
            wait_until(lambda: self.account()["events"] >= n,
                       f"{n} upcalls: {self.account()}", interval=0.005)

    def connections(self) -> int:
        text = self.appctl("dpctl/ct-stats-show", self.datapath)
        return int(text.split("Total:")[1].split()[0])

    def fill(self, n: int) -> None:
        """Makes 'n' connections."""
        self.appctl("upcall/enable-megaflows")
        frames = [make_packet(1 << 20 | i) for i in range(n)]
        for _ in range(10):
            for i, frame in enumerate(frames):
                if not i % BURST:
                    time.sleep(0.002)
                self.socket.sendto(frame, ("q1", 0))
            if self.connections() == n:
                break
        else:
            raise Failed(f"{self.connections()} connections instead of {n}")
        self.appctl("upcall/disable-megaflows")

    def measure(self, case: Case, n: int, beside: int) -> Any:
        """Sends 'n' packets; returns what the upcalls have taken."""
        beside = beside if case.beside else 0
        self.run("ovs-ofctl", "del-flows", "br0")
        self.add_flows(*case.rules)
        self.appctl("upcall/disable-megaflows")
        self.appctl("dpctl/flush-conntrack", self.datapath)
        if beside:
            self.fill(beside)
        frames = [make_packet(i) for i in range(n)]
        if case.established:
            self.appctl("revalidator/purge")
            self.send("p1", frames, case.passes)
            self.send("p2", replies(
                [make_packet(i, 0, BACKEND) for i in range(n)]
                if case.rules is NAT else frames), case.passes)
        self.appctl("revalidator/purge")
        self.send("p1", frames, case.passes)
        found = self.account()
        connections = self.connections() - beside
        if (found["events"] != n * case.passes
                or connections != n * (len(case.rules) > 1)
                * (2 if case.rules is ZONES else 1)
                or sum(found["counters"]["lost"].values())):
            raise Failed(f"{case.name}: {connections} connections, {found}")
        return found


def run(context: Context) -> None:
    args = context.args
    need()
    if args.kernel and not has_kernel_datapath():
        raise NotHere("--kernel needs the openvswitch module")
    n = context.choose("packets", 2000, 200)
    for k in range(context.choose("pairs", 5, 1)):
        with CtSwitch(context.ovs, context.directory / str(k)) as switch:
            switch.set_up(args.kernel)
            switch.measure(CASES[0], n, 0)      # Memory is new here.
            for case in CASES:
                name = case.name.format(f"{CONNECTIONS:,}")
                context.progress(f"process {k + 1}: {name}")
                found = switch.measure(case, n, CONNECTIONS)
                figures = {"upcalls": found["events"]}
                for stage, times in found["stages"].items():
                    if times["unit"] == "ns" and times["count"]:
                        figures[f"us, {stage}"] = times["sum"] / 1e3
                for what, value in figures.items():
                    context.add(name, what, "patched", value / n)
