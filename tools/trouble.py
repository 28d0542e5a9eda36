# SPDX-License-Identifier: Apache-2.0
"""Switches in trouble, which any Open vSwitch may have: for check-doctor."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import multiprocessing
import os
import shlex
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Iterable, Sequence, Tuple

from bench.machine import HugePages
from bench.packets import checksum, make_packet
from tools.switch import Failed, Switch, wait_until

PORTS = [f"p{i}" for i in range(1, 9)]
COOKIES = [0x25, 0x26, 0x27]    # Each of the rule for a destination.
N_OLD = 400                     # Flows that packets come of all the time.
SOURCE = make_packet(0)[6:12]   # The MAC address that all packets are from.
BY_SOURCE = "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]"       # A megaflow for each.
DROPPED = r"^[\d,]+ packets a second are dropped: "
LONG = (f"priority=40000,ip,actions={BY_SOURCE},"       # Takes long.
        + "resubmit(,1)," * 3900 + "output:p1", "table=1,actions=drop")


def from_mac(packet: bytes, mac: int) -> bytes:
    return packet[:6] + b"\x52\x54" + struct.pack(">I", mac) + packet[12:]


class Trouble(Switch):
    """A switch whose rules and packets are its own.  What else runs on the
    machine does not starve it."""
    nice = -15
    arguments: Tuple[str, ...] = (          # Of ovs-vswitchd.
        "--disable-system", "--disable-system-route", "--enable-dummy")
    culprit = "^$"              # What the doctor's first line has to match,
    stock = ""                  # and without accounting, if that differs.
    status = 1                  # Of the doctor, if it finds something.
    settings = ""               # In the database, before it starts.
    warm_s = 3                  # Has the trouble before the doctor comes.
    datapath = "netdev"
    rules: Iterable[str] = ("actions=NORMAL",)
    commands: Sequence[str] = ()    # That do what else is wrong.
    rate = 1000                 # Packets a second.
    flows = 100                 # That they are of, in turn.
    senders: Sequence[int] = range(8)       # Numbers of ports, in turn.

    def packet(self, i: int) -> Tuple[int, bytes]:
        """Returns packet 'i', and the number of the port that sends it."""
        return (self.senders[i % len(self.senders)],
                make_packet(i % self.flows))

    def set_up(self) -> None:
        self.start_with_bridge(self.datapath, *shlex.split(self.settings))
        self.add_veths(*(f"{name}{end}" for name in PORTS
                         for end in ("", "-eth0")))
        with self.in_netns():
            self.sockets = [self.enter_context(socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW, 0)) for _ in PORTS]
            for name, sock in zip(PORTS, self.sockets):
                sock.bind((f"{name}-eth0", 0))
        self.add_ports(PORTS, "type=system")
        self.stopping = threading.Event()
        self.add_flows(*self.rules)
        self.prepare()
        self.in_process(self.flood)

    def add_bridge(self, name: str, *settings: str) -> None:
        self.vsctl("add-br", name, "--", "set", "bridge", name,
                   f"datapath_type={self.datapath}", *settings)

    def port(self, name: str, *settings: str) -> None:
        self.add_ports([name], *settings)

    def add_dummies(self, n: float) -> None:
        self.add_ports((f"d{i}" for i in range(int(n))), "type=dummy")

    def ofctl(self, *args: str) -> None:
        self.run("ovs-ofctl", *args)

    def prepare(self) -> None:
        """Does what is wrong, besides rules and packets.  The first word of
        each of 'commands' is a method of this class."""
        for command in self.commands:
            method, *args = shlex.split(command)
            getattr(self, method)(*args)

    def wait(self, seconds: float) -> None:
        self.stopping.wait(float(seconds))

    def warm(self) -> None:
        """Has the trouble go on for a while before the doctor comes."""
        self.wait(self.warm_s)

    def in_process(self, function: Callable[[], None]) -> None:
        """Calls 'function' in a process of its own, where it need not wait for
        other threads, until the end."""
        process = multiprocessing.Process(target=function)
        process.start()
        self.callback(process.join)
        self.callback(process.kill)

    def regularly(self, seconds: float, action: Callable[[int], object]
                  ) -> None:
        """Calls 'action' with 0, 1, ... every so many seconds until the
        end."""
        def loop() -> None:
            for i in itertools.count():
                if self.stopping.wait(seconds):
                    break
                action(i)

        thread = threading.Thread(target=loop)
        thread.start()
        self.callback(thread.join)
        self.callback(self.stopping.set)

    def starve(self, nice: int = 0, n: int = 3, command: Sequence[str] = (
            "sh", "-c", "while :; do :; done")) -> None:
        """Adds a PMD thread, and has 'n' processes take its CPU."""
        cpu = max(os.sched_getaffinity(0))
        self.vsctl("set", "Open_vSwitch", ".",
                   f"other_config:pmd-cpu-mask={1 << cpu:#x}")
        self.add_ports(["pmd0"], "type=dummy-pmd")
        for i in range(n):
            self.spawn(f"load{i}", ["taskset", "-c", str(cpu), *command], nice)

    def flood(self) -> None:
        start = time.monotonic()
        for i in itertools.count():
            number, packet = self.packet(i)
            if packet[6:12] == SOURCE:      # Each port has one of its own.
                packet = from_mac(packet, 0x20000 + number)
            self.sockets[number].send(packet)
            if not i % 50:
                late = time.monotonic() - start - i / self.rate
                if late < 0:
                    time.sleep(-late)
                elif late > 0.5:
                    start += late       # It is not made up for.

    def confine(self, controller: str, old_name: str, value: str) -> None:
        """Has a cgroup limit ovs-vswitchd."""
        old = Path("/sys/fs/cgroup", controller).is_dir()
        top = Path("/sys/fs/cgroup", controller if old else "")
        group = top / self.directory.name
        group.mkdir()
        self.callback(group.rmdir)
        (group / f"{controller}.{old_name if old else 'max'}").write_text(
            value)
        (group / "cgroup.procs").write_text(str(self.vswitchd.pid))
        self.callback((top / "cgroup.procs").write_text,
                      str(self.vswitchd.pid))

    def add_many(self, n: int, *options: str) -> None:
        """Adds 'n' rules to table 9, with 'options' of ovs-ofctl."""
        path = self.directory / "many"
        path.write_text("".join(
            f"table=9,reg0={i},actions=drop\n" for i in range(n)))
        self.ofctl(*options, "add-flows", "br0", str(path))

    def program(self, name: str, *args: str,
                wrapper: Sequence[str] = ()) -> None:
        """Runs one of PROGRAMS."""
        path = self.directory / f"{name}.py"
        path.write_text(BEGINNING + PROGRAMS[name])
        self.spawn(name, [*wrapper, sys.executable, str(path),
                          str(self.directory), *args])

    def controller(self, name: str, *settings: str) -> None:
        """Runs a controller, one of PROGRAMS."""
        self.program(name)
        sock = self.directory / "controller.sock"
        wait_until(sock.exists, "the controller")
        self.vsctl("set-controller", "br0", f"unix:{sock}", "--", "set",
                   "controller", "br0", "max_backoff=1000")


# Of each program in Python.
BEGINNING = """\
import itertools, json, socket, struct, sys, time

def connect(name):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1] + "/" + name)
    return sock

def paced(rate):
    start = time.monotonic()
    for n in itertools.count():
        time.sleep(max(start + n / rate - time.monotonic(), 0))
        yield n

def drain(sock):
    try:
        while sock.recv(65536, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        pass

def listen():
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[1] + "/controller.sock")
    server.listen()
    return server

"""

PROGRAMS = {}

# Adds a rule, and deletes it, or has another command, sys.argv[2].
PROGRAMS["flow-mods"] = """\
sock = connect("br0.mgmt")
sock.sendall(struct.pack(">BBHI", 1, 0, 8, 1))
for n in paced(100):
    match = struct.pack(">I", 0x3fffff & ~0x10) + bytes(18) + struct.pack(
        ">H", 0x88b5) + bytes(16)
    sock.sendall(struct.pack(">BBHI", 1, 14, 72, n) + match + struct.pack(
        ">QHHHHIHH", 0, (0, int(sys.argv[2]))[n % 2], 0, 0, 7, 0xffffffff,
        0xffff, 0))
    drain(sock)
"""

PROGRAMS["config"] = """\
sock = connect("db.sock")
for n in paced(200):
    sock.sendall(json.dumps({"method": "transact", "id": n, "params": [
        "Open_vSwitch", {"op": "update", "table": "Interface",
                         "where": [["name", "==", "d17"]],
                         "row": {"other_config": ["map", [["n", str(n)]]]}}
    ]}).encode())
    drain(sock)
"""

# ip(8) ends with it, as its input does.
PROGRAMS["ip"] = """\
import subprocess
ip = subprocess.Popen(["ip", "-batch", "-"], stdin=subprocess.PIPE, text=True)
for n in paced(20):
    print(sys.argv[2 + n % 2], file=ip.stdin, flush=True)
"""

PROGRAMS["controller"] = """\
sock, _ = listen().accept()
stream = sock.makefile("rb")
while True:
    _, kind, size, xid = struct.unpack(">BBHI", stream.read(8))
    body = stream.read(size - 8)
    if kind == 0:
        sock.sendall(struct.pack(">BBHI", 4, 0, 8, xid))
    elif kind == 2:
        sock.sendall(struct.pack(">BBHI", 4, 3, size, xid) + body)
"""

PROGRAMS["slave"] = PROGRAMS["controller"].replace(
    "sock.sendall(struct.pack(\">BBHI\", 4, 0, 8, xid))",
    "sock.sendall(struct.pack(\">BBHI\", 4, 0, 8, xid) + struct.pack("
    "\">BBHIIIQ\", 4, 24, 24, 9, 3, 0, 1))")

PROGRAMS["reconnects"] = """\
server = listen()
while True:
    sock, _ = server.accept()
    sock.sendall(struct.pack(">BBHI", 1, 0, 8, 1))
    time.sleep(0.5)
    sock.close()
"""

# Speaks OpenFlow 1.3 only.
PROGRAMS["other-version"] = """\
server = listen()
while True:
    sock, _ = server.accept()
    sock.sendall(struct.pack(">BBHIHHI", 4, 0, 16, 1, 1, 8, 1 << 4))
    while sock.recv(4096):
        pass
"""

PROGRAMS["inventory"] = """\
sock = connect("db.sock")
request = json.dumps({"method": "transact", "id": 0, "params": [
    "Open_vSwitch", {"op": "select", "table": "Interface", "where": []}]})
while True:
    sock.sendall(request.encode())
    end = b""
    while not end.endswith(b'"error":null}'):
        end = (end + sock.recv(1 << 20))[-20:]
"""


class NewFlows(Trouble):
    """New flows come all the time, and as many packets of old ones."""
    nice = 0
    rate = 800
    warm_s = 5
    # What an action reads, a megaflow matches on.
    rules = [f"cookie={cookie:#x},ip,nw_dst=11.0.0.{i},"
             f"actions={BY_SOURCE},output:p1"
             for i, cookie in enumerate(COOKIES, 1)]

    def port_and_rule(self, i: int) -> Tuple[int, int]:
        """Returns those that new flow 'i' is from, and for."""
        return i % len(PORTS), i // len(PORTS) % len(COOKIES)

    def source(self, i: int) -> int:
        return N_OLD + i

    def packet(self, i: int) -> Tuple[int, bytes]:
        n, old = divmod(i, 2)
        if old:
            return n % len(PORTS), make_packet(n % N_OLD)
        port, rule = self.port_and_rule(n)
        return port, make_packet(self.source(n), 0, 0x0b000001 + rule)


class Costly(NewFlows):
    """Upcalls take most of a CPU."""
    stock = r"^The main thread needs \d+% of a CPU"
    rate = 4000
    nice = -15                  # Nothing else shall starve it.

    def prepare(self) -> None:
        # The last rule of an upcall has it.
        self.add_flows(
            f"table=0,priority=40000,ip,actions={BY_SOURCE},"
            + "resubmit(,1)," * 3900 + "resubmit(,2)",
            "table=1,actions=drop", *(
                f"table=2,cookie={cookie:#x},ip,nw_dst=11.0.0.{i},"
                "actions=output:p1" for i, cookie in enumerate(COOKIES, 1)))


class Port(Costly):
    """One port sends 90% of the new flows."""
    culprit = r"^Port p5 "

    def port_and_rule(self, i: int) -> Tuple[int, int]:
        port = 4 if i % 10 else i // 10 % len(PORTS)
        return port, i % len(COOKIES)


class Rule(Costly):
    """One rule takes 90% of the misses."""
    culprit = r"^Rule .*cookie=0x25\b"

    def port_and_rule(self, i: int) -> Tuple[int, int]:
        return i % len(PORTS), 0 if i % 10 else 1 + i // 10 % 2


class Starved(NewFlows):
    """Other processes take the CPU of the PMD threads."""
    culprit = r"^pmd-\S+ is starved"
    commands = "starve",


class Dump(NewFlows):
    """Somebody dumps many rules."""
    warm_s = 14                 # A window does not have the rules' own load.
    culprit = r"^The main thread is stalled by OpenFlow \(\w+ST_FLOW request"
    stock = "^$"

    def prepare(self) -> None:
        self.add_many(100000)
        self.spawn("dumps", ["sh", "-c", "while sleep 2; do "
                             "ovs-ofctl dump-flows br0 >/dev/null; done"])


class Limit(NewFlows):
    """The flow limit is a fifth of the live flows."""
    culprit = r"the flow limit, 400, is too low: .* by the database"
    stock = r"flows (are at|reached) the limit, 400, set in the database"
    settings = "other_config:flow-limit=400"

    def source(self, i: int) -> int:
        return N_OLD + i % 2000


class Polled(NewFlows):
    """The main thread receives all packets, and forwards them."""
    culprit = (r"^The main thread needs \d+% of a CPU.* packets of ports "
               r"(without a PMD thread|that it polls)")
    nice = -15

    def prepare(self) -> None:
        for _ in range(2):
            self.in_process(self.send_all)

    def send_all(self) -> None:
        os.nice(self.nice)
        packets = [make_packet(i) for i in range(N_OLD)]
        while True:
            for packet in packets:
                self.sockets[1].send(packet)


class Notifications(NewFlows):
    """Notifications from the kernel are lost."""
    culprit = r"^Notifications from the kernel \(rtnetlink\) were lost "
    stock = "^$"

    def prepare(self) -> None:
        self.ip("link add other type veth peer name other-eth0")
        self.regularly(2, self.change_links)

    def change_links(self, _: int) -> None:
        self.vswitchd.pause()
        self.ip(*["link set other up", "link set other down"] * 2000)
        self.vswitchd.resume()


class Statistics(NewFlows):
    """Statistics take long to be read."""
    culprit = r"^Reading statistics takes the main thread "
    stock = r"^The main thread was busy for up to "

    def prepare(self) -> None:
        # Statistics are all that the main thread asks the kernel for.
        self.spawn("driver", [
            "strace", "-qq", "-o", os.devnull, "-p", str(self.vswitchd.pid),
            "-e", "inject=sendmsg:delay_enter=400000"])


class Macs(Trouble):
    """The MAC table is too small."""
    culprit = (r"^br0: the MAC table \(1,000, set by \S+\) is full: .*; "
               r"port p1 has [\d,]+ entries")
    rate = 6000
    commands = "vsctl set bridge br0 other_config:mac-table-size=1000",

    def packet(self, i: int) -> Tuple[int, bytes]:
        packet = make_packet(i % 2000)
        if i % 2:
            return 0, from_mac(packet, i // 2 % 5000)
        return 1 + i // 2 % 7, from_mac(packet, 0x10000 + i // 2 % 7)


class FlowMods(Trouble):
    """A client adds and deletes a rule all the time."""
    culprit = (r"^Flows are translated again \d+ times a second, because "
               r"OpenFlow rules change .* by .*flow-mods\.py \(pid \d+\)")
    rules = (f"ip,actions={BY_SOURCE},output:p1",)
    settings = "other_config:max-idle=100000"
    rate = 4000
    flows = 20000
    commands = ("appctl upcall/set-flow-limit 200000",
                "program flow-mods 3")      # Adds and deletes.


class Learn(Trouble):
    """A learn action without a timeout."""
    culprit = (r"^The number of OpenFlow rules grows by [\d,]+ a second "
               r"without a message, .* most in table 10 of br0")
    rules = ("table=0,ip,actions=learn(table=10,priority=1,eth_type=0x800,"
             "NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],output:NXM_OF_IN_PORT[]),"
             "resubmit(,10)",)
    flows = 1 << 30


class Config(Trouble):
    """A client writes to the database all the time."""
    culprit = (r"^Bridges are reconfigured [\d.,]+ times a second, "
               r"because the database changes .*"
               r"Interface d17, other_config: [\d.,]+ times a second\), by .*"
               r"config\.py \(pid \d+\)")
    commands = "add_dummies 205", "program config"


class Resubmits(Trouble):
    """A broadcast needs more than 4,096 resubmits."""
    culprit = (DROPPED + "they need more than 4,096 resubmits; on br0, arp "
               r"from port p\d to ff:ff:ff:ff:ff:ff, by the rule table 0, "
               "dl_dst=ff:")
    rate = 50

    def prepare(self) -> None:
        self.add_dummies(300)
        chain = [f"table={t},actions=resubmit(,{t + 1})" for t in range(1, 20)]
        self.add_flows("priority=40000,dl_dst=ff:ff:ff:ff:ff:ff,actions="
                       + ",".join(f"load:{i}->NXM_NX_REG1[],resubmit(,1)"
                                  for i in range(300)), *chain)

    def packet(self, i: int) -> Tuple[int, bytes]:
        return i % 8, bytes.fromhex(
            "ffffffffffff" "525400000001" "0806" "0001080006040001"
            "525400000001") + struct.pack(">I", 0x0a000001 + i % 8) + (
            bytes(6) + struct.pack(">I", 0x0a000100 + i % 256) + bytes(18))


class WithController(Trouble):
    """A switch that sends 1,000 packets a second to a controller."""
    rules = ()
    program_name = "controller"
    column, value = "is_connected", "true"      # When it is there.

    def prepare(self) -> None:
        self.vsctl("set", "bridge", "br0", "protocols=OpenFlow10,OpenFlow13")
        self.controller(self.program_name)
        wait_until(lambda: self.value in self.vsctl(
            "get", "controller", "br0", self.column), "the controller")
        # Rules are gone when there is a controller.
        self.add_flows("actions=controller")
        super().prepare()


class Meter(WithController):
    """A meter limits packets for a controller to 10 a second."""
    culprit = DROPPED + r"a meter limits them \(br0 meter controller\)"
    commands = ("ofctl -OOpenFlow13 add-meter br0 "
                "meter=controller,pktps,band=type=drop,rate=10",)


class RateLimit(WithController):
    """The rate limit of a controller is too low."""
    culprit = (r"^[\d,]+ packets for the controller unix:\S+ \(9\d%\) were "
               r"dropped: they exceed its limit of 100 a second")
    commands = ("vsctl set controller br0 controller_rate_limit=100 "
                "controller_burst_limit=25",)


class Conntrack(Trouble):
    """Connection tracking is full."""
    culprit = r"^Connection tracking is full: 1,000 of 1,000 connections; "
    rules = ("udp,actions=ct(commit),output:p1",)
    rate = 2000
    flows = 10000
    commands = "appctl dpctl/ct-set-maxconns 1000",


class Neighbour(Trouble):
    """The next hop of a tunnel does not answer ARP."""
    culprit = (DROPPED + "the next hop of a tunnel has no MAC address; no "
               r"answer from 10\.9\.0\.7 \(to 10\.1\.1\.9\)")
    rules = ()
    rate = 200
    commands = ("add_bridge br1",
                "ip 'addr add 10.9.0.1/24 dev br1' 'link set br1 up'",
                "port vx type=vxlan options:remote_ip=10.1.1.9",
                "appctl ovs/route/add 10.9.0.0/24 br1",
                "appctl ovs/route/add 10.1.1.0/24 br1 10.9.0.7",
                "add_flows actions=output:vx")


class SlowPath(Trouble):
    """All packets of a rule take the slow path."""
    culprit = (r"^[\d,]+ packets a second take the slow path, of port p3 "
               r"\(flows: 1; reason: action; rule: table 0 of br0, in_port=")
    rules = ("priority=1,in_port=p3,actions=debug_slow,output:p1",
             "priority=0,actions=output:p1")
    rate = 2400

    def packet(self, i: int) -> Tuple[int, bytes]:
        return 2 if i % 6 else i // 6 % 8, make_packet(i % 50)


class PortError(Trouble):
    """The device of a port does not exist."""
    culprit = (r"^Port p9 could not be opened: could not open network device "
               r"p9 \(No such device\)")
    commands = "vsctl --no-wait add-port br0 p9",


class NoDatabase(Trouble):
    """ovsdb-server is killed."""
    culprit = r"^ovsdb-server does not answer \(.*refused\): .* So: "

    def prepare(self) -> None:
        self.processes[0].popen.kill()
        self.processes[0].popen.wait()
        self.check = lambda: True       # That one is to be gone.


class Hung(Trouble):
    """ovsdb-server is stopped."""
    culprit = r"^ovsdb-server does not answer \(it is stopped \(SIGSTOP\)\): "

    def warm(self) -> None:
        self.processes[0].pause()
        self.callback(self.processes[0].resume)


class Lacp(Trouble):
    """Nobody answers the LACP of a bond."""
    culprit = r"^Bond bond0 carries nothing: .* LACP gets no answer"
    warm_s = 8
    commands = ("add_veths a1 b1 a2 b2", "vsctl add-bond br0 bond0 a1 a2 "
                "lacp=active bond_mode=balance-tcp")


class Pods(Trouble):
    """Ports come and go."""
    rate = 2000

    def prepare(self) -> None:
        self.regularly(0.5, self.change)

    def change(self, i: int) -> None:
        self.add_veths(f"x{i}", f"y{i}")
        self.vsctl("add-port", "br0", f"x{i}")
        self.wait(0.5)
        self.vsctl("del-port", "br0", f"x{i}")
        self.ip(f"link del x{i}")


class Bond(Trouble):
    """The hash basis of a bond changes, which harms nothing."""
    rate = 3000
    flows = 5000

    def prepare(self) -> None:
        self.add_veths("a1", "b1", "a2", "b2")
        self.add_bridge("br1")
        for bridge, side in (("br0", "a"), ("br1", "b")):
            self.vsctl("add-bond", bridge, f"bond{side}", f"{side}1",
                       f"{side}2", "lacp=active", "bond_mode=balance-tcp",
                       "other_config:lacp-time=fast")
        self.regularly(3, lambda i: self.vsctl(
            "set", "port", "bonda", f"other_config:bond-hash-basis={i + 1}"))


class Bulk(Trouble):
    """20,000 rules are changed every 4 s, which harms nothing."""
    bundle: Tuple[str, ...] = ()            # Options of ovs-ofctl.
    flows = 200

    def prepare(self) -> None:
        self.regularly(4, lambda _: self.add_many(20000, *self.bundle))


class Bundles(Bulk):
    """The same, in bundles."""
    bundle = ("-OOpenFlow14", "--bundle")


class Routes(Trouble):
    """One of 50,000 routes changes 20 times a second, and each of two rules
    has all of them read again."""
    culprit = (r"^The main thread (needs \d+% of a CPU: reading all routes"
               r"|was busy for up to .*: reading all routes"
               r"|is stalled by kernel routes).*[:(] ?routes of table main "
               r"change [\d.]+ times a second, by ip \(pid \d+\)")
    arguments = "--disable-system", "--enable-dummy"
    flows = 10
    lines = "route replace 10.250.0.0/24 dev t0", "route del 10.250.0.0/24"

    def prepare(self) -> None:
        routes = (f"route add 10.{i >> 8}.{i & 255}.0/24 dev t0 table {table}"
                  for table in ("main", "100") for i in range(50000))
        self.change(*routes, "rule add table 100")

    def change(self, *before: str) -> None:
        """Does what is 'before', and has a process do 'lines' all the time."""
        self.add_veths("t0", "t1")
        self.ip(*before)
        self.program("ip", *self.lines, wrapper=(
            "nsenter", f"--target={self.vswitchd.pid}", "--net"))


class Addresses(Routes):
    """One of 5,000 addresses changes 20 times a second, and tunnels read all
    of them again."""
    culprit = Routes.culprit.replace("routes of table main", "addresses of t0")
    stock = r"^The main thread .*: reading all routes .*: addresses of t0 "
    rules = ("actions=output:p1",)
    lines = "addr add 10.250.0.1/32 dev t0", "addr del 10.250.0.1/32 dev t0"

    def prepare(self) -> None:
        self.change(*(f"addr add 10.{i >> 8}.{i & 255}.1/32 dev t0"
                      for i in range(5000)))
        self.add_ports(["vx"], "type=vxlan", "options:remote_ip=10.1.1.9")


class Rcu(Trouble):
    """A PMD thread has no CPU, and changes of ports wait for it."""
    nice = 0
    stock = r"^pmd-\S+ is starved"
    culprit = (r"^pmd-\S+ is starved: .* So: The main thread is stalled by "
               r"waiting for (pmd-\S+|other threads) \(RCU\)")

    def prepare(self) -> None:
        self.starve(-20)
        self.regularly(0.5, lambda i: self.vsctl(
            "--no-wait", "set", "port", "p8", f"tag={2 - i % 2}"))


class Rxq(Trouble):
    """One of two queues has more than its PMD thread can do.  Needs DPDK."""
    culprit = (r"^The PMD thread of core \d+ is \d+% busy, \d+% with queue 0 "
               r"of port n0; the one of core \d+ is \d+% busy")
    warm_s = 10
    settings = ("other_config:dpdk-init=true other_config:dpdk-extra="
                "'--no-pci --in-memory --no-telemetry --socket-limit 400' "
                "other_config:pmd-cpu-mask=3 other_config:pmd-sleep-max=500")
    commands: Sequence[str] = (
        "port d0 type=dummy-pmd",
        # It has as many packets as are wanted.
        "port n0 type=dpdk options:dpdk-devargs=net_null0",
        "add_flows priority=40000,in_port=n0,actions=drop")

    def set_up(self) -> None:
        self.enter_context(HugePages(200))
        super().set_up()


class Flap(Trouble):
    """A link goes down and up."""
    culprit = r"^The link of port p2 has changed state \d+ times"
    flows = 5
    senders = 0, 2

    def prepare(self) -> None:
        self.regularly(0.3, lambda i: self.ip(
            f"link set p2-eth0 {('down', 'up')[i % 2]}"))


class Reconnects(Trouble):
    """A controller that ends soon, and is started again."""
    culprit = r"^The connection to the controller unix:.* keeps breaking; "
    flows = 5
    warm_s = 10
    commands = "controller reconnects",


class Fragments(Trouble):
    """First fragments without others, through connection tracking."""
    culprit = r"^1,000 IP fragments wait .*, which is the limit: "
    rules = ("ip,actions=ct(commit),output:p2",)

    def packet(self, i: int) -> Tuple[int, bytes]:
        packet = bytearray(make_packet(i % 50000) + bytes(1174))
        struct.pack_into(">HHH", packet, 16, 1220, i & 0xffff, 0x2000)
        struct.pack_into(">H", packet, 24, 0)
        struct.pack_into(">H", packet, 24, checksum(packet[14:34]))
        return i % 8, bytes(packet)


class MaxIdle(Trouble):
    """Flows are deleted before their next packets come."""
    culprit = (r"^netdev@ovs-netdev: \d+% of packets are upcalls, because "
               r"unused flows are deleted after 10 ms ")
    settings = "other_config:max-idle=10"
    flows = 3000
    rate = 4000
    rules = (f"ip,actions={BY_SOURCE},output:p1",)


class Multicast(Trouble):
    """The table of multicast groups is too small."""
    culprit = r"^br0: the table of multicast groups \(10\) is full"
    commands = ("vsctl set bridge br0 mcast_snooping_enable=true "
                "other_config:mcast-snooping-table-size=10",)

    def packet(self, i: int) -> Tuple[int, bytes]:
        group = 0xef010000 + i % 400
        packet = bytearray(make_packet(i % 8, 0, group))
        packet[3:6] = struct.pack(">I", group & 0x7fffff)[1:]
        packet[:3] = bytes.fromhex("01005e")
        packet[23:26] = 2, 0, 0                     # IGMP.
        struct.pack_into(">H", packet, 24, checksum(packet[14:34]))
        struct.pack_into(">BBHI", packet, 34, 0x16, 0, 0, group)
        struct.pack_into(">H", packet, 36, checksum(packet[34:42]))
        return i % 8, bytes(packet)


class Mtu(Trouble):
    """Packets are larger than the MTU of a port."""
    culprit = r"^Packets that are larger than the MTU of port p2 are lost"
    rules = ("in_port=p1,actions=output:p2",)
    rate = 200
    commands = "ip 'link set p1 mtu 9000' 'link set p1-eth0 mtu 9000'",

    def packet(self, i: int) -> Tuple[int, bytes]:
        return 0, make_packet(i % 5) + bytes(4000)


class Unread(Trouble):
    """An ovs-ofctl that is stopped receives packets."""
    culprit = (DROPPED + r"a controller or \"ovs-ofctl monitor\" does not "
               "read fast enough, by ovs-of")
    rules = ("actions=controller",)

    def prepare(self) -> None:
        monitor = self.spawn("monitor", ["ovs-ofctl", "monitor", "br0",
                                         "65534"])
        self.stopping.wait(1)
        monitor.pause()


class Hog(Trouble):
    """A process with real-time priority has the CPU of a PMD thread."""
    culprit = (r"^pmd-c\d+/id:\d+ is starved: .*; sh hog\.sh \(pid \d+\) has "
               r"used \d+% of that CPU")
    nice = 0

    def prepare(self) -> None:
        script = self.directory / "hog.sh"
        script.write_text("while :; do :; done\n")
        self.starve(0, 1, ("chrt", "-f", "50", "sh", str(script)))


class Quota(Trouble):
    """A cgroup limits the CPU of ovs-vswitchd."""
    culprit = r"^The CPU quota of the cgroup /cost-case\.\S+ is used up in "
    rules = (f"ip,actions={BY_SOURCE},output:p1",)
    flows = 1 << 30
    nice = 0
    commands = "confine cpu cfs_quota_us 8000",


class Gone(Trouble):
    """The device of a port is deleted."""
    culprit = r"^Port p3 has lost its device"
    flows = 5
    senders = 0,
    commands = "ip 'link del p3'",


class Zone(Trouble):
    """One zone of connection tracking is full."""
    culprit = (r"^[\d,]+ packets a second of new connections are not tracked, "
               r"because a zone is full \(zone 7, 100 of 100\)")
    rules = ("udp,in_port=p3,actions=ct(commit,zone=7),output:p1",)
    flows = 5000
    commands = "appctl dpctl/ct-set-limits zone=7,limit=100",


class Scan(Trouble):
    """60,000 flows have come and gone: stock keeps their memory."""
    stock = (r"^ovs-vswitchd uses [\d,]+ MB, most of it kept from a time with "
             r"[4-6]\d,\d+ flows; now there (is|are) \d+")
    datapath = "dummy"          # Userspace keeps it with patches, too.
    rules = (f"ip,actions={BY_SOURCE},output:p1",)
    rate = 10000
    warm_s = 30
    commands = ("confine memory limit_in_bytes 1000000000",
                "appctl upcall/set-flow-limit 200000")

    def packet(self, i: int) -> Tuple[int, bytes]:
        if i < 60000:
            return i % 8, make_packet(i)
        time.sleep(1)
        return 1, make_packet(0)


class Loop(Trouble):
    """A cable joins two ports."""
    culprit = (r"^br0: MAC addresses \(\d+ are known\) move between ports "
               r"[\d,]+ times a second: a loop, .* on ports .*l[12]")
    rate = 100
    commands = ("add_veths l1 l2", "port l1 type=system",
                "port l2 type=system")

    def packet(self, i: int) -> Tuple[int, bytes]:
        return i % 8, from_mac(b"\xff" * 6 + make_packet(i)[6:], i % 8)


class Tap(Trouble):
    """Nobody reads the packets of a tap."""
    culprit = r"^Port t1 has lost [\d,]+ packets \(tx_dropped\), \d"

    def prepare(self) -> None:
        with self.in_netns():
            tap = self.enter_context(open("/dev/net/tun", "r+b", 0))
            fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH22x", b"t1", 0x1002))
        self.ip("link set t1 up")
        self.add_ports(["t1"], "type=system")


class NoRules(Trouble):
    """Nobody has added rules to a bridge that is not to act on its own."""
    culprit = (r"^br0 drops all packets \((\d{3}|1,0\d\d) a second\): its "
               "table 0 has no rule")
    rules = ()


class Deleted(NoRules):
    """Somebody has deleted the rules of table 0 of an ordinary switch."""
    rules = ("table=1,actions=drop",)
    commands = "vsctl del-fail-mode br0", "ofctl del-flows br0 table=0"


class Unheard(Trouble):
    """A rule sends packets to a controller, too, and there is none."""
    culprit = (r"^[\d,]+ packets a second reach no controller: none is "
               r"connected; most come from port p3 \(rule: table 0 of br0, "
               r"udp, priority 40000\)")
    rules = ("priority=40000,udp,actions=output:p2,controller",)
    senders = 2,


class Vlan(Trouble):
    """Packets have a VLAN that is not their port's."""
    culprit = (DROPPED + "VLAN 5 tagged packet received on port p3 configured "
               "as VLAN 7 access port")
    senders = 2, 0, 1
    commands = "vsctl set port p3 tag=7",

    def packet(self, i: int) -> Tuple[int, bytes]:
        port, packet = super().packet(i)
        tag = b"\x81\0\0\5" if port == 2 else b""
        return port, packet[:12] + tag + packet[12:]


class NoPort(Trouble):
    """A rule sends packets to a port that does not exist."""
    culprit = DROPPED + r"Nonexistent output port \(table 0 of br0, .*in_port="
    rules = "actions=NORMAL", "priority=40000,in_port=p3,actions=output:77"


class AccessList(Trouble):
    """A rule drops packets, as it is to."""
    rules = "actions=NORMAL", "priority=40000,in_port=p3,actions=drop"


class Restarted(Trouble):
    """ovs-vswitchd crashes, and is started again."""
    culprit = (r"^ovs-vswitchd has just restarted: process \d+ has replaced "
               r"process \d+")
    flows = 5
    senders = 0,

    def prepare(self) -> None:
        self.regularly(self.warm_s + 3, lambda i: i or self.restart())

    def restart(self) -> None:
        with open(f"/proc/{self.vswitchd.pid}/ns/net", "rb") as netns:
            self.processes.remove(self.vswitchd)
            self.vswitchd.popen.kill()
            self.vswitchd.popen.wait()
            self.wrapper = ("nsenter",
                            f"--net=/proc/{os.getpid()}/fd/{netns.fileno()}")
            self.start()


class NoCpu(Trouble):
    """No CPU is for PMD threads."""
    culprit = (r"^Port d0 receives nothing: there is no PMD thread, because "
               r"other_config:pmd-cpu-mask=0x100000000 names no CPU")
    settings = "other_config:pmd-cpu-mask=0x100000000"
    commands = "port d0 type=dummy-pmd",


class NoController(Trouble):
    """Nobody listens at the address of a controller."""
    culprit = (r"^br0 has no connection to its controller, unix:\S+none: its "
               r"rules stay as they are \(fail_mode: secure\)")
    flows = 5
    commands = "vsctl set-controller br0 unix:/cost-case/none",


class Restore(Trouble):
    """Upcalls wait for a script that was to restore flows."""
    culprit = (DROPPED + "upcalls are locked out by "
               "other_config:flow-restore-wait")
    settings = "other_config:flow-restore-wait=true"


class TooDeep(Trouble):
    """A table resubmits to itself."""
    culprit = DROPPED + "their resubmits are nested too deeply"
    rules = ("actions=resubmit(,0)",)


class NoRoute(Trouble):
    """There is no route to the remote end of a tunnel."""
    culprit = (DROPPED + "there is no route to the remote end of a tunnel "
               r"\(10\.1\.1\.9 of port vx\)")
    rules = ()
    commands = ("port vx type=vxlan options:remote_ip=10.1.1.9",
                "add_flows actions=output:vx")


class Bfd(Trouble):
    """Something on the way loses the packets of BFD at times."""
    culprit = r"^BFD on a1 changed state \d+ times "
    warm_s = 8

    def prepare(self) -> None:
        self.add_veths("a1", "b1", "c1", "d1")
        self.add_bridge("br1", "fail-mode=secure")
        self.add_bridge("br2")
        self.vsctl("add-port", "br1", "b1", "--", "add-port", "br1", "c1",
                   "--", "add-port", "br2", "d1")
        self.add_ports(["a1"], "type=system")
        for name in "a1", "d1":
            self.vsctl("set", "Interface", name, "bfd:enable=true",
                       "bfd:min_rx=100", "bfd:min_tx=100")
        self.regularly(1.5, lambda i: self.ofctl(
            "add-flow", "br1", "actions=" + ("drop", "normal")[i % 2]))


class Learns(Trouble):
    """New MAC addresses are learned all the time."""
    culprit = (r"^Flows are translated again \d+ times a second, because MAC "
               r"addresses are learned.*: a revalidator needs \d+% of a CPU")
    settings = "other_config:max-idle=100000"
    rate = 4000
    commands = ("vsctl set bridge br0 other_config:mac-table-size=100000",
                f"add_flows 'priority=40000,udp,actions={BY_SOURCE},NORMAL'")

    def packet(self, i: int) -> Tuple[int, bytes]:
        if i < 20000:
            return i % 8, make_packet(i)
        return i % 8, from_mac(make_packet(i % 20000), i // 320 * 8 + i % 8)


class Fell(Trouble):
    """Flows take so long to translate that the flow limit falls."""
    stock = (r"^Flows are translated again every \d s, because OpenFlow rules "
             r"change .* So: ")
    culprit = f"({stock}.*|^netdev@ovs-netdev: )the flow limit(,| has fallen)"
    settings = ("other_config:n-revalidator-threads=1 "
                "other_config:max-idle=100000")
    flows = 4000
    rate = 2000
    warm_s = 6
    rules = LONG

    def prepare(self) -> None:
        self.regularly(4, lambda i: self.add_flows(
            f"priority={i + 1},arp,actions=drop"))


class Policer(Rxq):
    """A DPDK port may send very little."""
    culprit = r"^n0 has dropped [\d,]+ packets .*: qos"
    stock = (r"^Port n0 has lost [\d,]+ packets \(tx_dropped, by its QoS "
             r"\(egress-policer\)\?\)")
    commands = (
        "port n0 type=dpdk options:dpdk-devargs=net_null0,no-rx=1",
        "vsctl set port n0 qos=@q -- --id=@q create qos type=egress-policer "
        "other-config:cir=1000 other-config:cbs=100",
        "add_flows actions=output:n0")


class Missed(Rxq):
    """A DPDK port receives new flows faster than they can be translated."""
    culprit = (r"^(The PMD thread of core \d+ is .* with queue 0 of port n0; "
               r"\d+% of the packets are upcalls.* So: )?Port n0 has lost "
               r"[\d,]+ packets \([\d.]+%\) before they were received")
    rules = LONG
    flows = 1 << 30
    warm_s = 20                 # Usage is known after 2,048 iterations.
    senders = 0,
    rate = 5000
    commands = (
        "vsctl del-port p1",
        "port n0 type=dpdk 'options:dpdk-devargs=\"net_pcap0,iface=p1\"'")


class Overflow(Rxq):
    """Packets for a controller come faster than they can be sent."""
    culprit = (DROPPED + "too many wait for a controller; most come from "
               r"port n0 \(rule: .* So: The main thread needs \d+% of a CPU: "
               "packets for a controller")
    commands = ("port n0 type=dpdk options:dpdk-devargs=net_null0",
                "add_flows priority=40000,in_port=n0,actions=controller")


class Overrun(Trouble):
    """New flows come faster than handlers can translate them.  Needs the
    kernel's datapath, such as in tools/kernel-vm."""
    datapath = "system"
    arguments = "--disable-system-route", "--enable-dummy"
    culprit = (r"^system@ovs-system has lost [\d,]+ upcalls \([\d.]+%\) and "
               r"their packets: a handler's queue was full")
    stock = r"^system@ovs-system has lost [\d,]+ upcalls "
    rules = LONG
    flows = 1 << 30
    rate = 5000


class Waits(Trouble):
    """Many revalidators read many flows, which one can do at a time."""
    culprit = (r"^netdev@ovs-netdev: revalidators wait for a lock \d+% of the "
               r"time, .*; a round takes [\d,]+ ms")
    stock = "^$"
    rules = f"ip,actions={BY_SOURCE},output:p1",
    settings = ("other_config:n-revalidator-threads=32 "
                "other_config:max-idle=10000000 "
                "other_config:flow-limit=1000000")
    flows = 300000
    rate = 14000
    warm_s = 25
    commands = "appctl upcall/set-flow-limit 1000000",


class MirrorPort(Trouble):
    """A port is the output of a mirror, and a host is still behind it."""
    culprit = (DROPPED + "packet received on port p3, which is reserved "
               "exclusively for mirroring")
    senders = 2, 0, 1
    commands = ("vsctl --id=@p get port p3 -- --id=@m create mirror name=m0 "
                "select-all=true output-port=@p -- set bridge br0 mirrors=@m",)


class PatchTypes(Trouble):
    """Patch ports join bridges whose datapath types differ."""
    culprit = r"^Port p[ab] could not be opened: No usable peer 'p[ab]' "
    commands = (
        "vsctl --no-wait add-br br1 -- set bridge br1 datapath_type=dummy "
        "-- add-port br0 pa -- set Interface pa type=patch options:peer=pb "
        "-- add-port br1 pb -- set Interface pb type=patch options:peer=pa",
        "wait 1", "add_flows actions=output:pa")


class TunnelKey(Trouble):
    """The other end of a tunnel has another key."""
    culprit = (r"^[\d,]+ packets a second from the tunnel's end 10\.9\.0\.7 "
               r"are dropped: their key is 200; port vx has 100")
    senders = 0, 1, 2
    commands = (
        "vsctl del-port p1",
        "add_bridge br1 other_config:hwaddr=50:54:00:00:00:02",
        "vsctl add-port br1 p1",
        "ip 'addr add 10.9.0.1/24 dev br1' 'link set br1 up'",
        "appctl ovs/route/add 10.9.0.0/24 br1",
        "port vx type=vxlan options:remote_ip=10.9.0.7 options:key=100")

    def packet(self, i: int) -> Tuple[int, bytes]:
        inner = make_packet(i % 50)
        if i % 3:
            return i % 3, inner
        size = len(inner) + 16
        header = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + size, 0, 0, 64, 17,
                             0, 0x0a090007, 0x0a090001)
        header = header[:10] + struct.pack(">H", checksum(header)) + header[
            12:]
        return 0, (inner[:14] + header + struct.pack(
            ">HHHH", 5000 + i % 50, 4789, size, 0) + struct.pack(
                ">II", 0x08000000, 200 << 8) + inner)


class BondDown(Trouble):
    """All links of a bond are down."""
    culprit = (r"^Bond bond0 carries nothing: all its links are down "
               r"\(p\d, p\d\)")
    senders = range(6)

    def prepare(self) -> None:
        self.vsctl("del-port", "p7", "--", "del-port", "p8", "--", "add-bond",
                   "br0", "bond0", "p7", "p8", "bond_mode=active-backup")
        # It learns that the destination of all packets is there.
        for i in range(20):         # One of the links is active.
            self.sockets[6 + i % 2].send(
                bytes.fromhex("ffffffffffff505400000002")
                + make_packet(0)[12:])
            self.stopping.wait(0.05)
        self.ip("link set p7-eth0 down", "link set p8-eth0 down")


class OfVersion(Trouble):
    """A controller speaks another version of OpenFlow."""
    culprit = (r"^br0 has no connection to its controller, .* \(version "
               r"negotiation failed \(we support version 0x01, peer .*\)\)")
    flows = 5
    warm_s = 8
    commands = ("vsctl set bridge br0 protocols=OpenFlow10",
                "controller other-version")


class DeadGroup(Trouble):
    """All buckets of a fast failover group are dead."""
    culprit = DROPPED + r"group 1 has no live bucket \(port p\d, port p\d\)"
    senders = range(6)
    rules = ()
    commands = (
        "ofctl -OOpenFlow13 add-group br0 group_id=1,type=ff,"
        "bucket=watch_port:p7,output:p7,bucket=watch_port:p8,output:p8",
        "ofctl -OOpenFlow13 add-flow br0 actions=group:1",
        "ip 'link set p7-eth0 down' 'link set p8-eth0 down'")


class Checksums(Trouble):
    """Checksums of a port's packets are wrong, so they are invalid."""
    culprit = (DROPPED + "connection tracking finds wrong checksums; most "
               "come from port p3")
    rules = ("udp,ct_state=-trk,actions=ct(table=1)",
             "table=1,priority=3,ct_state=+trk+inv,actions=drop",
             "table=1,priority=2,ct_state=+trk+new,udp,"
             "actions=ct(commit),output:p1",
             "table=1,priority=1,actions=output:p1")
    senders = 2, 0, 1

    def packet(self, i: int) -> Tuple[int, bytes]:
        port, packet = super().packet(i)
        return port, (packet[:40] + b"\x12\x34" + packet[42:] if port == 2
                      else packet)


class DiskFull(Trouble):
    """There is no room for the database."""
    culprit = (r"^ovsdb-server can't save changes: the file system of "
               r".*/small/conf\.db is full")

    def start_database(self) -> None:
        small = self.directory / "small"
        small.mkdir()
        self.run("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs",
                 str(small))
        self.callback(self.run, "umount", "-l", str(small))
        (self.directory / "conf.db").symlink_to(small / "conf.db")
        super().start_database()

    def prepare(self) -> None:
        with open(self.directory / "small/full", "wb", 0) as stream:
            with contextlib.suppress(OSError):
                while True:
                    stream.write(bytes(512))
        # The last page of the database has room, still.
        while self.change(0):
            pass
        self.regularly(1, self.change)

    def change(self, i: int) -> bool:
        with contextlib.suppress(Failed):
            self.vsctl("--no-wait", "set", "Open_vSwitch", ".",
                       f"external_ids:site={time.monotonic_ns():0600}")
            return True
        return False


class Cfm(Trouble):
    """The other end of a link does not answer CFM."""
    culprit = r"^CFM on p2 has a fault \(recv\)"
    warm_s = 8
    commands = ("vsctl set Interface p2 cfm_mpid=7 "
                "other_config:cfm_interval=100",
                "add_flows priority=40000,in_port=p1,actions=output:p2")


class AdminDown(Trouble):
    """Nobody has set the device of a port up."""
    culprit = (r"^Packets for port p2 are lost: p2 (is down .*|has no carrier)"
               ", and packets of p1 are sent there only")
    senders = 0, 2, 3
    commands = ("add_flows priority=40000,in_port=p1,actions=output:p2",
                "ip 'link set p2 down'")


class NoCarrier(AdminDown):
    """A port that a rule sends packets to has no carrier."""
    commands = AdminDown.commands[0], "ip 'link set p2-eth0 down'"


class Slave(WithController):
    """The only controller has made itself a slave."""
    culprit = (r"^[\d,]+ packets a second reach no controller: unix:.* has "
               r"made itself a slave")
    program_name = "slave"
    column, value = "role", "slave"


class TableFull(Trouble):
    """A table has as many rules as it may, and new ones are refused."""
    culprit = (r"^br0 refuses OpenFlow rules again and again \(OFPFMFC_TABLE_"
               r"FULL\): they come from .*flow-mods\.py \(pid \d+\)")
    commands = ("vsctl --id=@f create flow_table flow_limit=1 -- "
                "set bridge br0 flow_tables:0=@f",
                "program flow-mods 0")      # Adds only.


class NatFull(Trouble):
    """There are too few ports for source NAT."""
    culprit = (r"^New connections fail: no address and port is left in "
               r"nat\(src=10\.99\.0\.1:1000-1009\)")
    rules = ("udp,actions=ct(commit,nat(src=10.99.0.1:1000-1009)),output:p1",)
    flows = 2000


class Debug(Trouble):
    """Somebody has left debug messages on."""
    culprit = (r"^ovs-vswitchd logs \d+ MB a minute: debug messages are on \("
               r"\w+, \w+, \w+, \.\.\.\)")
    rate = 2000
    rules = (f"ip,actions={BY_SOURCE},output:p1",)
    flows = 1 << 30
    commands = "appctl vlog/set file:dbg",


class DbBusy(Trouble):
    """A program reads the database all the time."""
    culprit = (r"^ovsdb-server needs \d+% of a CPU, by .*"
               r"inventory\.py \(pid \d+\)")
    commands = "add_dummies 300", *["program inventory"] * 3


class Fds(Trouble):
    """ovs-vswitchd may not open more files."""
    culprit = r"^ovs-vswitchd has \d+ files open, which is its limit"
    status = 2                  # It gets no answer, either.

    def prepare(self) -> None:
        n = len(os.listdir(f"/proc/{self.vswitchd.pid}/fd"))
        self.run("prlimit", f"--pid={self.vswitchd.pid}", f"--nofile={n}")


class NoQuerier(Trouble):
    """Nobody asks for members of multicast groups, so that none is known."""
    culprit = r"^br0 drops [\d,]+ multicast packets a second: "
    commands = (
        "vsctl set bridge br0 mcast_snooping_enable=true "
        "other_config:mcast-snooping-disable-flood-unregistered=true",)

    def packet(self, i: int) -> Tuple[int, bytes]:
        packet = make_packet(i % 8, 0, 0xef010101)
        return i % 8, bytes.fromhex("01005e010101") + packet[6:]


class Shaper(Trouble):
    """A port's queue has too low a rate."""
    culprit = (r"^Packets for port p1 are lost: the rate of its QoS "
               r"\(linux-htb, max-rate 10000\) is too low")
    rules = ("actions=output:p1",)
    senders = 1, 2, 3
    commands = (
        "vsctl set port p1 qos=@q -- --id=@q create qos type=linux-htb "
        "other-config:max-rate=10000 queues:0=@z -- "
        "--id=@z create queue other-config:max-rate=10000",)


class Sampling(Trouble):
    """sFlow samples each packet, which userspace does at little cost."""
    rules = ("actions=output:p1",)
    rate = 10000
    commands = (
        "ip 'link set lo up'",
        "vsctl --id=@s create sflow agent=lo 'targets=\"127.0.0.1:6343\"' "
        "sampling=1 polling=10 -- set bridge br0 sflow=@s")


class IdleClients(Trouble):
    """300 programs are connected, and say nothing."""

    def prepare(self) -> None:
        for name in (self.control, f"{self.directory}/db.sock",
                     f"{self.directory}/br0.mgmt"):
            for _ in range(100):
                sock = self.enter_context(socket.socket(socket.AF_UNIX))
                sock.connect(name)


class ActiveBackup(Trouble):
    """What comes from the idle link of a bond is dropped, as it is to be."""
    commands = ("vsctl del-port p1 -- del-port p2 -- add-bond br0 bond0 p1 p2 "
                "bond_mode=active-backup",)

    def packet(self, i: int) -> Tuple[int, bytes]:
        # The switch behind the bond floods both links.
        if i % 4 < 2:
            return i % 2, from_mac(b"\xff" * 6 + make_packet(i // 4 % 50)[6:],
                                   0x70000)
        return 2 + i % 6, make_packet(i % 50)


class Ring(Trouble):
    """RSTP blocks the second link between two bridges."""
    warm_s = 12
    rate = 200
    commands = (
        "add_veths a1 b1 a2 b2", "add_bridge br1 rstp_enable=true",
        "vsctl set bridge br0 rstp_enable=true", "wait 1",
        "vsctl add-port br0 a1 -- add-port br0 a2 -- add-port br1 b1 "
        "-- add-port br1 b2")

    def packet(self, i: int) -> Tuple[int, bytes]:
        return i % 8, b"\xff" * 6 + make_packet(i % 50)[6:]


class Spare(Trouble):
    """Ports that nobody uses are down, and packets are flooded."""
    senders = range(4)
    commands = ("ip 'link set p7 down' 'link set p8-eth0 down'",
                "port i0 type=internal")


class Pruned(Trouble):
    """A trunk brings broadcasts of VLANs that are for others."""
    rate = 400
    commands = "vsctl set port p1 trunks=10,11",

    def packet(self, i: int) -> Tuple[int, bytes]:
        port, packet = super().packet(i)
        return port, (b"\xff" * 6 + packet[6:12] + b"\x81\0\0" + bytes([
            10 + i // 8 % 4]) + packet[12:] if port == 0 else packet)


class Steady(Trouble):
    """5,000 packets a second, of flows that stay."""
    rate = 5000


class Fast(Rxq):
    """50,000 packets a second, by a PMD thread."""
    culprit = "^$"
    rules = ("actions=output:p2",)
    settings = Rxq.settings.replace("cpu-mask=3", "cpu-mask=2")
    senders = 0,
    rate = 50000
    commands = (
        "vsctl del-port p1",
        "port a0 type=dpdk 'options:dpdk-devargs=\"net_af_packet0,iface=p1\"'",
        "vsctl del-port p2",
        "port n0 type=dpdk 'options:dpdk-devargs=\"net_null0,no-rx=1\"'",
        "add_flows actions=output:n0")


class Load(Trouble):
    """100,000 rules are changed every 20 s, which harms nothing."""
    flows = 200

    def prepare(self) -> None:
        self.regularly(20, lambda _: self.add_many(100000))


class Healthy(NewFlows):
    """Nothing is wrong."""
    rate = 1600


CASES = {kind.__name__.lower(): kind for kind in [*globals().values()]
         if isinstance(kind, type) and issubclass(kind, Trouble)
         and kind not in (Trouble, NewFlows, Costly, WithController)}
