# SPDX-License-Identifier: Apache-2.0
"""Random changes of ports, devices, addresses, routes, bonds, tunnels and
daemons, for the differential test.

A change is a list of shell commands that need no change before it: if there is
no such device or port, the commands fail, and fail alike with each switch.
Commands of two words, "restart PROGRAM", "open TAP" and "close TAP", are for
the program itself.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Set

DEVICES = [f"d{i}" for i in range(1, 9)]
ALTNAMES = [f"a{i}" for i in range(1, 5)]
INTERNAL = [f"i{i}" for i in range(1, 4)]
TUNNELS = [f"v{i}" for i in range(1, 4)]
TAPS = ["t1", "t2"]
PATCHES = ["pa", "pb"]
BRIDGES = ["br0", "br1"]
PORTS = DEVICES + ALTNAMES + INTERNAL + TUNNELS + TAPS + PATCHES
# So that two of the largest socket buffers overrun.
FLOOD = 9000
# Between changes of a switch that runs: what stock has read of a device whose
# name, state or namespace changes again at once is chance.
WAIT = "sleep 0.3; ovs-appctl version; ovs-appctl version"


@dataclass
class Change:
    kind: str
    commands: List[str]


@dataclass
class Step:
    """Changes, while ovs-vswitchd is stopped for 'pause' seconds or more, or
    while it runs if 'pause' is negative.  With 'probe', packets are sent when
    the switches agree."""
    changes: List[Change]
    pause: float = -1
    probe: bool = False

    @property
    def stopped(self) -> bool:
        return self.pause >= 0


@dataclass(eq=False)
class Device:
    name: str
    peer: str
    up: bool = True
    peer_up: bool = True
    altnames: Set[str] = field(default_factory=set)

    def names(self) -> Set[str]:
        return {self.name, *self.altnames}


def ip(*lines: str) -> List[str]:
    return [f"ip {line}" for line in lines]


def bridge(name: str, mode: str) -> str:
    """Returns the words for ovs-vsctl that add a bridge, whose datapath has
    the type $TYPE."""
    return (f"--may-exist add-br {name} -- set Bridge {name} "
            f"datapath_type=$TYPE fail-mode={mode} "
            f"other_config:hwaddr=02:00:00:02:00:0{name[-1]}")


def add_port(bridge: str, name: str, *settings: str) -> str:
    return " ".join([f"ovs-vsctl --may-exist add-port {bridge} {name} "
                     f"-- set Interface {name}", *settings])


def flood() -> str:
    """Returns a command that makes FLOOD notifications of a device that is no
    port: what stock does with a port's MTU meanwhile is chance."""
    return ("ip link add f1 type veth peer name f2 2>/dev/null; "
            f"seq {FLOOD // 2} | sed 's/.*/link set f1 mtu 1400\\n"
            "link set f1 mtu 1500/' | ip -batch -")


class Changes:
    """Makes steps of random changes.  What it knows of devices is where it
    would have them, if all commands succeeded."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.devices: List[Device] = []
        self.away: List[Device] = []    # In the namespace "other".
        self.ports: Set[str] = set()
        self.stopped = False
        # Names of devices that were changed in this step, and of ports that
        # were deleted, made anew, or got QoS: none is both.  When it deletes a
        # port, stock writes flags that it has read before the change, if need
        # be to another device that has the name by then, which sets devices up
        # or down; and QoS goes to the ifindex that it knew before.
        self.touched: Set[str] = set()
        self.configured: Set[str] = set()
        self.n = 0
        # How often a kind comes, against the others.
        self.kinds: Dict[Callable[[], List[str]], int] = {
            self.create: 10, self.delete: 3, self.again: 3, self.toggle: 8,
            self.carrier: 8, self.mtu: 3, self.mac: 2, self.rename: 4,
            self.rename_keep: 4, self.rename_often: 2, self.exchange: 2,
            self.take_over: 2, self.altname: 4, self.to_other: 2,
            self.from_other: 4, self.netns_id: 1, self.delete_other: 1,
            self.address: 3, self.underlay: 5,
            self.bridge_address: 4, self.flush: 2,
            self.route: 3, self.add: 10, self.delete_port: 5,
            self.internal: 3, self.ofport: 1, self.tag: 1,
            self.mtu_request: 2, self.set_mac: 2, self.admin: 2,
            self.other_bridge: 2, self.tunnel: 4, self.bond: 4,
            self.lacp_bond: 1, self.patch: 1, self.tap: 2, self.foreign: 2,
            self.close: 1, self.qos: 2, self.policing: 1,
            self.restart_database: 1, self.restart_switch: 1}

    def steps(self, n: int) -> List[Step]:
        return [self.step() for _ in range(n)]

    def step(self) -> Step:
        self.stopped = self.random.random() < 0.5
        self.touched, self.configured = set(), set()
        pause = -1.0
        if self.stopped:
            pause = self.random.choice((0, 0, 0, 0, 0, 0.3, 0.3, 3))
        changes = []
        if self.stopped and self.random.random() < 0.25:
            kind = self.random.choice((self.bridge_address, self.underlay,
                                       self.internal, self.add, self.carrier))
            changes.append(Change("overrun", [flood()]))
            with contextlib.suppress(IndexError):
                changes.append(Change(kind.__name__, kind()))
        for _ in range(self.random.choice((1, 1, 2, 3, 4))):
            changes.append(self.change())
        # What is lost may be before or after what is noticed.
        if changes[0].kind == "overrun" and self.random.random() < 0.3:
            self.random.shuffle(changes)
        if self.stopped:                # Nobody is to wait for it.
            for change in changes:
                change.commands = [
                    command.replace("ovs-vsctl", "ovs-vsctl --no-wait", 1)
                    for command in change.commands]
        return Step(changes, pause, self.random.random() < 0.3)

    def change(self) -> Change:
        while True:
            [kind] = self.random.choices([*self.kinds], [*self.kinds.values()])
            try:
                return Change(kind.__name__, kind())
            except IndexError:          # There is nothing to choose from.
                continue

    def number(self) -> int:
        self.n += 1
        return self.n % 250 + 1

    def new_mac(self, kind: int) -> str:
        self.n += 1
        return "02:00:00:{:02x}:{:02x}:{:02x}".format(
            kind, self.n >> 8 & 255, self.n & 255)

    def device(self) -> Device:
        device = self.random.choice(self.changeable())
        self.touched |= device.names()
        return device

    def changeable(self, away: bool = False) -> List[Device]:
        return [d for d in (self.away if away else self.devices)
                if not d.names() & self.configured]

    def configure(self, *names: str) -> None:
        if self.touched.intersection(names):
            raise IndexError
        self.configured.update(names)

    def two(self, devices: List[Device]) -> List[Device]:
        if len(devices) < 2:
            raise IndexError
        return self.random.sample(devices, 2)

    def free(self, names: List[str] = DEVICES) -> str:
        """Returns a name that no device has, rather one of a port."""
        names = [n for n in names if n not in self.configured
                 and not any(n in d.names() for d in self.devices)]
        missing = [n for n in names if n in self.ports]
        return self.random.choice(
            missing if missing and self.random.random() < 0.7 else names)

    # Changes of devices.

    def make(self, name: str, index: str = "") -> List[str]:
        self.n += 1
        device = Device(name, f"e{self.n}")
        self.devices.append(device)
        self.touched.add(name)
        mac = f"{self.n >> 8 & 255:02x}:{self.n & 255:02x}"
        # It comes up when it is made: stock may write flags that it has read
        # when it was down.
        return ip(f"link add {name}{index} up address 02:00:00:00:{mac} type "
                  f"veth peer name {device.peer} address 02:00:00:0e:{mac}",
                  f"link set {device.peer} up")

    def create(self) -> List[str]:
        if len(self.devices) > 6:
            raise IndexError
        return self.make(self.free())

    def delete(self) -> List[str]:
        device = self.device()
        self.devices.remove(device)
        return ip(f"link del {device.name}")

    def again(self) -> List[str]:
        """Another device has the name of one, or its name and index."""
        device = self.device()
        self.devices.remove(device)
        if self.random.random() < 0.5:
            return ip(f"link del {device.name}") + self.make(device.name)
        make, up = self.make(device.name, " index $index")
        return [f"index=$(cat /sys/class/net/{device.name}/ifindex) && "
                f"ip link del {device.name} && {make}", up]

    def toggle(self) -> List[str]:
        device = self.device()
        device.up = not device.up
        return ip(f"link set {device.name} {'up' if device.up else 'down'}")

    def carrier(self) -> List[str]:
        device = self.device()
        device.peer_up = not device.peer_up
        state = "up" if device.peer_up else "down"
        return ip(f"link set {device.peer} {state}")

    def mtu(self) -> List[str]:
        return ip(f"link set {self.device().name} mtu "
                  f"{self.random.choice((1400, 1500, 9000))}")

    def mac(self) -> List[str]:
        return ip(f"link set {self.device().name} address {self.new_mac(3)}")

    def in_turn(self, *parts: List[str]) -> List[str]:
        """Returns all commands of 'parts', with time between these for a
        switch that runs."""
        commands = list(parts[0])
        for part in parts[1:]:
            commands += ([] if self.stopped else [WAIT]) + part
        return commands

    def set_name(self, device: Device, name: str) -> List[str]:
        """Linux before 6.2 can't rename a device that is up."""
        old, device.name = device.name, name
        self.touched.add(name)
        if self.random.random() < 0.7:
            return ip(f"link set {old} name {name}")
        return self.in_turn(ip(f"link set {old} down"),
                            ip(f"link set {old} name {name}"),
                            ip(f"link set {name} up") if device.up else [])

    def rename(self) -> List[str]:
        return self.set_name(self.device(), self.free())

    def add_altname(self, device: Device, name: str) -> List[str]:
        device.altnames.add(name)
        self.touched.add(name)
        return ip(f"link property add dev {device.name} altname {name}")

    def rename_keep(self) -> List[str]:
        """The old name remains as an altname."""
        device = self.device()
        old = device.name
        return self.in_turn(self.set_name(device, self.free()),
                            self.add_altname(device, old))

    def rename_often(self) -> List[str]:
        device = self.device()
        first = device.name
        parts = [self.set_name(device, self.free())
                 for _ in range(self.random.randrange(2, 5))]
        if self.random.random() < 0.5:
            parts.append(self.set_name(device, first))
        return self.in_turn(*parts)

    def exchange(self) -> List[str]:
        """Which of the states in between a running switch sees is chance."""
        if not self.stopped:
            raise IndexError
        one, two = self.two(self.changeable())
        self.touched |= one.names() | two.names()
        first, second = one.name, two.name
        return self.in_turn(self.set_name(one, "x"),
                            self.set_name(two, first),
                            self.set_name(one, second))

    def take_over(self) -> List[str]:
        """Another device gets the name, or the altname."""
        one, two = self.two(self.changeable())
        self.touched |= one.names() | two.names()
        old = one.name
        first = self.set_name(one, self.free())
        return self.in_turn(first, self.add_altname(two, old)
                            if self.random.random() < 0.5
                            else self.set_name(two, old))

    def altname(self) -> List[str]:
        device = self.device()
        if device.altnames and self.random.random() < 0.4:
            name = self.random.choice(sorted(device.altnames))
            device.altnames.remove(name)
            return ip(f"link property del dev {device.name} altname {name}")
        return self.add_altname(device, self.free(
            ALTNAMES if self.random.random() < 0.7 else DEVICES))

    def to_other(self) -> List[str]:
        device = self.device()
        self.devices.remove(device)
        self.away.append(device)
        return ["ip netns add other 2>/dev/null || true",
                f"ip link set {device.name} netns other"]

    def from_other(self) -> List[str]:
        device = self.random.choice(self.changeable(away=True))
        self.away.remove(device)
        self.devices.append(device)
        self.touched |= device.names()
        device.up = True
        return self.in_turn(
            ip(f"-n other link set {device.name} netns main"),
            ip(f"link set {device.name} up"))

    def netns_id(self) -> List[str]:
        return ["ip netns add other 2>/dev/null || true",
                "ip netns set other 5"]

    def delete_other(self) -> List[str]:
        self.away.clear()
        return ip("netns del other")

    # Addresses and routes.

    def address(self) -> List[str]:
        n = self.number()
        return ip(f"addr add 10.2.{n}.1/24 dev {self.device().name}")

    def underlay(self) -> List[str]:
        """A device that is never a port, which tunnels may go through."""
        i = self.random.randrange(1, 3)
        name, peer = f"u{i}", f"w{i}"
        address = f"addr add 10.3.{self.number()}.1/24 dev {name}"
        return ip(*self.random.choice([
            [f"link add {name} up address 02:00:00:08:00:0{i} type veth peer "
             f"name {peer} address 02:00:00:09:00:0{i}",
             f"link set {peer} up", address],
            [address], [address], [f"addr flush dev {name}"],
            [f"link set {name} down"], [f"link set {name} up"],
            [f"link set {name} address 02:00:00:0a:00:{self.number():02x}"],
            [f"link del {name}"]]))

    def bridge_address(self) -> List[str]:
        n = self.number()
        name = self.random.choice(BRIDGES)
        what = self.random.choice((f"10.1.{name[-1]}.{n}/24",
                                   f"fd01:{name[-1]}::{n}/64"))
        return ip(f"link set {name} up", f"addr add {what} dev {name} nodad"
                  if ":" in what else f"addr add {what} dev {name}")

    def flush(self) -> List[str]:
        return ip("addr flush dev " + self.random.choice(
            BRIDGES + [d.name for d in self.devices]))

    def route(self) -> List[str]:
        n = self.number()
        name = self.random.choice(BRIDGES)
        return self.random.choice((
            ip(f"route replace 11.0.{n}.0/24 dev {self.device().name}"),
            ip(f"link set {name} up",
               f"route replace 11.1.{n}.0/24 dev {name}"),
            ip(f"link set {name} up", f"addr replace 10.1.{name[-1]}.1/24 dev "
               f"{name}", f"route replace 11.2.{n % 4}.0/24 via "
               f"10.1.{name[-1]}.254")))

    # Ports.

    def add(self) -> List[str]:
        """A port of a device, or of a name that no device has.  If the device
        of that name has just got another one, stock may still add it: whether
        it hears of that before is chance."""
        names = [n for d in self.devices for n in [d.name, *sorted(d.altnames)]
                 if n not in self.ports]
        if not names or self.random.random() < 0.25:
            names = [n for n in DEVICES + ALTNAMES if n not in self.ports
                     and not (self.stopped and n in self.touched)]
        name = self.random.choice(names)
        self.ports.add(name)
        where = "br0" if self.random.random() < 0.8 else "br1"
        return [add_port(where, name, self.request(name))]

    def request(self, name: str) -> str:
        """Returns a port number that no port of another name requests: to
        which port OVS gives a number that two want is chance."""
        n = 10 * PORTS.index(name) + self.random.randrange(1, 10)
        return f"ofport_request={n}"

    def port(self, names: List[str] = PORTS) -> str:
        return self.random.choice([n for n in PORTS
                                   if n in self.ports and n in names])

    def delete_port(self) -> List[str]:
        name = self.port()
        self.configure(name)
        self.ports.remove(name)
        return [f"ovs-vsctl --with-iface del-port {name}"]

    def internal(self) -> List[str]:
        name = self.random.choice([n for n in INTERNAL
                                   if n not in self.ports])
        self.ports.add(name)
        return [add_port("br0", name, "type=internal", self.request(name),
                         f'mac=\'"{self.new_mac(1)}"\'')]

    def ofport(self) -> List[str]:
        name = self.port()
        self.configure(name)
        return [f"ovs-vsctl set Interface {name} {self.request(name)}"]

    def tag(self) -> List[str]:
        return [f"ovs-vsctl set Port {self.port()} "
                f"tag={self.random.randrange(3)}"]

    def mtu_request(self) -> List[str]:
        """Not of devices: whether stock sets its MTU again, once somebody else
        has set another one, and which of two ports with one device wins, is
        chance."""
        name = self.port(INTERNAL)
        if self.random.random() < 0.3:
            return [f"ovs-vsctl clear Interface {name} mtu_request"]
        return [f"ovs-vsctl set Interface {name} mtu_request="
                f"{self.random.choice((1300, 1450, 2000))}"]

    def set_mac(self) -> List[str]:
        name = self.port(DEVICES + ALTNAMES + INTERNAL)
        return [f"ovs-vsctl set Interface {name} "
                f'mac=\'"{self.new_mac(4)}"\'']

    def admin(self) -> List[str]:
        if self.stopped:
            raise IndexError            # OpenFlow would wait.
        return [f"ovs-ofctl mod-port br0 {self.port()} "
                f"{self.random.choice(('up', 'down'))}"]

    def other_bridge(self) -> List[str]:
        if self.random.random() < 0.5:
            self.configure(*DEVICES, *ALTNAMES)
            return ["ovs-vsctl --if-exists del-br br1"]
        return [f"ovs-vsctl {bridge('br1', 'secure')}"]

    def tunnel(self) -> List[str]:
        """Only one tunnel may go through the bridge that it belongs to: its
        request for the next hop's address is flooded to all tunnels, of which
        each makes a request.  With two, these are 2 ** MAX_DEPTH, and
        revalidators never end, in stock Open vSwitch, too."""
        name = self.random.choice(TUNNELS)
        self.ports.add(name)
        kind = self.random.choice(("vxlan", "geneve"))
        remotes = ["10.1.1.254", "fd01:1::ff"]
        if name == TUNNELS[0]:
            remotes += ["10.1.0.254", "fd01:0::ff", "11.2.1.1"]
        remote = self.random.choice(remotes)
        return [add_port("br0", name, f"type={kind}", self.request(name),
                         f'options:remote_ip=\'"{remote}"\'',
                         f"options:key={PORTS.index(name)}")]

    def bond(self) -> List[str]:
        members = [device.name for device in self.two(
            [d for d in self.devices if not d.names() & self.touched])]
        self.configure("bond0", *members)
        mode = self.random.choice(("active-backup", "balance-slb",
                                   "active-backup"))
        settings = [f"bond_mode={mode}"]
        if self.random.random() < 0.5:
            settings.append(f"other_config:bond-primary={members[0]}")
        if self.random.random() < 0.25:
            settings.append("other_config:bond-detect-mode=miimon")
        self.ports.update(members)
        gone = " -- ".join(f"--if-exists --with-iface del-port {name}"
                           for name in ["bond0", *members])
        numbers = " -- ".join(f"set Interface {name} {self.request(name)}"
                              for name in members)
        return [f"ovs-vsctl {gone} -- add-bond br0 bond0 "
                f"{' '.join(members)} {' '.join(settings)} -- {numbers}"]

    def lacp_bond(self) -> List[str]:
        """Two links between two bridges; the one without flows drops all
        packets but LACP's, so that this is no loop."""
        def end(bridge: str, name: str, one: str, two: str) -> str:
            return (f"ovs-vsctl --may-exist add-bond {bridge} {name} {one} "
                    f"{two} lacp=active other_config:lacp-time=fast "
                    f"bond_mode=balance-slb -- set Interface {one} "
                    f"ofport_request={400 + int(one[1])} -- set Interface "
                    f"{two} ofport_request={400 + int(two[1])}")

        what = self.random.randrange(3)
        if what == 0:
            return ["ovs-vsctl --if-exists del-port lacp0 "
                    "-- --if-exists del-port lacp1"]
        if what == 1:
            return ip(f"link set {self.random.choice(('l1', 'm2'))} "
                      f"{self.random.choice(('up', 'down'))}")
        return ip("link add l1 up address 02:00:00:05:00:01 type veth peer "
                  "name m1 address 02:00:00:05:00:02",
                  "link add l2 up address 02:00:00:05:00:03 type veth peer "
                  "name m2 address 02:00:00:05:00:04",
                  "link set m1 up", "link set m2 up") + [
            f"ovs-vsctl {bridge('br1', 'secure')}",
            end("br0", "lacp0", "l1", "l2"), end("br1", "lacp1", "m1", "m2")]

    def patch(self) -> List[str]:
        self.ports.update(PATCHES)
        return [f"ovs-vsctl {bridge('br1', 'secure')}",
                add_port("br0", "pa", "type=patch options:peer=pb",
                         self.request("pa")),
                add_port("br1", "pb", "type=patch options:peer=pa",
                         self.request("pb"))]

    def tap(self) -> List[str]:
        """A port of the type "tap", which OVS opens, or a device."""
        name = self.random.choice(TAPS)
        self.ports.add(name)
        kind = "type=tap" if self.random.random() < 0.5 else "type=system"
        return [add_port("br0", name, kind, self.request(name),
                         f'mac=\'"{self.new_mac(6)}"\'')]

    def foreign(self) -> List[str]:
        """Another program opens a tap."""
        name = self.random.choice(TAPS)
        return [f"open {name}", f"ip link set {name} address "
                f"{self.new_mac(7)} up"]

    def close(self) -> List[str]:
        return [f"close {self.random.choice(TAPS)}"]

    def qos(self) -> List[str]:
        name = self.port(DEVICES + INTERNAL)
        self.configure(name)
        if self.random.random() < 0.3:
            return [f"ovs-vsctl clear Port {name} qos"]
        return [f"ovs-vsctl set Port {name} qos=@q -- --id=@q create QoS "
                "type=linux-htb other-config:max-rate="
                f"{self.random.choice((1000000, 2000000))} queues=1=@n "
                "-- --id=@n create Queue other-config:min-rate=500000"]

    def policing(self) -> List[str]:
        name = self.port(DEVICES)
        return [f"ovs-vsctl set Interface {name} ingress_policing_rate="
                f"{self.random.choice((0, 1000))}"]

    # Daemons.

    def restart_database(self) -> List[str]:
        return ["restart ovsdb-server"]

    def restart_switch(self) -> List[str]:
        if self.stopped:
            raise IndexError
        return ["restart ovs-vswitchd"]
