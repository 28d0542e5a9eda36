#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads and clears all that ovs-vswitchd accounts for, while packets arrive
and its threads, ports and bridges come and go, and checks that in the end
every packet is accounted for.

    cost-stress.py CHANGES PORT...

Bridge br0 has PORTs, each with a "pstream" PORT.sock, and sends what they
receive to port "sink" and others.  That many CHANGES are made.
"""

from __future__ import annotations

import fcntl
import random
import re
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from typing import Any, Callable, Dict, List

from ovs.cost.target import CommandError, Target

REPORTS = ("upcall", "tx", "bridge", "netlink", "revalidator")
DATAPATH = "dummy@ovs-dummy"
TIMEOUT = 300.0                 # Seconds until a program counts as stuck.

random.seed(1)


def packet(port: int, number: int) -> bytes:
    """Returns a UDP packet whose flow no other 'number' has."""
    return (bytes.fromhex("50540000000a 5054000000%02x 0800" % port)
            + bytes.fromhex("4500002e000000004011b96d")
            + struct.pack(">II", 0x0a000000 + (port << 20) + (number >> 8),
                          0x0b000001)
            + struct.pack(">HHHH", 1000 + (number & 0xff), 9, 26, 0)
            + bytes(18))


class Stress:
    def __init__(self, ports: List[str]) -> None:
        self.ports = ports
        self.switch = self.connect()
        self.senders: List[socket.socket] = []
        self.over = threading.Event()
        self.errors: List[str] = []

    @staticmethod
    def connect() -> Target:
        return Target("ovs-vswitchd", TIMEOUT)

    def run(self, functions: List[Callable[[], None]],
            n_changes: int) -> None:
        """Calls each of 'functions' over and over while making changes."""
        threads = [threading.Thread(target=self.repeat, args=(f,))
                   for f in functions]
        for thread in threads:
            thread.start()
        try:
            for i in range(n_changes):
                if not self.over.is_set():
                    self.change(i)
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        if self.errors:
            sys.exit("\n".join(self.errors))

    def repeat(self, function: Callable[[], None]) -> None:
        try:
            while not self.over.is_set():
                function()
        except Exception as e:
            self.errors.append("%s: %r" % (function, e))
            self.over.set()

    # What happens at the same time.

    def feeder(self, port: str) -> Callable[[], None]:
        sender = socket.socket(socket.AF_UNIX)
        sender.connect("%s.sock" % port)
        sender.settimeout(TIMEOUT)
        self.senders.append(sender)
        state = {"number": 0}

        def feed() -> None:
            # A dummy port holds up to 100 packets, and drops others.
            for _ in range(20):
                data = packet(self.ports.index(port), state["number"])
                sender.sendall(struct.pack(">H", len(data)) + data)
                state["number"] += 1
            self.over.wait(0.005)
        return feed

    def reader(self) -> Callable[[], None]:
        switch = self.connect()
        state = {"sent": 0}

        def read() -> None:
            report = random.choice(REPORTS)
            options = random.sample(["-hist", "-thread", "-top"],
                                    random.randrange(4))
            if random.random() < 0.3:
                options += ["-slowest", "16"]
            reply = switch.command(f"{report}/cost-show", "-n", "all",
                                   *options)
            self.check(report, reply)
            for account in reply["accounts"]:
                if account["name"] == "sink":
                    sent = account["counters"]["sent"]["packets"]
                    assert sent >= state["sent"], account
                    state["sent"] = sent
        return read

    def flyer(self) -> Callable[[], None]:
        switch = self.connect()

        def fly() -> None:
            kept = random.choice([[], ["-kept", "1"]])
            try:
                reply = switch.command("cost/flight", *kept)
            except CommandError as e:
                assert kept and "no moment" in str(e)
                return
            for thread in reply["threads"]:
                for event in thread["events"]:
                    ns = event["end_ns"] - event["begin_ns"]
                    parts = [event["excluded_ns"], *event["stages"].values()]
                    # Each may be rounded; none of them may be known.
                    assert len(parts) == 1 or abs(
                        ns - sum(parts)) <= len(parts), event
            self.over.wait(0.1)
        return fly

    def clearer(self) -> Callable[[], None]:
        switch = self.connect()

        def clear() -> None:
            # What the sums at the end depend on is left alone.
            name = random.choice([
                ["bridge"], ["netlink"], ["revalidator"], ["tx", "br0"],
                ["tx", "c1"], ["upcall", "dummy@other"]])
            try:
                switch.command(f"{name[0]}/cost-clear", *name[1:])
            except CommandError as e:
                if not re.match("no (port|datapath) named", str(e)):
                    raise
            self.over.wait(0.02)
        return clear

    @staticmethod
    def check(report: str, reply: Dict[str, Any]) -> None:
        """Checks that classes and threads in 'reply' add up."""
        for account in reply["accounts"] + reply["total"] + reply["deleted"]:
            for parts in "classes", "threads":
                if parts in account:
                    events = sum(part["events"] for part in account[parts])
                    assert account["events"] == events, (report, account)

    # Changes.

    @staticmethod
    def vsctl(*args: str) -> None:
        subprocess.run(["ovs-vsctl", *args], check=True, timeout=TIMEOUT)

    def change(self, i: int) -> None:
        if i % 10 == 0:
            self.vsctl("--", "--if-exists", "del-br", "br1",
                       "--", "add-br", "br1", "--", "set", "Bridge", "br1",
                       "datapath_type=dummy",
                       "--", "add-port", "br1", "d1",
                       "--", "set", "Interface", "d1", "type=dummy-pmd")
            if i:
                self.switch.command("dpctl/del-dp", "dummy@other")
            self.switch.command("dpctl/add-dp", "dummy@other")
            self.switch.command("dpctl/add-if", "dummy@other",
                                "d2,type=dummy-pmd")
        elif i % 3 == 0:
            self.vsctl("--", "del-port", "c1", "--", "add-port", "br0", "c1",
                       "--", "set", "Interface", "c1", "type=dummy-pmd")
        elif i % 5 == 0:
            self.switch.command("revalidator/purge")
        else:
            key, values = random.choice([
                ("pmd-cpu-mask", "1 2 3 6 f"),
                ("n-revalidator-threads", "1 2 3 4"),
                ("n-handler-threads", "1 2 3"),
                ("tx-flush-interval", "0 100 1000"),
                ("cost-sample-interval", "1 16"),
                ("cost-flight", "true false"),
                ("cost-packets", "true false"),
                ("cost-log-threshold-upcall", "0 1 1000"),
                ("cost-accounting", "true tx,upcall tx,upcall,bridge")])
            self.vsctl("set", "Open_vSwitch", ".", 'other_config:%s="%s"'
                       % (key, random.choice(values.split())))

    # Sums.

    def drain(self) -> None:
        """Waits until the ports have taken all packets from their sockets, and
        one PMD thread, the only one from then on, from their queues."""
        deadline = time.monotonic() + TIMEOUT
        self.vsctl("set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=1")
        while any(struct.unpack("i", fcntl.ioctl(sender, termios.TIOCOUTQ,
                                                 bytes(4)))[0]
                  for sender in self.senders):
            if time.monotonic() > deadline:
                sys.exit("the ports do not take their packets")
            time.sleep(0.1)
        before = -1
        while before != (received := self.n_received()):
            before = received
            # Each iteration takes up to 32 of the 100 packets in a queue.
            enough = self.n_iterations() + 10
            while self.n_iterations() < enough:
                if time.monotonic() > deadline:
                    sys.exit("the PMD thread does not run")
                time.sleep(0.01)

    def n_iterations(self) -> int:
        """Returns the number of iterations of the PMD thread."""
        text = self.switch.command("dpif-netdev/pmd-perf-show", "-nh",
                                   DATAPATH.partition("@")[2])["reply"]
        iterations, = re.findall(r"^ *Iterations: +(\d+)", text, re.M)
        return int(iterations)

    def n_received(self) -> int:
        """Returns how many packets the ports have received."""
        n = 0
        text = self.switch.command("dpctl/show", "-s", DATAPATH)["reply"]
        for port in text.split("  port "):
            if re.match(r"\d+: (%s) " % "|".join(self.ports), port):
                match = re.search(r"RX packets:(\d+)", port)
                assert match
                n += int(match.group(1))
        return n

    def account(self, report: str, name: str) -> Dict[str, Any]:
        account, = self.switch.command(f"{report}/cost-show",
                                       name)["accounts"]
        return account

    def wait(self, received: int, at_least: int = 0) -> None:
        """Waits until ports have received 'at_least' so many packets since
        they had 'received' that many, and all have been handled.  Each was
        sent to the sink, unless its upcall was lost."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            before = self.n_received()
            lost = sum(self.account("upcall", DATAPATH)
                       ["counters"]["lost"].values())
            sent = self.account("tx", "sink")["counters"]["sent"]["packets"]
            if at_least <= sent + lost == before - received == \
                    self.n_received() - received:
                return
            if time.monotonic() > deadline:
                sys.exit("received %d, sent %d, lost %d"
                         % (before - received, sent, lost))
            time.sleep(0.1)


def main(n_changes: int, ports: List[str]) -> None:
    stress = Stress(ports)
    feeders = [stress.feeder(port) for port in ports]
    stress.run(feeders + [stress.reader(), stress.reader(), stress.flyer(),
                          stress.clearer()],
               n_changes)
    stress.drain()
    stress.wait(0)

    # From here on, nothing else happens.
    for report in REPORTS:
        stress.switch.command(f"{report}/cost-clear")
    received = stress.n_received()
    for feed in feeders:
        feed()
    stress.wait(received, 20 * len(ports))
    upcalls = stress.account("upcall", DATAPATH)
    print("%d upcalls, %d lost" % (upcalls["events"],
                                   sum(upcalls["counters"]["lost"].values())))


main(int(sys.argv[1]), sys.argv[2:])
