#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unit tests of ovs-cost doctor without accounting.  What switches of several
versions have printed is in test-ovs-cost-stock.json."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional
from unittest import mock

from ovs.cost import (archive, doctor, processes, rtnetlink, stock,
                      stocktext)
from ovs.cost.database import Database
from ovs.cost.faultrules import FAULT_RULES
from ovs.cost.recording import Recording
from ovs.cost.stock import Stock, Watch
from ovs.cost.stockrules import STOCK_RULES
from ovs.cost.stocktext import Count, Pmd
from ovs.cost.target import CommandError, Target, TargetError

fake = importlib.import_module("ovs-cost-fake")
HERE = Path(__file__).resolve().parent
RECORDED: Dict[str, Dict[str, str]] = json.loads(
    (HERE / "test-ovs-cost-stock.json").read_text())
DATAPATH = "netdev@ovs-netdev"


def healthy() -> Stock:
    """Returns a switch that is well, after ten seconds."""
    found = Stock()
    found.seconds, found.resident, found.room = 10.0, 30000000, 10 ** 9
    for reading in found.first, found.last:
        for command, text in RECORDED["4.0.0"].items():
            found.add(reading, command, text)
    names = "ovs-vswitchd", "revalidator4", "handler5", "pmd-c01/id:6"
    found.threads = [{"pid": 1, "now_us": us, "threads": [
        {"tid": i, "name": name, "cpu_ns": us * 1000 * (
            name.startswith("pmd") or 0.1), "run_delay_ns": us * 10}
        for i, name in enumerate(names, 1)]} for us in (0, 10 ** 7)]
    found.samples = [found.last["memory/show"]] * 3
    return found


START = 1767225600              # 2026-01-01T00:00:00Z.


def count(found: Stock, **counters: float) -> None:
    """Has counters of coverage/show grow by so much a second."""
    for name, rate in counters.items():
        before = found.first["coverage/show"].get(name, Count(0, 0, 0)).total
        found.last["coverage/show"][name] = Count(
            int(before + rate * found.seconds), rate, rate)


def busy(found: Stock, name: str, share: float = 0.9) -> None:
    for thread in found.threads[-1]["threads"]:
        if thread["name"].startswith(name):
            thread["cpu_ns"], thread["run_delay_ns"] = share * 1e10, 0


def interface(found: Stock, first: Dict[str, Any],
              last: Dict[str, Any]) -> None:
    found.tables = [{"Interface": [{"name": "p1", **columns}]}
                    for columns in (first, last)]


def speak(found: Stock, sock: str, label: str) -> None:
    found.clients = processes.Clients("/", 0)
    found.clients.seen = {sock: {label: [40, 10]}}


def macs(found: Stock) -> None:
    count(found, rev_mac_learning=40, mac_learning_evicted=400)
    busy(found, "revalidator")
    bridge = 'fdb/stats-show br"0'
    found.last[bridge] = dict(found.last[bridge], evicted=4000, max=1000,
                              entries=1000)
    found.more['fdb/show br"0'] = {"7": 900, "1": 100}
    # Another bridge has a port of that number.
    found.tables = [{
        "Bridge": [{"name": "br1", "ports": "P2"},
                   {"name": 'br"0', "ports": ["P0", "P1"]}],
        "Port": [{"_uuid": f"P{i}", "interfaces": f"I{i}"} for i in range(3)],
        "Interface": [{"_uuid": f"I{i}", "name": f"p{i}", "ofport": number}
                      for i, number in ((2, 7), (0, 1), (1, 7))]}]


def loop(found: Stock) -> None:
    bridge = 'fdb/stats-show br"0'
    found.last[bridge] = dict(found.last[bridge], moved=150, entries=3)
    found.more['moving br"0'] = ("50:54:00:00:00:01", ["3", "5"])


def learn(found: Stock) -> None:
    found.samples = [{"rules": 100 + 5000 * i} for i in range(3)]
    found.more["dump-tables br0"] = {"0": 100, "10": 10000}


def flow_mods(found: Stock) -> None:
    busy(found, "revalidator")
    count(found, rev_flow_table=50, ofproto_recv_openflow=100)
    speak(found, "br0.mgmt", "python3 churn.py (pid 812)")


def config(found: Stock) -> None:
    busy(found, "ovs-vswitchd")
    count(found, bridge_reconfigure=40)
    speak(found, "db.sock", "ovs-vsctl, run by sh x.sh (pid 9)")
    found.changes = {("Interface", "p17", "other_config"): 2000,
                     ("Port", "p1", "tag"): 3}


def meter(found: Stock) -> None:
    count(found, datapath_drop_meter=990)
    found.more["meters"] = {"br0 meter 7": 9900, "br0 meter 8": 0}


def packet_ins(found: Stock) -> None:
    count(found, packet_in_overflow=100)
    found.more["packet-ins"] = "p3", "table 0"


def reconnect(found: Stock) -> None:
    found.tables = [{"Controller": [{
        "target": "tcp:192.0.2.1", "status": {
            "sec_since_connect": seconds, "last_error": "End of file"}}]}
        for seconds in ("3", "1")]


def no_cpu(found: Stock) -> None:
    for reading in found.threads:
        reading["threads"] = [thread for thread in reading["threads"]
                              if not thread["name"].startswith("pmd")]
    interface(found, {}, {"type": "dpdk", "ofport": 7})
    found.tables[-1]["Open_vSwitch"] = [
        {"other_config": {"pmd-cpu-mask": "0xf000"}}]


def lacp(found: Stock) -> None:
    found.tables = [{
        "Port": [{"name": "bond0", "lacp": "active",
                  "interfaces": ["i", "j"]}],
        "Interface": [{"_uuid": uuid, "name": uuid, "lacp_current": False,
                       "link_state": "up"} for uuid in ("i", "j")]}] * 2


def soon(found: Stock) -> None:
    found.tables = [{"Open_vSwitch": [{"other_config": {"max-idle": "10"}}]}]
    found.first["dpctl/show"] = {DATAPATH: {"hit": 100, "missed": 100}}
    found.last["dpctl/show"] = {DATAPATH: {"hit": 2100, "missed": 8100}}


def multicast(found: Stock) -> None:
    count(found, rev_mcast_snooping=300)
    found.tables = [{"Bridge": [{"name": "br0", "other_config": {
        "mcast-snooping-table-size": "10"}}]}]
    found.more["mdb/show br0"] = stocktext.groups(
        "port  VLAN  protocol  GROUP                Age\n" + "".join(
            f"    {i}     0  IGMPv2    239.1.0.{i % 10}         0\n"
            for i in range(20)) + "    1     0  querier       3\n")


def log(found: Stock, *lines: str) -> None:
    """Has the log some lines of the window."""
    found.since = START
    found.log = "".join(f"2026-01-01T00:00:0{i}.000Z|0000{i}|{line}\n"
                        for i, line in enumerate(lines))


def mtu(found: Stock) -> None:
    log(found, "netdev_linux|WARN|error sending Ethernet packet on p 2: "
        "Message too long")


def unread(found: Stock) -> None:
    count(found, rconn_overflow=1400)
    speak(found, "br0.mgmt", "ovs-ofctl (pid 8)")


def resubmits(found: Stock) -> None:
    count(found, drop_action_too_many_resubmit=40)
    found.log = ("2026-01-01T00:00:00.000Z|00123|ofproto_dpif_xlate(handler1)"
                 "|WARN|over 4096 resubmit actions on bridge br0 while "
                 "processing arp,in_port=1,dl_dst=ff:ff:ff:ff:ff:ff")
    found.more["rule"] = "table 9, priority 5"


def neighbour(found: Stock) -> None:
    count(found, drop_action_tunnel_neigh_cache_miss=100)
    found.more["silent"] = [("10.1.1.9", "10.9.0.7")]


def dropped(counter: str) -> Callable[[Stock], None]:
    return lambda found: count(found, **{counter: 10})


def change(command: str, **numbers: int) -> Callable[[Stock], None]:
    def make(found: Stock) -> None:
        found.last[command] = {DATAPATH: dict(found.last[command][DATAPATH],
                                              **numbers)}
    return make


def slow(found: Stock) -> None:
    found.more["slow"] = [(1990.0, "p3", "controller", "recirc_id(0)"),
                          (9.0, "p1", "action", "recirc_id(0)"),
                          (0.0, "p1", "lacp", "recirc_id(0)")]
    found.more["slow rule"] = "table 3 of br0, ip, priority 7"


def ruleless(found: Stock) -> None:
    found.more["dump-tables br0"] = {"0": 0, "1": 7}
    found.tables = [{
        "Bridge": [{"name": "br0", "ports": "P1", "controller": []}],
        "Port": [{"_uuid": "P1", "interfaces": "I1"}],
        "Interface": [{"_uuid": "I1", "name": "p1",
                       "statistics": {"rx_packets": n}}]} for n in (5, 405)]


def vanish(found: Stock) -> None:
    found.more["dropped"] = [
        (5.0, "Nonexistent output port", "table 0 of br0, priority 1"),
        (50.0, "neighbor cache miss for 10.9.0.7 on bridge br0", "table 0"),
        (90.0, "VLAN 5 packet received on port p1", "table 0 of br0")]


def controller(found: Stock) -> None:
    found.tables = [{"Controller": [{
        "target": "tcp:192.0.2.1", "controller_rate_limit": 100,
        "status": status}]} for status in ({"packet-in-miss-dropped": "5"}, {
            "packet-in-miss-dropped": "905", "packet-in-miss-queued": "1000",
            "packet-in-miss-bypassed": "0"})]


def alone(found: Stock) -> None:
    found.tables = [{
        "Bridge": [{"_uuid": "b0", "name": "br0", "controller": ["7f", "80"],
                    "fail_mode": "secure"}],
        "Controller": [{"_uuid": uuid, "target": target, "is_connected": False}
                       for uuid, target in (("7f", "tcp:192.0.2.1:6653"),
                                            ("80", "ptcp:6654"))]}] * 2


def full(found: Stock) -> None:
    found.last.update({"dpctl/ct-get-maxconns": 1000,
                       "dpctl/ct-get-nconns": 1000})
    count(found, conntrack_full=1800)


def pmd(found: Stock) -> None:
    for reading, n in (found.first, 0), (found.last, 1):
        reading["dpctl/show"] = {
            "netdev@ovs-netdev": {"hit": 70 * n, "missed": 30 * n}}
    found.last["dpif-netdev/pmd-rxq-show"] = [
        Pmd(5, [("dpdk0", 0, 0.05), ("dpdk0", 1, 0.88)], 0.03, True),
        Pmd(7, [("dpdk1", 0, 0.01)], 0.0, True)]


def stall(found: Stock) -> None:
    count(found, long_poll_interval=0.2)
    found.since = START
    found.log = ("2025-12-31T23:59:59.999Z|00001|timeval|WARN|Unreasonably "
                 "long 9999ms poll interval (1ms user)\n"
                 "2026-01-01T00:00:01.000Z|00002|timeval|WARN|Unreasonably "
                 "long 2345ms poll interval (1ms user)\n")


def kept(found: Stock) -> None:
    found.resident = 220000000
    change("upcall/show", max=60000)(found)


def routes(found: Stock) -> None:
    busy(found, "ovs-vswitchd")
    count(found, route_table_dump=3)
    found.kernel = rtnetlink.Changes(os.getpid())
    found.kernel.names.update({7: "bird (pid 9)"})
    found.kernel.counts.update({
        ("routes of table main", 7): 200, ("routes of table local", 0): 400,
        ("the link p1", 7): 300})


def toggled(found: Stock) -> None:
    busy(found, "revalidator")
    count(found, rev_port_toggled=5)
    interface(found, {"link_resets": 7}, {"link_resets": 10})


def refused(found: Stock, n: int) -> None:
    log(found, *["connmgr|INFO|br0<->unix#3: sending OFPFMFC_TABLE_FULL error "
                 "reply to OFPT_FLOW_MOD message"] * n)


def shaped(found: Stock) -> None:
    log(found, "netdev_linux(handler1)|WARN|error sending Ethernet packet on "
        "p 1: Resource temporarily unavailable", "netdev_linux|WARN|Dropped "
        "4329 log messages in last 12 seconds")
    found.tables = [{"Port": [{"name": "p 1", "qos": "q"}], "QoS": [{
        "_uuid": "q", "type": "linux-htb",
        "other_config": {"max-rate": "10000"}}]}]


def key(found: Stock) -> None:
    count(found, datapath_drop_upcall_error=300)
    log(found, "tunnel(handler1)|WARN|receive tunnel port not found (udp,"
        "tun_id=0xc8,tun_src=10.9.0.7,tun_dst=10.9.0.1,in_port=1)")
    interface(found, {}, {"options": {"remote_ip": "10.9.0.7", "key": "100"}})


def slave(found: Stock) -> None:
    count(found, connmgr_async_unsent=1000)
    found.tables = [{"Controller": [{
        "target": "tcp:192.0.2.1", "is_connected": True, "role": "slave"}]}]


def nat(found: Stock) -> None:
    log(found, "conntrack(pmd-c00/id:2)|WARN|Unable to NAT due to tuple space "
        "exhaustion", "conntrack(pmd-c00/id:2)|WARN|Dropped 90 log messages "
        "in last 12 seconds (most recently, 0 seconds ago)")
    found.more["nat"] = "src=10.99.0.1:1000-1009"


def checksums(found: Stock) -> None:
    count(found, conntrack_l4csum_err=10)
    found.more["invalid"] = "p3"


def busy_database(found: Stock) -> None:
    found.server = [{"pid": 5, "now_us": 1e7 * i, "threads": [{
        "tid": 5, "name": "ovsdb-server", "cpu_ns": 3 * 10 ** 9 * i,
        "run_delay_ns": 7 * 10 ** 9 * i}]} for i in (1, 2)]
    speak(found, "db.sock", "python3 inventory.py (pid 9)")


# What makes each rule, and no other, begin a finding, and words that it has.
CASES = {
    "restarted": (lambda s: setattr(s, "follower", 77),
                  "process 77 has replaced process 1"),
    "database-gone": (
        lambda s: setattr(s, "no_database", "[Errno 111] Connection refused"),
        "does not answer ([Errno 111] Connection refused): without"),
    "lacp-alone": (lacp, "Bond bond0 carries nothing"),
    "pmd-without-cpu": (no_cpu, "Port p1 receives nothing: there is no PMD "
                        "thread, because other_config:pmd-cpu-mask=0xf000"),
    "port-error": (lambda s: interface(s, {}, {"error": "No such device"}),
                   "Port p1 could not be opened: No such device"),
    "cpu-quota": (lambda s: s.quotas.extend([
        {"/": (5, 5), "/pod": (10, 0)}, {"/": (5, 5), "/pod": (110, 85)}]),
        "The CPU quota of the cgroup /pod is used up in 85% of the periods"),
    "link-flaps": (lambda s: interface(s, {"link_resets": 7}, {
        "link_resets": "57"}), "port p1 has changed state 50 times in 10"),
    "controller-flaps": (reconnect, "controller tcp:192.0.2.1 keeps breaking; "
                         "the latest one was made 1 s ago (End of file)"),
    "bond-down": (lambda s: s.more.update(unused=[("bond0", ["i", "j"])]),
                  "Bond bond0 carries nothing: all its links are "
                  "down (i, j)"),
    "packets-unsent": (shaped, "port p 1 are lost: the rate of its QoS ("
                       "linux-htb, max-rate 10000) is too low"),
    "tunnel-unknown": (key, "300 packets a second from the tunnel's end "
                       "10.9.0.7 are dropped: their key is 200; port p1 has "
                       "100"),
    "packet-ins-unreceived": (slave, "1,000 packets a second reach no "
                              "controller: tcp:192.0.2.1 has made itself a "
                              "slave"),
    "rules-refused": (
        lambda s: refused(s, 5),
        "br0 refuses OpenFlow rules again and again (OFPFMFC_TABLE_FULL)"),
    "nat-full": (nat, "is left in nat(src=10.99.0.1:1000-1009)"),
    "cfm-fault": (lambda s: interface(s, *[{
        "cfm_fault": True, "cfm_fault_status": ["recv", "rdi"]}] * 2),
        "CFM on p1 has a fault (recv, rdi)"),
    "multicast-unregistered": (
        lambda s: s.more.update(unregistered=("br0", 900.0)),
        "br0 drops 900 multicast"),
    "database-disk-full": (lambda s: setattr(s, "full_disk", "/x/conf.db"),
                           "file system of /x/conf.db is full"),
    "database-busy": (busy_database, "needs 100% of a CPU, by python3 "
                      "inventory.py (pid 9)"),
    "log-grows": (
        lambda s: (setattr(s, "logs", 6000000),
                   s.more.update(debug=["bond", "bridge", "cfm", "dpif"])),
        "36 MB a minute: debug messages are on (bond, bridge, cfm, ...)"),
    "files-limit": (lambda s: setattr(s, "files", (47, 47)), "has 47 files"),
    "conntrack-l4csum-err": (checksums, "most come from port p3"),
    "fragments-full": (lambda s: s.last.update({
        "dpctl/ipf-get-status": {"n": 1000, "max": 1000}}), "1,000 IP frag"),
    "max-idle-low": (soon, "80% of packets are upcalls, because unused flows "
                     "are deleted after 10 ms"),
    "multicast-table-full": (multicast, "groups (10) is full, and changes 300 "
                             "times a second"),
    "packet-too-large": (mtu, "the MTU of port p 2 are lost"),
    "rconn-overflow": (unread, "enough, by ovs-ofctl (pid 8)"),
    "mac-table-full": (macs, "4,000 addresses were evicted in 10 s; port p1 "
                       "has 900 entries"),
    "mac-moves": (loop, "(3 are known) move between ports 15 times a second: "
                  "a loop, or two hosts with the same address; 50:54:00:00:00:"
                  "01 was on ports number 3, number 5"),
    "rules-grow": (learn, "by 1,000 a second without a message, to 10,100, "
                   "most in table 10 of br0"),
    "rules-change": (flow_mods, "by python3 churn.py (pid 812) to br0: a "
                     "revalidator needs 90%"),
    "config-changes": (config, "(Interface p17, other_config: 200.0 times a "
                       "second), by ovs-vsctl, run by sh x.sh (pid 9); the "
                       "main thread "),
    "flows-retranslated": (toggled, "5 times a second, because ports go up "
                           "and down, most of port p1 (3 times): a "),
    "main-busy": (routes, "needs 90% of a CPU: reading all routes 3.0 "
                  "times a second: routes of table main change 20.0 times a "
                  "second, by bird (pid 9)"),
    "main-stalls": (stall, "for up to 2,345 ms in one go (2 times"),
    "threads-busy": (lambda s: busy(s, "handler"), "handler5 needs 90%"),
    "pmd-overloaded": (pmd, "core 5 is 96% busy, 88% with queue 1 of port "
                       "dpdk0; 30% of the packets are upcalls; the one of "
                       "core 7 is 1% busy"),
    "rx-missed": (lambda s: interface(
        s, {"statistics": {"rx_missed_errors": 5, "rx_packets": 10}},
        {"statistics": {"rx_missed_errors": 305, "rx_packets": 9710}}),
        "Port p1 has lost 300 packets (3.0%)"),
    "port-drops": (lambda s: interface(
        s, {"statistics": {"tx_dropped": 5, "tx_packets": 10}},
        {"statistics": {"tx_dropped": 305, "tx_packets": 9710}}),
        "Port p1 has lost 300 packets (tx_dropped), 3.0% of those sent"),
    "no-rules": (ruleless, "br0 drops all packets (40 a second): its table 0 "
                 "has no rule"),
    "pipeline-drops": (vanish, "90 packets a second are dropped: VLAN 5 p"),
    "upcalls-lost-kernel": (change("dpctl/show", lost=500, missed=520),
                            "has lost 500 upcalls (51.0%)"),
    "flow-limit-low": (change("upcall/show", current=200, limit=200),
                       "200 flows are at the limit, 200"),
    "slow-path": (slow, "most of port p3 (flows: 2; reason: controller; rule: "
                  "table 3 of br0, ip, priority 7)"),
    "controller-absent": (alone, "br0 has no connection to its controller, "
                          "tcp:192.0.2.1:6653: its rules stay"),
    "packet-ins-dropped": (controller, "900 packets for the controller tcp:"
                           "192.0.2.1 (90%) were dropped: they exceed its "
                           "limit of 100 a second"),
    "conntrack-full": (full, "1,000 of 1,000 connections; 1,800 packets a "
                       "second find no room"),
    "bfd-flaps": (lambda s: interface(
        s, {"bfd_status": {"flap_count": "2"}},
        {"bfd_status": {"flap_count": "9", "diagnostic": "Control Detection "
                        "Time Expired"}}), "7 times (Control Detection Time"),
    "memory-kept": (kept, "ovs-vswitchd uses 220 MB, most of it kept from "
                    "a time with 60,000 flows"),
    "drop-action-too-many-resubmit": (
        resubmits, "more than 4,096 resubmits; on br0, arp from port number 1 "
        "to ff:ff:ff:ff:ff:ff, by the rule table 9, priority 5"),
    "drop-action-tunnel-neigh-cache-miss": (
        neighbour, "no answer from 10.9.0.7 (to 10.1.1.9)"),
    "datapath-drop-meter": (meter, "a meter limits them (br0 meter 7)"),
    **{counter.replace("_", "-"): (dropped(counter), "10 packets a second ")
       for counter in """
       drop_action_recursion_too_deep drop_action_tunnel_routing_failed
       conntrack_zone_full""".split()},
    "datapath-drop-lock-error": (
        dropped("datapath_drop_lock_error"),
        "upcalls are locked out while bridges or ports change"),
    "packet-in-overflow": (packet_ins, "wait for a controller; most come from "
                           "port p3 (rule: table 0)")}


def findings(found: Stock) -> List[Dict[str, Any]]:
    recording = Recording()
    recording.stock["/x"] = found
    return doctor.findings(recording)


class TestRules(unittest.TestCase):
    def test_rules(self) -> None:
        """Each rule is true in its case, and begins the only story."""
        self.assertEqual(set(CASES), {
            rule.name for rule in (*STOCK_RULES, *FAULT_RULES)})
        for name, (make, words) in CASES.items():
            with self.subTest(name):
                found = healthy()
                make(found)
                told = findings(found)
                self.assertEqual([f["rule"] for f in told if not f["because"]],
                                 [name])
                self.assertIn(words, told[0]["sentence"])

    def test_healthy(self) -> None:
        self.assertEqual(findings(healthy()), [])
        self.assertEqual(findings(Stock()), [])

    def test_harmless(self) -> None:
        """What happens once, or for another reason, is no trouble."""
        def works(found: Stock) -> None:
            key(found)
            found.tables = [{"Interface": [{
                "name": "p1", "options": {"remote_ip": "10.9.0.7"},
                "statistics": {"rx_packets": n}}]} for n in (5, 900)]

        def seldom(found: Stock) -> None:
            nat(found)
            found.log = found.log.replace("90 log", "3 log")

        for make in (lambda s: refused(s, 3), works, seldom):
            found = healthy()
            make(found)
            self.assertEqual(findings(found), [])
        found = healthy()
        log(found, "vconn|WARN|unix#7: version negotiation failed (we)")
        reconnect(found)
        self.assertIn("(End of file)", findings(found)[0]["sentence"])

    def test_unreceived(self) -> None:
        """Packets for a controller that there is not; those that match no
        rule may be meant to be dropped."""
        for rule, n in ("table 0 of br0, udp, priority 7", 1), (
                "table 0 of br0, No match.", 0):
            found = healthy()
            count(found, connmgr_async_unsent=1219)
            found.tables = [{"Controller": []}]
            found.more["packet-ins"] = "p3", rule
            told = findings(found)
            self.assertEqual([f["sentence"] for f in told], [
                "1,219 packets a second reach no controller: none is "
                f"connected; most come from port p3 (rule: {rule})"] * n)

    def test_down(self) -> None:
        """A port that is down, or has no carrier, that a rule outputs to."""
        for state, words in ("down", "p1 is down (ip link set p1 up), and"), (
                "up", "p1 has no carrier, and packets of p3 are sent there"):
            found = healthy()
            interface(found, *({"admin_state": state, "link_state": "down",
                                "statistics": {"tx_dropped": n}}
                               for n in (5, 900)))
            watch = Watch(Target("x"))
            watch.stock = found
            watch._dump = [stocktext.Flow(50, "p2", "", "p1"),
                           stocktext.Flow(900, "p3", "", "p1"),
                           stocktext.Flow(990, "p3", "", "p1,p2")]
            watch._ask_unsent()
            self.assertEqual(found.more["unsent"], {"p1": "p3"})
            self.assertIn(f"Packets for port p1 are lost: {words}",
                          findings(found)[0]["sentence"])

    def test_bond(self) -> None:
        """A bond without links that packets go to, if their MAC address is
        known, or not."""
        trace = 'bridge("br0")\n 0. priority 0\n    NORMAL\n     -> '
        for actions, why, n in (
                ("drop", "forwarding to learned port", 1),
                ("p3", "forwarding to learned port", 0),
                ("p3", "no learned MAC for destination, flooding", 0),
                ("br0", "no learned MAC for destination, flooding", 1)):
            watch = Watch(Target("x"))
            watch.stock.tables = [{
                "Bridge": [{"name": "br0", "ports": ["P"]}],
                "Port": [{"_uuid": "P", "name": "bond0",
                          "interfaces": ["I", "J"]}],
                "Interface": [{"_uuid": uuid, "name": name,
                               "link_state": "down"}
                              for uuid, name in (("I", "p1"), ("J", "p2"))]}]
            watch._dump = [stocktext.Flow(500, "p3", "eth(dst=02:", actions)]
            with mock.patch.object(Watch, "_trace", lambda *_: trace + why):
                watch._ask_bonds()
            self.assertEqual(watch.stock.more["unused"],
                             [("bond0", ["p1", "p2"])] * n)

    def test_errors(self) -> None:
        """Each error of a port, once."""
        found = healthy()
        found.tables = [{"Interface": [
            {"name": f"p{i}", "error": f"could not open p{i} ({error})"}
            for i, error in enumerate(["No such device", "File exists",
                                       "No such device"], 1)]}]
        (told,) = findings(found)
        self.assertIn("(No such device) (1 more); port p2 could not be opened",
                      told["sentence"])
        self.assertRegex(told["advice"],
                         "Create the device.* or a tunnel with ")

    def test_unrouted(self) -> None:
        """The tunnel that has no route, and the port."""
        watch = Watch(Target("x"))
        watch.stock = found = healthy()
        count(found, drop_action_tunnel_routing_failed=50)
        found.tables = [{"Interface": [
            {"name": f"vx{i}", "options": {"remote_ip": f"10.1.1.{i}"}}
            for i in (8, 9)]}]
        found.more["dropped"] = []
        with mock.patch.object(Watch, "_text", lambda _, __, end: {
                "10.1.1.8": "src 10.1.1.1\ndev br1\n"}.get(end, "")):
            watch._ask_neighbours()
        self.assertIn("remote end of a tunnel (10.1.1.9 of port vx9)",
                      findings(found)[0]["sentence"])

    def test_memory(self) -> None:
        """What is kept of much memory does not matter."""
        found = healthy()
        kept(found)
        for reading in found.first, found.last:
            reading["upcall/show"][DATAPATH]["current"] = 1
        (told,) = findings(found)
        self.assertIn("; now there is 1", told["sentence"])
        self.assertNotIn("kernel", told["advice"])
        found.room = 2 * 10 ** 9
        self.assertEqual(findings(found), [])
        self.assertGreater(processes.memory_limit(os.getpid()), 10 ** 8)

    def test_advice(self) -> None:
        """Only what helps in this case."""
        for why, words in (("VLAN 5 packet", "Correct the port"),
                           ("RSTP blocks port p2", "Spanning tree blocks"),
                           ("Nonexistent output port", "Correct the rule")):
            found = healthy()
            found.more["dropped"] = [(90.0, why, "table 0 of br0")]
            (told,) = findings(found)
            self.assertRegex(told["advice"], f"^{words}[^.]*[.] `ovs-appctl")

    def test_client(self) -> None:
        """Who adds rules that are refused."""
        found = healthy()
        refused(found, 5)
        speak(found, "br0.mgmt", "ovs-ofctl, run by bash adder.sh (pid 386)")
        self.assertTrue(findings(found)[0]["sentence"].endswith(
            "): they come from ovs-ofctl, run by bash adder.sh (pid 386)"))

    def test_before(self) -> None:
        """What the log has from before the window may be over."""
        found = healthy()
        mtu(found)
        found.since += 5
        self.assertIn("were lost 5 s before the doctor looked",
                      findings(found)[0]["sentence"])

    def test_many_errors(self) -> None:
        """Messages that are not suppressed, yet."""
        for n in 9, 10:
            found = healthy()
            shaped(found)
            log(found, *found.log.split("|", 2)[2].split("\n")[:1] * n)
            self.assertEqual(len(findings(found)), n == 10)

    def test_chain(self) -> None:
        """An effect of an effect is told, too."""
        found = healthy()
        for make in (toggled, config, busy_database):
            make(found)
        interface(found, {"link_resets": 7}, {"link_resets": 57})
        self.assertLessEqual(
            {("link-flaps", ""), ("config-changes", "link-flaps"),
             ("database-busy", "config-changes")},
            {(f["rule"], f["because"]) for f in findings(found)})

    def test_awaited(self) -> None:
        """The log names the thread that others wait for."""
        found = healthy()
        stall(found)
        found.log += ("2026-01-01T00:00:02.000Z|00003|ovs_rcu|WARN|blocked "
                      "2000 ms waiting for pmd-c01/id:6 to quiesce\n")
        self.assertIn("(2 times over 1 s), waiting for pmd-c01/id:6 (RCU)",
                      findings(found)[0]["sentence"])
        found.since = START + 3
        self.assertEqual(found.awaited(), "")

    def test_learner(self) -> None:
        """The bridge that learns most addresses."""
        found = healthy()
        busy(found, "revalidator")
        count(found, rev_mac_learning=9)
        bridge = 'fdb/stats-show br"0'
        found.last[bridge] = dict(found.last[bridge], learned=5000)
        self.assertRegex(findings(found)[0]["sentence"],
                         r'ports, most by br"0 \(4,\d+ new ones\): a reval')

    def test_story(self) -> None:
        """What follows from a finding is below it."""
        found = healthy()
        macs(found)
        lines = list(doctor.render(findings(found), False))
        self.assertRegex(lines[0], r"^br\"0: the MAC table \(1,000\) is full")
        self.assertEqual([line[:18] for line in lines if "So:" in line],
                         ["    So: Flows are ", "    So: revalidato"])

    def test_controllers(self) -> None:
        """One controller is enough, and a listener needs none."""
        for uuid, change in (("7f", {"is_connected": True}),
                             ("7f", {"target": "punix:x"}), ("7f", {})):
            found = healthy()
            alone(found)
            found.tables = copy.deepcopy(found.tables)
            for row in found.tables[-1]["Controller"]:
                row.update(change if row["_uuid"] == uuid else {})
            self.assertEqual(len(findings(found)), not change)

    def test_receiver(self) -> None:
        """The port whose packets keep the main thread busy; what PMD threads
        receive does not."""
        for kind, words in (
                ("", "ports without a PMD thread, most of port p1"),
                ("dpdk", "of a CPU, for an unknown reason")):
            found = healthy()
            busy(found, "ovs-vswitchd")
            count(found, netdev_received=10000)
            interface(found, *({"type": kind, "statistics": {"rx_packets": n}}
                               for n in (10, 90010)))
            self.assertIn(words, findings(found)[0]["sentence"])

    def test_bulk(self) -> None:
        """Many rules that are loaded at once are no trouble."""
        found = healthy()
        busy(found, "ovs-vswitchd", 0.7)
        count(found, ofproto_recv_openflow=20000)
        self.assertEqual(findings(found), [])
        busy(found, "ovs-vswitchd", 0.95)
        self.assertIn("20,000 OpenFlow messages a second",
                      findings(found)[0]["sentence"])

    def test_seldom(self) -> None:
        """A change every few seconds is too much if each takes that long."""
        found = healthy()
        busy(found, "revalidator")
        count(found, rev_flow_table=0.3, xlate_actions=50)
        self.assertEqual(findings(found)[0]["rule"], "threads-busy")
        count(found, xlate_actions=500, ofproto_recv_openflow=0.3)
        self.assertIn("again every 3 s, because OpenFlow rules change (0.3 m",
                      findings(found)[0]["sentence"])

    def test_starved(self) -> None:
        """A thread without a CPU needs it as much as one that has it."""
        found = healthy()
        thread = found.threads[-1]["threads"][1]
        thread["cpu_ns"], thread["run_delay_ns"] = 17 * 10 ** 8, 82 * 10 ** 8
        count(found, rev_flow_table=50, ofproto_recv_openflow=100)
        told = findings(found)
        self.assertEqual(told[0]["rule"], "rules-change")
        self.assertIn("needs 94% of a CPU", told[0]["sentence"])

    def test_cleared(self) -> None:
        """Counters that begin again in the window say what they can."""
        found = healthy()
        count(found, datapath_drop_meter=5, rev_bond=3)
        for name in found.first["coverage/show"]:
            found.first["coverage/show"][name] = Count(10 ** 12, 0, 0)
        self.assertTrue(found.cleared())
        self.assertEqual(found.rate("datapath_drop_meter"), 5)
        self.assertEqual(found.grown('br"0', "none"), 0)
        found.threads[-1]["pid"] = 2
        self.assertEqual(found.shares(".*"), {})
        self.assertEqual(found.main(), 0)

    def test_once(self) -> None:
        """One reading has the rates of the last minute."""
        found = healthy()
        found.seconds, found.first, found.threads = 0, {}, []
        found.last["coverage/show"]["conntrack_zone_full"] = Count(
            10 ** 6, 0, 2)
        self.assertEqual([f["rule"] for f in findings(found)],
                         ["conntrack-zone-full"])

    def test_hostile(self) -> None:
        """Names that a terminal would obey."""
        found = healthy()
        controller(found)
        for tables in found.tables:
            tables["Controller"][0]["target"] = "\x1b[2Jx{0}"
        self.assertIn("controller \\x1b[2Jx{0} (90%)",
                      findings(found)[0]["sentence"])


class TestText(unittest.TestCase):
    def test_versions(self) -> None:
        """What each version prints is understood."""
        self.assertEqual(sorted(RECORDED), ["3.1.0", "3.5.0", "4.0.0"])
        for version, texts in RECORDED.items():
            with self.subTest(version):
                found = Stock()
                for command, text in texts.items():
                    found.add(found.last, command, text)
                self.assertEqual(found.notes, [])
                last = found.last
                for command in (*stock.FIRST, *stock.ONCE):
                    if not command.endswith((" BR", "10")):
                        self.assertIn(command, last)
                self.assertEqual(last['fdb/stats-show br"0'], {
                    "entries": 20, "max": 8192, "learned": 20, "expired": 0,
                    "evicted": 0, "moved": 0})
                self.assertIn(20, Counter(port for port, _, _ in stocktext.fdb(
                    texts['fdb/show br"0'], found.notes)).values())
                self.assertEqual(last["dpctl/show"][DATAPATH]["lost"], 0)
                self.assertGreater(last["coverage/show"][
                    "mac_learning_learned"].total, 0)
                self.assertEqual(last["upcall/show"][DATAPATH]["max"], 20)
                pmds = last["dpif-netdev/pmd-rxq-show"]
                self.assertEqual([q[:2] for q in pmds[0].queues], [
                    ("d1", 0), ("d1", 1), ("d: (x)", 0)])
                self.assertEqual(last["tnl/neigh/show"], ["10.9.0.9"])
                self.assertEqual(last["memory/show"]["ports"], 7)
                self.assertEqual(last["dpctl/ct-get-maxconns"], 3000000)
                self.assertEqual(stocktext.next_hop(
                    texts["ovs/route/lookup 10.1.1.9"]), "10.9.0.7")
                self.assertEqual(
                    {flow.port for flow in stocktext.flows(
                        texts["dpctl/dump-flows --names"])
                     if "slow_path(action)" in flow.actions}, {"d1"})
                self.assertEqual(stocktext.tables(texts["dump-tables"])["0"],
                                 1)
                self.assertEqual(stocktext.meters(texts["meter-stats"]),
                                 {"7": 0})

    def test_flows(self) -> None:
        """Flows as ofproto/trace takes them: with an address, and without a
        type if they have none."""
        self.assertEqual(stocktext.flows(
            "flow-dump from the main thread:\n"
            "recirc_id(0),in_port(3),packet_type(ns=0,id=0),eth_type(0x0800),"
            "ipv4(frag=no), packets:205, bytes:9, used:0.2s, actions:drop\n"
            "recirc_id(0),in_port(n0),eth(src=00:00:00:00:00:01,dst=03:00:00:"
            "00:00:01),eth_type(0/0xffff), packets:90, bytes:9, used:0.0s, "
            "flags:S., actions:2,userspace(pid=0,controller(reason=1))\n"), [
                (205, "3", "recirc_id(0),in_port(3),packet_type(ns=0,id=0),"
                 "eth(),eth_type(0x0800),ipv4(frag=no)", "drop"),
                (90, "n0", "recirc_id(0),in_port(n0),eth(src=00:00:00:00:00:"
                 "01,dst=03:00:00:00:00:01)",
                 "2,userspace(pid=0,controller(reason=1))")])
        for match, is_so in (("eth(dst=03:00:00:00:00:01)", True),
                             ("eth(src=03:00:00:00:00:01,dst=02:", False)):
            self.assertEqual(stocktext.Flow(1, "", match, "").to_group(),
                             is_so)

    def test_trace(self) -> None:
        trace = ('bridge("br0")\n-------------\n 0. ip, priority 7\n'
                 "    resubmit(,1)\n 1. reg1=0x1, priority 3, cookie 0x9\n"
                 "    resubmit(,2)\n     2. priority 5\n"
                 "            resubmit(,3)\n         3. reg1=0x1, priority 1\n"
                 "    resubmit(,2)\n     2. priority 5\n")
        self.assertEqual(stocktext.resubmitting_rule(trace),
                         "table 1, reg1=0x1, priority 3, cookie 0x9")
        self.assertEqual(stocktext.resubmitting_rule(
            " 0. priority 7\n 1. priority 3\n 0. priority 7\n"
            " 1. priority 3\n"), "table 0, priority 7")
        for text in ("  >> Nonexistent output port\n",
                     "\n >>>> Nonexistent output port <<<<\n >> b",
                     "    >> dropping Nonexistent output port"):
            self.assertEqual(stocktext.warning(text),
                             "Nonexistent output port")
        self.assertEqual(stocktext.warning(
            " 0. priority 7\n    group:1\n     -> bucket 0: not live due to "
            "port 7\n     -> bucket 1: not live due to port 4\n     -> no "
            "live bucket\n"), "group 1 has no live bucket (port 7, port 4)")
        self.assertEqual(stocktext.warning(
            "    drop\n -> no >> one\n >> skipping output to input port\n"
            " >> RSTP not in forwarding state, skipping output\n"), "")
        self.assertEqual(stocktext.warning(
            "    output:10\n     >> RSTP not in forwarding state, skipping "
            "output\n"), "RSTP blocks port 10")
        self.assertEqual(stocktext.last_rule(trace),
                         "table 2 of br0, priority 5")
        self.assertEqual(stocktext.resubmitting_rule("no such bridge"), "")
        self.assertEqual(stocktext.last_rule("no such bridge"), "")

    def test_json(self) -> None:
        self.assertEqual(stocktext.fdb({"br0": [
            {"port": 3, "mac": "50:54:00:00:00:01", "vlan": 0, "age": 5}]},
            []), [("3", "0", "50:54:00:00:00:01")])

    def test_changed(self) -> None:
        """A line that is not understood is reported, and gives no number."""
        for command, text in RECORDED["4.0.0"].items():
            key = "fdb/stats-show BR" if "fdb/stats" in command else command
            if key not in stock.PARSERS or key == "version":
                continue
            with self.subTest(command):
                found = Stock()
                found.add(found.last, command,
                          text + "\nEtwas Neues, 12 a second\n")
                self.assertEqual(len(found.notes), 1)
                self.assertRegex(found.notes[0],
                                 "(such as|understood:) \"(Etwas Neu|\\d)")
        found = Stock()
        found.add(found.last, "coverage/show", "rev_bond  7,0/sec total: 5")
        self.assertEqual(found.rate("rev_bond"), 0)
        for rate, total in ("1.2.3", "5"), ("9" * 400 + ".0", "5"), (
                "1.0", "9" * 5000):
            found.add(found.last, "coverage/show", f"rev_bond {rate}/sec "
                      f"1.0/sec 1.0/sec total: {total}")
            self.assertEqual(found.last["coverage/show"], {})

    def test_refused(self) -> None:
        found = Stock()
        found.add(found.last, "tnl/neigh/show",
                  CommandError("not a valid command"))
        found.add(found.last, "tnl/neigh/show", None)
        found.add(found.last, "memory/show", {"a": 1})
        self.assertEqual(found.last, {})
        self.assertEqual(len(found.notes), 1)


class Server(fake.Server):                  # type: ignore
    """A control socket of a switch.  'texts' has the text of a command, None
    if it is unknown; after 'limit' commands, it hangs."""

    def __init__(self, path: str, texts: Callable[[str], Optional[str]],
                 limit: int = 1 << 30, json_: bool = False) -> None:
        super().__init__(path, None)
        self.texts, self.limit, self.json = texts, limit, json_
        self.start()

    def execute(self, connection: socket.socket, request: Any,
                is_json: bool) -> bool:
        self.limit -= 1
        if self.limit >= 0:
            command = " ".join([request["method"], *request["params"]])
            result: Any = self.texts(command)
            if command.startswith("set-options"):
                result = "" if self.json else None
            elif self.json and result is not None:
                result = {"reply-format": "plain", "reply": result}
            reply = fake.answer(request, result)
            for i in range(0, len(reply), 999):         # In pieces.
                connection.sendall(reply[i:i + 999])
        return is_json


class TestWatch(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.path = f"{self.directory}/ovs-vswitchd.1.ctl"

    def watch(self, server: Server, timeout: float = 5) -> Watch:
        self.addCleanup(server.socket.close)
        watch = Watch(Target(self.path, timeout))
        watch.begin(False)
        watch.look(0)
        watch.end()
        return watch

    def test_old(self) -> None:
        """A version that lacks commands, and JSON."""
        texts = RECORDED["3.1.0"]
        for is_json in False, True:
            watch = self.watch(Server(self.path, lambda command: {
                "ofproto/list": 'br"0\n', "tnl/neigh/show": None}.get(
                    command, texts.get(command)), json_=is_json))
            self.assertIn('fdb/stats-show br"0', watch.stock.last)
            self.assertEqual(watch.failed, "")
            self.assertNotIn("tnl/neigh/show", watch.stock.last)
            self.assertEqual([note for note in watch.stock.notes if
                              "database" not in note], [])
            self.assertIn("upcall/show", watch.stock.last)
            self.assertEqual(findings(watch.stock), [])
            os.unlink(self.path)

    def test_late(self) -> None:
        """A switch that answers the first commands only."""
        texts = RECORDED["4.0.0"]
        start = time.monotonic()
        watch = self.watch(Server(self.path, texts.get, 9), 0.5)
        self.assertLess(time.monotonic() - start, 3)
        self.assertIn("no reply to", watch.failed)
        self.assertIn("coverage/show", watch.stock.first)

    def test_other(self) -> None:
        """The socket of another program."""
        watch = self.watch(Server(self.path, {
            "version": "ovsdb-server (Open vSwitch) 4.0.0\n"}.get))
        self.assertIn("this is ovsdb-server", watch.failed)

    def test_restarted(self) -> None:
        """A connection that is gone is made again, once."""
        target = mock.Mock()
        target.pid.side_effect = [5, 0, 5, 0]
        target.ask.side_effect = [TargetError("x"), ["4"], TargetError("y"),
                                  TargetError("z")]
        watch = Watch(target)
        watch._ask(watch.stock.first, ["version"])
        self.assertEqual((watch.stock.first, watch.failed),
                         ({"version": "4"}, ""))
        watch._ask(watch.stock.last, ["version"])
        self.assertEqual(watch.failed, "z")

    def test_gone_for_a_while(self) -> None:
        """In the middle, there is no process, but at the end there is."""
        target = mock.Mock(timeout=10)
        target.pid.return_value = 0
        watch = Watch(target)
        for errors, failed in ([TargetError("refused")], ""), (
                [[None]], "no reply to memory/show"):
            watch._middle = False
            target.ask.side_effect = errors
            watch.look(0)
            self.assertIn(failed, watch.failed)
            self.assertEqual(bool(failed), bool(watch.failed))

    def test_restarted_late(self) -> None:
        """Reports are asked for once more, of the process that came."""
        poller = mock.Mock(failed="")

        def lines(*_: Any) -> List[Any]:
            poller.failed = "" if poller.failed else "x: Broken pipe"
            return []

        poller.round.side_effect = lines
        doctor.ask([mock.Mock(failed="")], [poller], Recording(), "10s")
        self.assertEqual((poller.round.call_count, poller.failed), (2, ""))

    def test_halted(self) -> None:
        """A process that is stopped, one that runs, and none."""
        with subprocess.Popen(["sleep", "60"]) as process:
            self.addCleanup(process.kill)
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            self.assertIn("SIGSTOP", processes.halted(process.pid))
            process.kill()
        self.assertEqual(processes.halted(os.getpid()), "")
        self.assertEqual(processes.halted(0), "")

    def test_last(self) -> None:
        """A switch that keeps no windows of the time before."""
        server = Server(self.path, RECORDED["4.0.0"].get)
        self.addCleanup(server.socket.close)
        recording = Recording()
        self.assertEqual(doctor.watch([Target(self.path)], 10, "5m",
                                      recording), [])
        (found,) = recording.stock.values()
        self.assertIn("--last gives only rates of the last minute",
                      found.notes[-1])

    def test_threads(self) -> None:
        """The process at the other end, and none."""
        watch = self.watch(Server(self.path, RECORDED["4.0.0"].get))
        self.assertEqual(watch.stock.threads[0]["pid"], os.getpid())
        self.assertGreater(watch.stock.resident, 0)
        self.assertEqual(processes.threads(0), {})
        self.assertEqual(processes.memory(0), 0)
        self.assertEqual(processes.log(0), ("", 0))

    def test_remote(self) -> None:
        """The database at another place, and by TCP."""
        for words, remote in (
                (["--pidfile", "tcp:127.0.0.1:6640,tcp:[::1]:6640"],
                 "tcp:127.0.0.1:6640"), (["--pidfile"], "unix:db.sock")):
            with mock.patch.object(processes, "_text", lambda path:
                                   "\0".join(["ovs-vswitchd", *words])):
                self.assertEqual(processes.database(1), remote)
        self.assertEqual(processes.database(os.getpid()), "")
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            Database(f"tcp:127.0.0.1:{server.getsockname()[1]}", 1).close()
        with self.assertRaises(ValueError):
            Database("ssl:127.0.0.1:6640", 1)

    def test_absent(self) -> None:
        watch = Watch(Target(self.path, 1))
        watch.begin(False)
        self.assertIn("No such file", watch.failed)
        self.assertEqual(watch.end().last, {})

    def test_clients(self) -> None:
        """The program that is connected to a socket."""
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(f"{self.directory}/br0.mgmt")
        server.listen()
        program = Path(self.directory) / "churn.py"
        program.write_text("import socket, sys\n"
                           "s = socket.socket(socket.AF_UNIX)\n"
                           "s.connect(sys.argv[1])\nsys.stdin.read()\n")
        with subprocess.Popen([sys.executable, str(program),
                               f"{self.directory}/br0.mgmt"],
                              stdin=subprocess.PIPE) as child:
            connection, _ = server.accept()
            clients = processes.Clients(self.directory, 0)
            clients.look()
            child.communicate()
        connection.close()
        if clients.can:
            self.assertRegex(clients.of("br0.mgmt")[0],
                             rf"^\S+ churn\.py \(pid {child.pid}\)$")
        self.assertEqual(clients.of("db.sock"), [])

    def test_listener(self) -> None:
        """The controller of this host."""
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            target = f"tcp:127.0.0.1:{server.getsockname()[1]}"
            self.assertIn(f"(pid {os.getpid()})", processes.listener(target))
            found = healthy()
            flow_mods(found)
            found.clients = None
            found.tables = [{"Controller": [{"target": target,
                                             "is_connected": True}]}]
            found.more["listeners"] = {target: "ryu-manager (pid 7)"}
            self.assertIn(", by ryu-manager (pid 7): a revalidator",
                          findings(found)[0]["sentence"])
        for other in target, "tcp:192.0.2.1:6653", "unix:x", "tcp:x:99999999":
            self.assertEqual(processes.listener(other), "")

    def test_kernel(self) -> None:
        """Links, addresses and routes that change, and who changes them."""
        changes = rtnetlink.Changes(os.getpid())
        self.addCleanup(changes.close)
        changes._socket.close()
        changes._socket, other = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_DGRAM)
        changes._socket.setblocking(False)
        self.addCleanup(other.close)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sender:
            sender.bind((0, 0))
            port = sender.getsockname()[0]
            route = struct.pack("=8BIHHI", 2, 24, 0, 0, 252, 3, 0, 1, 0, 8, 15,
                                1000)
            for kind, body, by in (
                    (24, route, port), (25, route, port), (20, bytes(8), 0),
                    (24, struct.pack("=8BI", 2, 24, 0, 0, 254, 2, 0, 1, 0), 0),
                    (16, struct.pack("=BBHiII", 0, 0, 1, 1, 0, 0), port),
                    (99, b"", 0), (24, b"", 0)):
                other.send(struct.pack("=IHHII", 16 + len(body), kind, 0, 0,
                                       by) + body)
            changes.look()
        self.assertEqual(changes.most(("routes",))[:2],
                         ("routes of table 1000", 2))
        self.assertIn(f"(pid {os.getpid()})", changes.most(("routes",))[2])
        self.assertEqual(changes.most(("addresses",)),
                         ("addresses of device 0", 1, ""))
        self.assertEqual(changes.most(())[:2], ("routes of table 1000", 2))
        self.assertEqual(changes.most(("rules",)), ("", 0, ""))
        with self.assertRaises(OSError):        # No network of a process.
            rtnetlink.Changes(0)

    def test_database(self) -> None:
        """Rows, changes, echo, and messages in pieces."""
        ours, theirs = socket.socketpair()
        self.addCleanup(theirs.close)
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(f"{self.directory}/db.sock")
        server.listen()
        ours.close()
        database = Database(f"unix:{self.directory}/db.sock", 2)
        self.addCleanup(database.close)
        connection, _ = server.accept()
        self.addCleanup(connection.close)
        update = {"method": "update", "id": None, "params": [0, {"Interface": {
            "u": {"new": {"name": "p1", "other_config": ["map", [["n", "2"]]]},
                  "old": {"other_config": ["map", []]}},
            "v": {"old": {"name": "gone"}}}}]}
        text = json.dumps({"method": "echo", "params": [], "id": "echo"})
        text += json.dumps(update) * 2 + json.dumps(
            {"id": 1, "error": None, "result": [
                {"rows": [{"name": "br0", "ports": ["set", [["uuid", "a"]]],
                           "other_config": ["map", [["a", "b"]]]}]}]})

        def serve() -> None:
            connection.recv(9999)
            for i in range(0, len(text), 50):
                connection.sendall(text[i:i + 50].encode())
                time.sleep(0.01)
        thread = threading.Thread(target=serve)
        thread.start()
        self.assertEqual(database.read()["Open_vSwitch"], [
            {"name": "br0", "ports": ["a"], "other_config": {"a": "b"}}])
        thread.join()
        self.assertEqual(database.changes, {
            ("Interface", "p1", "other_config"): 2,
            ("Interface", "gone", "deleted"): 2})
        self.assertEqual(json.loads(connection.recv(999))["id"], "echo")
        # Changes without end.
        stop = threading.Event()

        def storm() -> None:
            while not stop.is_set():
                connection.sendall(json.dumps(update).encode())
        thread = threading.Thread(target=storm)
        thread.start()
        start = time.monotonic()
        database.look()
        self.assertLess(time.monotonic() - start, 5)
        stop.set()
        while thread.is_alive():
            database.look()
        connection.close()
        with self.assertRaises(ConnectionResetError):
            while True:
                database.look()

    def test_database_gone(self) -> None:
        """ovsdb-server that ends in the window, one that only closes the
        connection, one that then hangs, and one that was not there."""
        path = f"{self.directory}/db.sock"
        echo = mock.patch.object(Database, "echo")
        for before, after, answers in (
                (True, False, False), (True, True, True), (True, True, False),
                (False, False, False)):
            switch = Server(self.path, RECORDED["4.0.0"].get)
            self.addCleanup(switch.socket.close)
            server = socket.socket(socket.AF_UNIX)
            self.addCleanup(server.close)
            if before:
                server.bind(path)
                server.listen()
            watch = Watch(Target(self.path, 1))
            with mock.patch.object(Database, "watch"), mock.patch.object(
                    Database, "read", return_value={}), mock.patch.object(
                        processes, "database", lambda pid:
                        "unix:db.sock" * (pid == os.getpid())), (
                            echo if answers else contextlib.nullcontext()):
                watch.begin(False)
                if before:
                    server.accept()[0].close()
                if not after:
                    server.close()
                watch.look(0)
                found = watch.end()
            self.assertEqual(bool(found.no_database), not answers)
            self.assertEqual(found.unread, answers)
            self.assertIn(path if answers else "", "".join(found.notes))
            if before:
                os.unlink(path)
            os.unlink(self.path)


# A schema and transactions, as ovsdb-server stores them.
DATABASE: List[Any] = [
    {"tables": {"Bridge": {"columns": {
        "name": {"type": "string"},
        "ports": {"type": {"key": "uuid", "min": 0, "max": "unlimited"}},
        "other_config": {"type": {"key": "string", "value": "string",
                                  "min": 0, "max": "unlimited"}}}},
     "Interface": {"columns": {"name": {"type": "string"}, "error": {
         "type": {"key": "string", "min": 0, "max": 1}}}}}},
    {"_date": 1, "Bridge": {
        "b": {"name": "br0", "ports": ["set", [["uuid", "p"], ["uuid", "q"]]],
              "other_config": ["map", [["a", "1"], ["b", "2"], ["c", "3"]]]},
        "d": {"name": "gone"}}, "Interface": {"i": {"name": "p1"}}},
    {"_is_diff": True, "Bridge": {
        "b": {"name": "br1", "ports": ["set", [["uuid", "p"], ["uuid", "r"]]],
              "other_config": ["map", [["a", "1"], ["c", "4"]]]},
        "d": None}, "Interface": {"i": {"error": "No such device"}}},
    {"_is_diff": True, "Bridge": {"b": {"ports": ["uuid", "s"]}}},
    {"_is_diff": True, "Bridge": {"b": {"ports": ["uuid", "s"]}}},
]


class TestArchive(unittest.TestCase):
    def test_sosreport(self) -> None:
        """Files are found by their names, whatever surrounds the command."""
        texts = RECORDED["3.1.0"]
        with tempfile.TemporaryDirectory() as top:
            directory = Path(top) / "sos_commands/openvswitch"
            directory.mkdir(parents=True)
            for command, text in texts.items():
                name = re.sub(r"[^\w.-]+", "_", command.replace("/", "."))
                (directory / f"ovs-appctl_{name}").write_text(text)
            (directory / "ovs-appctl_tnl.neigh.show").write_text(
                "ovs-appctl: cannot connect")
            (directory / "ovs-vsctl_-t_5_list_Controller").write_text(
                "_uuid               : 7f2e\ntarget              : \"tcp:x\"\n"
                "controller_rate_limit: 100\nis_connected        : true\n"
                "status              : {packet-in-miss-dropped=\"905\", "
                "packet-in-miss-queued=\"1000\", state=ACTIVE}\n\n")
            (Path(top) / "var").mkdir()
            (Path(top) / "var/ovs-vswitchd.log").write_text("")
            (found,) = archive.load(top).values()
            self.assertEqual(found.notes, [])
            self.assertIn("fdb/stats-show br_0", found.last)
            self.assertNotIn("tnl/neigh/show", found.last)
            self.assertEqual([f["sentence"] for f in findings(found)], [
                "905 packets for the controller tcp:x (90%) were dropped: "
                "they exceed its limit of 100 a second"])
            recording = Recording()
            recording.stock = archive.load(top)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertEqual(doctor.run(recording, [], False), 1)
            self.assertIn("Open vSwitch 3.1.0 has no accounting",
                          out.getvalue())
            # The database of the host, which has what no command has shown.
            (Path(top) / "etc").mkdir()
            (Path(top) / "etc/conf.db").write_text("".join(
                f"OVSDB JSON {len(line)} 0\n{line}\n" for line
                in map(json.dumps, DATABASE)))
            (found,) = archive.load(top).values()
            self.assertEqual(found.tables[0]["Bridge"], [
                {"_uuid": "b", "name": "br1", "ports": ["q", "r"],
                 "other_config": {"b": "2", "c": "4"}}])
            self.assertIn(
                "Port p1 could not be opened: No such device",
                [finding["sentence"] for finding in findings(found)])
            # Files of another kind, cut off, and with nonsense.
            whole = (Path(top) / "etc/conf.db").read_text()
            for text, bridges, wrong in (
                    ("OVSDB CLUSTER 1 0\n", [], "not a database"),
                    ("", [], "not a database"),
                    (whole[:whole.index('{"_is_diff"') + 99], ["br0", "gone"],
                     "read to line 4 only"),
                    (f"{whole}OVSDB JSON 9 0\n" + '{"Bridge": {"b": 5}}',
                     ["br1"], "read to line 10 only"),
                    (f"{whole}OVSDB JSON 9 0\n" + '{"Bridge": {"b": null}}\n',
                     [], ""),
                    (f"{whole}OVSDB JSON 9 0\n"
                     '{"_is_diff": true, "Bridge": {"b": {"ports": 7}}}\n',
                     ["br1"], ""),
                    (f"{whole}OVSDB JSON 9 0\n"
                     '{"Bridge": {"b": {"name": ["map", 5]}}}\n',
                     ["br1"], "read to line 10 only"),
                    (f"{whole}OVSDB JSON 9 0\n" + "[" * 200000, ["br1"],
                     "read to line 10 only")):
                (Path(top) / "etc/conf.db").write_text(text)
                (found,) = archive.load(top).values()
                self.assertEqual([row["name"] for row in found.tables[0][
                    "Bridge"]], bridges)
                self.assertEqual(bool(found.notes), bool(wrong))
                self.assertIn(wrong, "".join(found.notes))
                findings(found)
            (Path(top) / "etc/conf.db").unlink()
            # Ports that are well, one that is not, and one without a name.
            (directory / "ovs-vsctl_list_Interface").write_text(
                "name: p1\nerror: []\nstatistics: {rx_packets=5}\n\n"
                'name: "p 2"\nerror: "No, [none]"\nstatistics: 7\n\n'
                "error: lost\nports: [a, \"b, c\"]\n")
            (found,) = archive.load(top).values()
            self.assertEqual(found.tables[0]["Interface"], [
                {"name": "p1", "error": [], "statistics": {"rx_packets": 5}},
                {"name": "p 2", "error": "No, [none]", "statistics": {}}])
            self.assertIn("Port p 2 could not be opened: No, [none]",
                          [f["sentence"] for f in findings(found)])
            (directory / "ovs-vsctl_list_Interface").unlink()
            (directory / "ovs-vsctl_list_Port").write_text("lacp: active\n")
            (found,) = archive.load(top).values()
            findings(found)
            (directory / "ovs-vsctl_list_Port").unlink()
            # A file of another program, and of a switch that has few.
            (Path(top) / "proc").mkdir()
            (Path(top) / "proc/version").write_text("Linux version 6.1\n")
            (directory / "ovs-appctl_coverage.show").unlink()
            (found,) = archive.load(top).values()
            self.assertEqual(found.notes, [
                "there is no output of coverage/show, so most rules find "
                "nothing"])
            del found.last["version"]
            recording.stock = {"": found}
            self.assertIn("Open vSwitch has no", doctor.without(recording))
            # Two hosts.
            (Path(top) / "other").mkdir()
            (Path(top) / "other/upcall.show.txt").write_text(
                texts["upcall/show"])
            self.assertEqual(sorted(archive.load(top)), [
                "other", "sos_commands/openvswitch"])


if __name__ == "__main__":
    unittest.main()
