# SPDX-License-Identifier: Apache-2.0
"""What somebody can see of a switch and of its network devices, for the
differential test.

A state has a line of text for each thing that is seen: "Interface d1
link_state" is "up".  What is chance in Open vSwitch itself, so that two
switches of the same tree differ in it, is left out here and nowhere else.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from tools.switch import Failed, Switch

State = Dict[str, str]

# Left out: "link_resets", as a switch may read flags before or after it has
# received several notifications of them, and counts what it has noticed;
# everything in Port and Bridge that only ovs-vsctl writes.
COLUMNS = {
    "Interface": """name type admin_state link_state link_speed duplex mtu
                    mac_in_use ofport error status ifindex lacp_current
                    statistics""",
    "Port": "name tag status",
    "Bridge": "name datapath_id status"}

# Counters that Open vSwitch takes from the kernel for devices of the type
# "system".
COUNTERS = [f"{way}_{what}" for way in ("rx", "tx")
            for what in ("packets", "bytes", "errors", "dropped")]

# A type of frames that nothing else sends: IEEE 802, local experiments.
ETHERTYPE = 0x88b5
PACKET_OUTGOING = 4


def rpc(path: Path, method: str, params: Sequence[Any]) -> Any:
    """Calls a method of the daemon that listens on the socket 'path'."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(path))
        sock.sendall(json.dumps({"id": 0, "method": method,
                                 "params": list(params)}).encode())
        text = b""
        while data := sock.recv(1 << 20):
            text += data
            with contextlib.suppress(ValueError):       # It may go on.
                reply = json.loads(text)
                return reply.get("error") or reply["result"]
    raise Failed(f"{path.name}: {method}: the connection is closed")


def plain(value: Any) -> Any:
    """Returns a value of a database, with lists and dictionaries for sets and
    maps."""
    if isinstance(value, list) and value[0] == "set":
        return value[1]
    if isinstance(value, list) and value[0] == "map":
        return dict(value[1])
    return value


def rows(switch: Switch, table: str, columns: str) -> List[Dict[str, Any]]:
    [reply] = rpc(switch.directory / "db.sock", "transact", [
        "Open_vSwitch", {"op": "select", "table": table, "where": [],
                         "columns": ["_uuid", *columns.split()]}])
    return [{key: plain(value) for key, value in row.items()}
            for row in reply["rows"]]


def devices(switch: Switch) -> Dict[str, Dict[str, Any]]:
    """Returns what ip(8) says of the devices of 'switch'."""
    done = subprocess.run(
        [*switch.wrapper, "ip", "-s", "-d", "-j", "address"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Linux may have interrupted it for what has changed meanwhile.
    found = json.loads(done.stdout or "[]")
    return {one["ifname"]: one for one in found if "ifname" in one}


def of_devices(found: Dict[str, Dict[str, Any]]) -> Iterator[Tuple[str, str]]:
    for name, device in found.items():
        compared = {"UP", "LOWER_UP"}
        # Each of two ports of one device, by two names, takes the flag back
        # that it has found when it was opened, in an order that is chance.
        if not device.get("altnames"):
            compared.add("PROMISC")
        # Changes give no other address; the kernel makes random ones.
        mac = device.get("address", "")
        values = {key: device.get(key, "") for key in (
            "mtu", "qdisc", "master")}
        values["mac"] = mac if mac.startswith("02:00:00:") else "random"
        for key, several in (
                ("flags", compared & {*device["flags"]}),
                ("altnames", device.get("altnames", [])),
                ("addresses", [f"{one.get('local')}/{one.get('prefixlen')}"
                               for one in device.get("addr_info", [])])):
            values[key] = " ".join(sorted(several))
        for key, value in values.items():
            yield f"device {name} {key}", str(value)


def by_name(found: Dict[str, Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """Returns devices by their names and alternative names."""
    names = {other: one for one in found.values()
             for other in one.get("altnames", [])}
    return {**names, **found}


def index(value: Any, name: str, found: Dict[str, Dict[str, Any]]) -> str:
    """Says whose the index in the database is.  Two switches do not number
    devices that they make themselves in the same order."""
    for other, device in found.items():
        if device["ifindex"] == value:
            return ("its own" if name in [other, *device.get("altnames", [])]
                    else f"that of {other}")
    return "none" if value in (0, []) else "that of no device"


def whose(mac: Any, device: Dict[str, Any]) -> str:
    """Says whether the address is the device's.  Open vSwitch makes random
    ones for ports without a device."""
    return ("none" if not mac else "of no device" if not device
            else "its own" if mac == device.get("address") else "another")


class Counters:
    """Whether counters of the database are those of a device.  How many
    packets there are is chance: bonds and the kernel send some by the clock;
    and they may be as old as the interval of statistics and some more."""

    AGE = 3

    def __init__(self) -> None:
        self.history: List[Tuple[float, Dict[int, Dict[str, int]]]] = []

    def add(self, found: Dict[str, Dict[str, Any]]) -> None:
        now = time.monotonic()
        self.history.append((now, {
            one["ifindex"]: {key: one["stats64"][key[:2]].get(key[3:], 0)
                             for key in COUNTERS}
            for one in found.values() if "stats64" in one}))
        while len(self.history) > 1 and self.history[1][0] < now - self.AGE:
            self.history.pop(0)

    def check(self, row: Dict[str, Any], device: Dict[str, Any]) -> str:
        have = row["statistics"]
        if row["type"] or not device or not have:
            return "of no device" if have else "none"
        number = device["ifindex"]
        first, last = (self.history[i][1].get(number) for i in (0, -1))
        if not first or not last or any(last[k] < first[k] for k in COUNTERS):
            return "those of the device"        # It is new.
        return " ".join(
            key for key in COUNTERS
            if not first[key] <= have.get(key, -1) <= last[key]
        ) or "those of the device"


def of_database(switch: Switch, found: Dict[str, Dict[str, Any]],
                counters: Counters) -> Iterator[Tuple[str, str]]:
    names = by_name(found)
    for table, columns in COLUMNS.items():
        for row in rows(switch, table, columns):
            del row["_uuid"]
            name = row.pop("name")
            if table == "Interface":
                device = names.get(name, {})
                row["ifindex"] = index(row["ifindex"], name, found)
                if "peer_ifindex" in row["status"]:
                    row["status"]["peer_ifindex"] = index(
                        int(row["status"]["peer_ifindex"]), name, found)
                # A tunnel looks at its device when a route changes, and not
                # when the carrier does.
                row["status"].pop("tunnel_egress_iface_carrier", "")
                row["counters"] = " ".join(sorted(row["statistics"]))
                row["mac_in_use"] = whose(row["mac_in_use"], device)
                row["statistics"] = counters.check(row, device)
                # Which end of the two says that it has no peer depends on
                # which one is made first.
                if row["type"] == "patch":
                    row["error"] = ""
                # After lost notifications, it is not read again.
                if row["type"] == "internal":
                    row["mac_in_use"] = ""
                # When ovs-vswitchd starts, it writes some of these before it
                # sets the MTU, and not again: which ones depends on the order
                # in which it adds ports.  Those of the devices are compared.
                if row["type"] in ("internal", "tap"):
                    row["mtu"] = ""
                # Of a device that has gone, they are those of the last
                # reading, when it was there or was about to go.
                if not device and row["type"] in ("", "system"):
                    for key in ("admin_state", "link_state", "link_speed",
                                "duplex", "mtu", "status", "mac_in_use",
                                "ifindex"):
                        row[key] = ""
            for key, value in row.items():
                values = (value.items() if isinstance(value, dict)
                          else [("", value)])
                for k, v in values:
                    yield f"{table} {name} {key}:{k}".rstrip(":"), str(v)


def of_openflow(switch: Switch, bridge: str,
                found: Dict[str, Dict[str, Any]]
                ) -> Iterator[Tuple[str, str]]:
    """The address of an internal port is left out: whether OpenFlow shows the
    one that the device got after it was made, or the random one before,
    depends on a notification that may be lost.  mac_in_use has it."""
    done = subprocess.run(["ovs-ofctl", "show", bridge], env=switch.env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    names = by_name(found)
    types = {row["name"]: row["type"]
             for row in rows(switch, "Interface", "name type")}

    def address(match: re.Match[str]) -> str:
        device = names.get(match[1], {})
        kind = types.get(match[1], "internal")      # As is LOCAL.
        if not device and kind in ("", "system"):
            return f"({match[1]}): gone"
        mac = "" if kind == "internal" else whose(match[2], device)
        return f"({match[1]}): addr:{mac}{match[3]}{match[4]}"

    text = re.sub(r"\((\S+)\): addr:(\S+)(.* state: +[A-Z_0-9 ]+?)"
                  r"( +(?:current|speed):.*)", address,
                  done.stdout.replace("\n     ", " "))
    return of_lines(f"OpenFlow {bridge}", text, r" \(xid=0x\w+\)")


def of_bonds(text: str) -> Iterator[Tuple[str, str]]:
    """Which of several enabled members is the active one is chance, unless
    there is a primary one; so is which one sends what."""
    for part in text.split("---- ")[1:]:
        name = part.split()[0]
        lines = dict(re.findall(r"^(\S[^:\n]*): (.*)$", part, re.M))
        for key in "bond_mode", "lacp_status", "active-backup primary":
            yield f"bond {name} {key}", lines.get(key, "")
        for key, value in lines.items():
            if key.startswith("member "):
                yield f"bond {name} {key}", value
        active = re.search(r"^member (\S+): (\w+)\n  active member$", part,
                           re.M)
        primary = lines.get("active-backup primary", "")
        yield f"bond {name} active member", (
            "none" if not active else active[1] if active[1] == primary
            else active[2])


def appctl(switch: Switch, *words: str) -> str:
    return str(rpc(Path(switch.control), words[0], words[1:]))


def of_lines(what: str, text: str, drop: str) -> Iterator[Tuple[str, str]]:
    """Takes each line for itself, without matches of 'drop'."""
    lines = Counter(re.sub(drop, "", line).strip()
                    for line in text.splitlines())
    for line, n in lines.items():
        if line:
            yield f"{what}: {line}", str(n)


def read(switch: Switch, counters: Counters) -> State:
    """Returns the state of 'switch', without what is chance."""
    found = devices(switch)
    counters.add(found)
    state = dict(of_devices(found))
    state.update(of_database(switch, found, counters))
    state.update(of_lines("route", appctl(switch, "ovs/route/show"), r"$^"))
    # Left out are statistics of packets, and numbers of ports, as the order in
    # which several ports are added at once is chance; and addresses of devices
    # that may be ports (10.2.0.0/16): tunnels keep the netdev of a port that
    # is deleted, which learns nothing any more.
    state.update(of_lines("tnl", appctl(switch, "tnl/ports/show", "-v"),
                          r" \(\d+\)|.*\(dst=10\.2\..*"))
    state.update(of_lines("datapath", appctl(switch, "dpctl/show"),
                          r"^ *(lookups|flows|masks|caches?):.*|port \d+: "))
    state.update(of_bonds(appctl(switch, "bond/show")))
    for row in rows(switch, "Bridge", "name"):
        state.update(of_openflow(switch, row["name"], found))
    return state


def compare(one: State, other: State) -> List[str]:
    """Returns a line for each difference."""
    return [f"{key}: {one.get(key, 'nothing')} | {other.get(key, 'nothing')}"
            for key in sorted({*one, *other})
            if one.get(key) != other.get(key)]


def probe(switch: Switch) -> State:
    """Sends a frame to everybody from some devices that are connected with
    ports, and returns where each one was seen."""
    found = devices(switch)
    bonds = {name: f"a member of {port['name']}"
             for name, port in members(switch)}
    # What a bond does with a device that was renamed while it had it is
    # chance.
    if any(name not in found for name in bonds):
        return {}
    # A bond sends by a member, and takes packets of a member, by chance.
    senders = [name for name, one in sorted(found.items())
               if name[0] == "e" and "UP" in one["flags"]
               and one.get("link") not in bonds][:4]
    seen: Dict[str, set] = {name: set() for name in senders}
    with switch.in_netns():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                             socket.htons(ETHERTYPE))
    with sock:
        sock.settimeout(0.3)
        for name in senders:
            frame = (b"\xff" * 6 + bytes.fromhex(
                found[name]["address"].replace(":", ""))
                + ETHERTYPE.to_bytes(2, "big") + name.encode().ljust(50))
            try:
                sock.sendto(frame, (name, 0))
            except OSError:             # It has gone down.
                continue
        end = time.monotonic() + 2
        while time.monotonic() < end:
            try:
                data, (where, _, kind, *_) = sock.recvfrom(2000)
            except socket.timeout:
                break
            way = "out of" if kind == PACKET_OUTGOING else "into"
            name = data[14:].split()[0].decode()
            peer = found.get(where, {}).get("link", "")
            seen[name].add(f"{way} " + (
                bonds.get(where) or (f"{bonds[peer]}'s peer" if peer in bonds
                                     else where)))
    return {f"frame from {name}": ", ".join(sorted(where))
            for name, where in seen.items()}


def members(switch: Switch) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Returns members of bonds, with their ports."""
    names = {row["_uuid"][1]: row["name"]
             for row in rows(switch, "Interface", "name")}
    for row in rows(switch, "Port", "name interfaces"):
        interfaces = row["interfaces"]
        # One is no list.
        if interfaces[0] != "uuid":
            for one in interfaces:
                yield names[one[1]], row
