# SPDX-License-Identifier: Apache-2.0
"""What can be broken, or set up wrongly, in any Open vSwitch: ports, bonds,
tunnels, controllers, the database.

Rules are as in stockrules.py, which has those of load and limits.
"""

from __future__ import annotations

import re
from typing import Dict, List

from ovs.cost.blame import (FEW, clients, packet_in_sender, resets, speakers,
                            who)
from ovs.cost.case import Case, Numbers, Rule
from ovs.cost.stock import (OFTEN, SELDOM, UNREGISTERED, gain, has_pmd,
                            main_share, number)

CREATE = ("Create the device, or correct the port's type and options; "
          "`ovs-vsctl del-port PORT` if it is no longer used.")
OTHER_ERRORS = {                # Of ports.
    "File exists": "There is a port or device of this name, or a tunnel with "
    "the same `options:remote_ip` and `options:key`, maybe in another bridge: "
    "delete one, or give it another name or key.",
    "Too many open files": "Raise the limit (`LimitNOFILE` of systemd, "
    "`prlimit`), or find out what has so many files open (`ls -l "
    "/proc/PID/fd`).",
    "No usable peer": "Patch ports join bridges of one datapath type: set "
    "`datapath_type` of both bridges to the same. The name of the other port "
    "may be wrong, too (`options:peer`)."}
UNRECEIVED = (
    "Slaves receive no packets: one of the controllers must ask for the role "
    "master, or equal.",
    "Start the controller, or remove the action `controller` from rules: each "
    "packet with it is an upcall.")
UNSENT_DOWN = ("Set the device up. If it is, and has no carrier, check the "
               "cable and the other end.")
UNSENT_SHAPED = ("Raise the rate of the QoS, or send less. The port's "
                 "statistics do not count these packets.")


def restarted(case: Case) -> Numbers:
    stock = case.stock
    if stock.follower:
        yield {"share": 1.0, "old": stock.threads[0]["pid"],
               "new": stock.follower}


def gone(case: Case) -> Numbers:
    if case.stock.no_database:
        yield {"share": 1.0, "error": case.stock.no_database}


def unopened(case: Case) -> Numbers:
    bad: Dict[str, List[str]] = {}      # By error, without names.
    for rows in case.stock.rows("Interface").values():
        row = rows[-1]
        if isinstance(row.get("error"), str) and row["error"]:
            error = row["error"].replace(row["name"], "")
            bad.setdefault(re.sub(r"'[^']*'|\S*\d\S*", "", error), []).append(
                f"{row['name']} could not be opened: "
                + row["error"].rstrip("."))
        elif all(each.get("ifindex") == 0 and number(each.get("ofport")) > 0
                 and each.get("type") in ("", "system") for each in rows):
            bad.setdefault("", []).append(f"{row['name']} has lost its device")
    if bad:
        found = [each[0] + (f" ({len(each) - 1} more)" if each[1:] else "")
                 for each in bad.values()]
        yield {"share": 0.1, "error": "; port ".join(found), "advice":
               " ".join(dict.fromkeys(next((
                   advice for text, advice in OTHER_ERRORS.items()
                   if text in error), CREATE) for error in found))}


def link_flaps(case: Case) -> Numbers:
    for name, n in resets(case.stock).items():
        if n >= 4 and case.stock.seconds:
            yield {"name": name, "n": n, "share": 0.5,
                   "s": case.stock.seconds}


def version(case: Case, target: object) -> str:
    """Returns how versions of OpenFlow differ, if that ends connections to a
    controller."""
    found = [why for name, why in case.stock.logged(
        r"vconn\|WARN\|(\S+): (version negotiation failed \(.*\))", SELDOM)
        if name == target]
    return found[-1] if found else ""


def reconnects(case: Case) -> Numbers:
    # What the database has is as old as this, in seconds.
    age = (number(case.stock.config("stats-update-interval")) or 5000) / 1000
    for rows in case.stock.rows("Controller").values():
        since = [row.get("status", {}).get("sec_since_connect")
                 for row in rows]
        if rows[1:] and None not in since and max(
                map(number, since)) < case.stock.seconds - 1 - age:
            why = (version(case, rows[-1].get("target"))
                   or rows[-1]["status"].get("last_error"))
            yield {"name": rows[-1].get("target", ""), "share": 0.5,
                   "s": number(since[-1]), "why": f" ({why})" if why else ""}


def alone(case: Case) -> Numbers:
    stock = case.stock
    for port in stock.latest("Port"):
        if port.get("lacp") not in ("active", "passive") or port.get(
                "other_config", {}).get("lacp-fallback-ab") == "true":
            continue
        members = stock.referred([port], "interfaces", "Interface")
        if members and all(row.get("lacp_current") is False
                           and row.get("link_state") == "up"
                           for rows in members for row in rows):
            yield {"name": port["name"], "share": 1.0}


def no_cpu(case: Case) -> Numbers:
    stock, mask = case.stock, case.stock.config("pmd-cpu-mask")
    threads = [thread["name"] for reading in stock.threads
               for thread in reading.get("threads", ())]
    polled = [row["name"] for row in stock.latest("Interface")
              if mask and threads and number(row.get("ofport")) > 0
              and has_pmd(row)]
    if polled and not any(name.startswith("pmd-") for name in threads):
        yield {"mask": mask, "name": polled[0], "share": 1.0}


def too_large(case: Case) -> Numbers:
    for s in range(OFTEN + 1):
        ports = case.stock.unsent("Message too long", s)
        if ports:
            yield {"share": 0.5, "name": max(ports, key=ports.count), "when":
                   f"were lost {s} s before the doctor looked, and may still "
                   "be" if s else "are lost"}
            return


def disconnected(case: Case) -> Numbers:
    stock = case.stock
    for bridge in stock.latest("Bridge"):
        # One that only listens for controllers, such as ptcp, needs none.
        of = [rows for rows
              in stock.referred([bridge], "controller", "Controller")
              if not str(rows[-1].get("target", "p")).startswith("p")]
        if of and all(row.get("is_connected") is False
                      for rows in of for row in rows):
            secure = bridge.get("fail_mode") == "secure"
            why = version(case, of[0][-1].get("target"))
            yield {"share": 1.0 if secure else 0.3, "name": bridge["name"],
                   "targets": ", ".join(
                       str(rows[-1]["target"]) for rows in of[:3]) + (
                           f" ({why})" if why else ""),
                   "what": "its rules stay as they are (fail_mode: secure), "
                           "and packets that match none of them are dropped"
                           if secure else "meanwhile it acts as an ordinary "
                           "switch (fail_mode: standalone)"}


def flaps(case: Case) -> Numbers:
    for rows in case.stock.rows("Interface").values():
        n = gain(rows, "bfd_status", "flap_count")
        if rows[1:] and n > 1:
            yield {"name": rows[-1]["name"], "n": n, "share": 0.5,
                   "why": rows[-1]["bfd_status"].get("diagnostic", "")}


def no_rules(case: Case) -> Numbers:
    stock = case.stock
    for bridge, tables in stock.of("dump-tables"):
        packets = sum(gain(rows, "statistics", "rx_packets")
                      for rows in stock.interfaces(bridge) if rows[1:])
        if tables.get("0") == 0 and packets >= FEW and (
                not stock.bridge(bridge).get("controller")):
            # The database is late, but others count for all bridges.
            yield {"share": 1.0, "name": bridge, "rate": (
                not stock.latest("Bridge")[1:] and max(map(stock.rate, (
                    "drop_action_of_pipeline", "connmgr_async_unsent")))
                or packets / (stock.seconds or 1))}


def carries_nothing(case: Case) -> Numbers:
    for name, members in case.stock.more.get("unused", ()):
        yield {"share": 1.0, "name": name, "members": ", ".join(members)}


def unsent(case: Case) -> Numbers:
    stock = case.stock
    for row in stock.latest("Interface"):
        port, down = row["name"], row.get("admin_state") == "down"
        sender = stock.more.get("unsent", {}).get(port)
        if sender and (down or row.get("link_state") == "down"):
            yield {"share": 1.0, "name": port, "advice": UNSENT_DOWN,
                   "why": (f"{port} is down (ip link set {port} up)" if down
                           else f"{port} has no carrier") + ", and packets "
                   f"of {sender} are sent there only"}
    slow = stock.unsent("Resource temporarily unavailable")
    # All ports share a socket, which packets for one of them may fill.
    shaped = [row for row in stock.latest("Port") if row.get("qos")]
    for row in shaped if slow and (
            len(slow) >= FEW or stock.suppressed("netdev_linux") >= FEW
            ) else ():
        for rows in stock.referred([row], "qos", "QoS"):
            rate = rows[-1].get("other_config", {}).get("max-rate", "unknown")
            yield {"share": 0.5 + 0.1 * (row["name"] in slow),
                   "name": row["name"], "advice": UNSENT_SHAPED,
                   "why": "the rate of its QoS ("
                   f"{rows[-1].get('type')}, max-rate {rate}) is too low"}


def unknown_tunnel(case: Case) -> Numbers:
    stock = case.stock
    rate = stock.rate("datapath_drop_upcall_error")
    found = stock.logged(r"tunnel(?:\(\S+\))?\|WARN\|receive tunnel port not "
                         r"found \(.*?tun_id=(0x[0-9a-f]{1,16}|0),.*?"
                         r"tun_(?:ipv6_)?src=([^,]+)", SELDOM)
    if not found or rate < FEW:
        return
    key, source = found[-1]
    ports = [rows for rows in stock.rows("Interface").values() if rows[-1].get(
        "options", {}).get("remote_ip") in (source, "flow")]
    # If one of them works, others than its packets are for somebody else.
    if not any(gain(rows, "statistics", "rx_packets") > 0 for rows in ports):
        keys = [f"port {rows[-1]['name']} has "
                + str(rows[-1]["options"].get("key", "none"))
                for rows in ports[:3]]
        yield {"share": 1.0, "rate": rate, "source": source,
               "ports": ", ".join(keys) or f"no port has remote_ip={source}",
               "key": int(key, 0)}


def unreceived(case: Case) -> Numbers:
    rate = case.stock.rate("connmgr_async_unsent")
    up = [row for row in case.stock.latest("Controller")
          if row.get("is_connected") is True]
    _, rule = case.stock.more.get("packet-ins", ("", ""))
    if not case.stock.tables or rate < (1 if up else FEW) or any(
            row.get("role") != "slave" for row in up) or (
                # It may be meant that packets match no rule.
                not up and "priority" not in rule):
        return
    yield {"share": 1.0, "rate": rate, "advice": UNRECEIVED[not up], "why": (
        ", ".join(str(row.get("target")) for row in up[:3]) + " has made "
        "itself a slave, and there is no other" if up else "none is connected"
        ) + packet_in_sender(case.stock)}


def refused_rules(case: Case) -> Numbers:
    pattern = (r"connmgr\|INFO\|(.*)<->\S+ sending (OFP(?!\w*EXISTS)\w+) "
               r"error reply to OFPT_\w+_MOD")
    # Ten a minute are logged, or as many at once.
    found, latest = (case.stock.logged(pattern, s) for s in (OFTEN, -3))
    if found[2:] and latest and len(latest) < len(found):
        bridge, error = latest[-1]
        yield {"share": 0.5, "name": bridge, "error": error,
               "who": speakers(case, "_MOD", bridge)
               .replace(", by ", ": they come from ", 1)}


def without_nat(case: Case) -> Numbers:
    if case.stock.without_nat():
        nat = case.stock.more.get("nat", "")
        yield {"share": 1.0, "nat": f" in nat({nat})" if nat else ""}


def cfm(case: Case) -> Numbers:
    for rows in case.stock.rows("Interface").values():
        if all(row.get("cfm_fault") is True for row in rows):
            why = rows[-1].get("cfm_fault_status") or []
            yield {"share": 0.5, "name": rows[-1]["name"], "why": ", ".join(
                map(str, why if isinstance(why, list) else [why]))}


def unregistered(case: Case) -> Numbers:
    bridge, rate = case.stock.more.get("unregistered", ("", 0.0))
    if rate >= FEW:
        yield {"share": 0.7, "name": bridge, "rate": rate}


def disk(case: Case) -> Numbers:
    if case.stock.full_disk:
        yield {"share": 1.0, "path": case.stock.full_disk}


def busy_database(case: Case) -> Numbers:
    share = main_share(case.stock.server)
    if share > 0.8:
        yield {"share": share, "who": who(clients(case.stock, r"db\.sock"))}


def log_grows(case: Case) -> Numbers:
    stock, modules = case.stock, case.stock.more.get("debug", [])
    if modules:
        yield {"share": 0.3, "mb": 60e-6 * stock.logs / stock.seconds,
               "what": ", ".join(modules[:3]) + (
                   ", ..." if modules[3:] else "")}


def many_files(case: Case) -> Numbers:
    n, limit = case.stock.files
    if n >= limit > 0:
        yield {"share": 1.0, "n": n}


FAULT_RULES = (
    Rule("restarted", "critical", "connections break, and OpenFlow rules are "
         "gone: the switch restarts", "",
         "Its log, `journalctl` and `coredumpctl` show why: a crash, a "
         "package update, or too little memory (`dmesg`).",
         "ovs-vswitchd has just restarted: process {new} has replaced process "
         "{old}", restarted, causes="no-rules"),
    Rule("database-gone", "critical", "OpenFlow and ovs-vsctl hang: "
         "ovsdb-server is gone or hangs", "-t ovsdb-server version",
         "Its log says why. Start it again; `ovs-vswitchd` reconnects by "
         "itself.",
         "ovsdb-server does not answer ({error}): without it, ovs-vswitchd "
         "handles no OpenFlow and no packets from ports without a PMD thread",
         gone, causes="main-busy, main-stalls, main-loop-stalled"),
    Rule("port-error", "warning", "a port carries nothing: it could not be "
         "opened", "ovs-vsctl show",
         CREATE, "Port {error}", unopened),
    Rule("link-flaps", "warning", "a link goes down and up", "coverage/show",
         "Check cable, transceiver and the other side; `ip monitor link` "
         "shows each change, and `ethtool -S` errors.",
         "The link of port {name} has changed state {n} times in {s:.0f} s",
         link_flaps, causes="mac-moves, flows-retranslated, bfd-flaps, "
                            "port-drops, threads-busy, config-changes, "
                            "main-busy"),
    Rule("controller-flaps", "warning", "a controller does not stay connected",
         "ofproto/list",
         "Look at the controller's log: it may crash, refuse this version of "
         "OpenFlow, or have too little time for `inactivity_probe`.",
         "The connection to the controller {name} keeps breaking; the latest "
         "one was made {s} s ago{why}", reconnects,
         causes="controller-absent, rconn-overflow, packet-in-overflow"),
    Rule("lacp-alone", "critical", "a bond carries nothing: LACP gets no "
         "answer", "lacp/show, bond/show",
         "Configure LACP on the other side, or set `lacp=off`. With "
         "`other_config:lacp-fallback-ab=true`, one member is used until the "
         "other side answers.",
         "Bond {name} carries nothing: all its links are up, but LACP gets no "
         "answer", alone),
    Rule("pmd-without-cpu", "critical", "DPDK ports receive nothing: "
         "pmd-cpu-mask names no CPU of this host", "dpif-netdev/pmd-rxq-show",
         "Set `other_config:pmd-cpu-mask` to CPUs that the host has "
         "(`lscpu`).",
         "Port {name} receives nothing: there is no PMD thread, because "
         "other_config:pmd-cpu-mask={mask} names no CPU of this host", no_cpu),
    Rule("packet-too-large", "warning", "large packets are lost on the way to "
         "a port", "ovs-vsctl list Interface",
         "Raise the MTU (`mtu_request` of the Interface), or lower "
         "the MTU of the ports that send such packets.",
         "Packets that are larger than the MTU of port {name} {when}",
         too_large, causes="tx-errors"),
    Rule("no-rules", "critical", "a bridge drops everything: it has no "
         "OpenFlow rules", "ovs-vsctl list Bridge",
         "`ovs-ofctl del-flows` deletes all rules, and with `fail_mode: "
         "secure`, a restart of `ovs-vswitchd` does. Start what adds them, or "
         "for an ordinary switch: `ovs-vsctl del-fail-mode BRIDGE`, and "
         "`ovs-ofctl add-flow BRIDGE actions=NORMAL`.",
         "{name} drops all packets ({rate:,.0f} a second): its table 0 has no "
         "rule", no_rules, causes="packet-ins-unreceived"),
    Rule("controller-absent", "warning", "new connections fail, because a "
         "bridge has no controller", "ofproto/list",
         "Check that the controller runs and listens at that address. "
         "`ovs-vsctl list controller` shows the last error. If versions of "
         "OpenFlow differ, set `protocols` of the bridge. If there is no "
         "controller any more: `ovs-vsctl del-controller BRIDGE`.",
         "{name} has no connection to its controller, {targets}: {what}",
         disconnected, causes="packet-ins-unreceived"),
    Rule("bfd-flaps", "warning", "", "bfd/show",
         "Packets are lost on the way, or one side sends them too late: check "
         "whether a thread is starved or stalled, and raise `bfd:min_rx`.",
         "BFD on {name} changed state {n} times ({why})", flaps),
    Rule("bond-down", "critical", "a bond carries nothing: its links are down",
         "bond/show",
         "Check cables, transceivers and the other side of the links.",
         "Bond {name} carries nothing: all its links are down ({members})",
         carries_nothing),
    Rule("packets-unsent", "warning", "a port sends nothing, or little",
         "ovs-vsctl list Interface, qos/show PORT",
         f"{UNSENT_DOWN} {UNSENT_SHAPED}",
         "Packets for port {name} are lost: {why}", unsent,
         causes="tx-errors"),
    Rule("tunnel-unknown", "critical", "a tunnel receives nothing: its key "
         "differs", "ovs-vsctl list Interface, tnl/ports/show",
         "Give both ends of the tunnel the same key (VNI): `options:key`; or "
         "add a port with this `options:remote_ip`.",
         "{rate:,.0f} packets a second from the tunnel's end {source} are "
         "dropped: their key is {key}; {ports}", unknown_tunnel,
         causes="upcalls-lost, upcalls-lost-kernel"),
    Rule("packet-ins-unreceived", "critical", "new connections fail, because "
         "no controller is connected, or none is master", "ofproto/list",
         " ".join(UNRECEIVED),
         "{rate:,.0f} packets a second reach no controller: {why}",
         unreceived, causes="main-busy, threads-busy"),
    Rule("rules-refused", "warning", "OpenFlow rules are missing: Open "
         "vSwitch refuses them", "ofproto/list",
         "The log has each error. TABLE_FULL: raise `flow_limit` in the table "
         "Flow_Table, or delete rules. Other errors: the client is in error, "
         "or needs a newer version of OpenFlow or Open vSwitch.",
         "{name} refuses OpenFlow rules again and again ({error}){who}",
         refused_rules),
    Rule("nat-full", "critical", "new connections fail: NAT has no port left",
         "dpctl/dump-conntrack, dpctl/ct-stats-show",
         "Give the rule a larger range of addresses or ports, or use shorter "
         "timeouts.",
         "New connections fail: no address and port is left{nat}",
         without_nat),
    Rule("cfm-fault", "warning", "", "cfm/show",
         "The other end does not answer (`recv`), or has another "
         "configuration: compare `cfm_mpid` and `cfm_interval`.",
         "CFM on {name} has a fault ({why})", cfm),
    Rule("multicast-unregistered", "warning", "multicast is lost, since no "
         "group is known", "mdb/show BRIDGE",
         "Nobody asks for members of groups: run a querier, or have packets "
         f"flooded: `ovs-vsctl remove bridge BRIDGE other_config "
         f"{UNREGISTERED}`.",
         "{name} drops {rate:,.0f} multicast packets a second: it knows no "
         f"members of their groups, and does not flood them ({UNREGISTERED})",
         unregistered),
    Rule("database-disk-full", "critical", "ovs-vsctl fails: no space left",
         "",
         "Make room in that file system; ovsdb-server then works as before.",
         "ovsdb-server can't save changes: the file system of {path} is full",
         disk),
    Rule("database-busy", "warning", "ovs-vsctl is slow: ovsdb-server is busy",
         "-t ovsdb-server memory/show",
         "Make the program read or write less often, or let it monitor tables "
         "(`ovsdb-client monitor`) in place of reading them.",
         "ovsdb-server needs {share:.0%} of a CPU{who}", busy_database),
    Rule("log-grows", "warning", "the log grows fast, and the disk fills",
         "vlog/list",
         "Debug messages make everything slow: `ovs-appctl vlog/set "
         "file:info` ends them.",
         "ovs-vswitchd logs {mb:,.0f} MB a minute: debug messages are on "
         "({what})", log_grows),
    Rule("files-limit", "critical", "no command is answered: too many open "
         "files", "", OTHER_ERRORS["Too many open files"],
         "ovs-vswitchd has {n:,} files open, which is its limit: it accepts "
         "no connection, and opens no port", many_files,
         causes="port-error, main-busy"),
)
