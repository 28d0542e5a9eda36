# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with any Open vSwitch, as its own commands, its database
and the kernel show it.

Rules are as in rules.py.  None is true without harm: a loss, a limit that is
reached, growth, or a thread that needs half of a CPU and more.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ovs.cost.blame import (FEW, WHERE, WHY, after, because, changes, doing,
                            moved, often, packet_in_sender, reasons, speakers)
from ovs.cost.case import Case, Numbers, Rule
from ovs.cost.model import most
from ovs.cost.stock import MISS, REASONS, SELDOM, gain, growth, number

HALF = 0.5                      # Of a CPU, by one thread.
FULL = 0.9                      # Of a limit, or of a PMD thread.
FAILED = ("Upcalls fail while bridges or ports change, or if a packet can't "
          "be translated. The log has the reason.")
KEPT = ("The allocator keeps the memory of deleted flows for new ones. This "
        "matters only where memory is short or limited (cgroup).")
RETURNED = (" With the kernel datapath, a patched `ovs-vswitchd` returns it, "
            "but not with `--mlockall`.")
VANISHED = {                    # By words of ofproto/trace.
    "VLAN": "Correct the port (`tag`, `trunks`, `vlan_mode`) or the sender.",
    "mirror": "The output port of a mirror takes no packets.",
    "bucket": "Set the group's ports up, or give it another bucket.",
    "STP": "Spanning tree blocks the port: have the rule output to another."}
TRACE = ("`ovs-appctl ofproto/trace`, with the flow from `dpctl/dump-flows`, "
         "shows the packets' way.")
SENT = ("`tx_dropped`, `tx_errors`: whoever is behind the port (a virtual "
        "machine, a program, a NIC's queue) does not take its packets fast "
        "enough, or at all.")
RECEIVED = ("`rx_errors`: check cable and transceiver; `ethtool -S` has more "
            "counters.")


def evicted(case: Case) -> Numbers:
    stock = case.stock
    for bridge, fdb in stock.of("fdb/stats-show"):
        n = (stock.grown(bridge, "evicted") if stock.seconds else
             int(60 * stock.rate("mac_learning_evicted"))
             if fdb.get("entries", 0) >= FULL * fdb.get("max", 0) else 0)
        ports = stock.more.get(f"fdb/show {bridge}", {})
        port = most(ports)
        if n >= FEW and fdb.get("max"):
            yield {"name": bridge, "n": n, "max": fdb["max"], "share": 1.0,
                   "set": ", set by other_config:mac-table-size"
                          if stock.config("mac-table-size", bridge) else "",
                   "s": stock.seconds or 60.0, "who": (
                       f"; port {stock.port(port, bridge)} has "
                       f"{ports[port]:,} entries" if ports else "")}


def throttled(case: Case) -> Numbers:
    first, last = (case.stock.quotas + [{}, {}])[:2]
    for group in first.keys() & last.keys():
        n, full = (b - a for a, b in zip(first[group], last[group]))
        # An idle group has few periods.
        if n >= max(FEW, 5 * case.stock.seconds) and full > n / 10:
            yield {"name": group, "share": full / n}


def fragments(case: Case) -> Numbers:
    ipf = case.stock.last.get("dpctl/ipf-get-status")
    if ipf and ipf["n"] >= ipf["max"] > 0:
        yield {"share": 1.0, "n": ipf["max"]}


def idle(case: Case) -> Numbers:
    stock, ms = case.stock, number(case.stock.config("max-idle"))
    for name, n in stock.lookups():
        share = n["missed"] / max(n["missed"] + n["hit"], 1)
        if 0 < ms < 1000 and share > 0.2 and n["missed"] > 100 * stock.seconds:
            yield {"name": name, "share": share, "ms": ms}


def multicast(case: Case) -> Numbers:
    for bridge, n in case.stock.of("mdb/show"):
        size = number(case.stock.config("mcast-snooping-table-size",
                                        bridge)) or 2048
        if n >= size:
            yield {"name": bridge, "share": 1.0, "n": size,
                   "rate": case.stock.rate("rev_mcast_snooping")}


def moves(case: Case) -> Numbers:
    stock = case.stock
    for bridge, fdb in stock.of("fdb/stats-show"):
        n = stock.grown(bridge, "moved")
        if stock.seconds and n >= max(FEW, 2 * stock.seconds):
            loops = set(stock.logged(
                r"ofproto_dpif_xlate[^|\n]*\|\w+\|.*translation depth.* on "
                r"bridge (.*) while processing ", SELDOM))
            why = ("patch ports form a loop through "
                   + ", ".join(sorted(loops)) if loops else
                   "a loop, or two hosts with the same address")
            mac, ports = stock.more.get(f"moving {bridge}", ("", ()))
            if ports[1:]:
                why += (f"; {mac} was" if mac else "; most are") + (
                    " on ports " + ", ".join(stock.port(port, bridge)
                                             for port in ports[:4]))
            yield {"name": bridge, "rate": n / stock.seconds, "share": 0.3,
                   "n": fdb.get("entries", 0), "why": why}


def grows(case: Case) -> Numbers:
    rate, where = growth(case.stock), ""
    for bridge, tables in case.stock.of("dump-tables"):
        table = most(tables)
        if tables.get(table, 0) > FEW:
            where = f", most in table {table} of {bridge} ({tables[table]:,})"
    if rate > FEW:
        yield {"share": 1.0, "rate": rate, "where": where, "n":
               case.stock.samples[-1].get("rules", 0)}


def flow_mods(case: Case) -> Numbers:
    stock = case.stock
    rate, share = stock.repeated("flow_table"), stock.revalidators()
    if rate and growth(stock) <= FEW and share > HALF:
        yield {"share": share, "often": often(rate), "who":
               speakers(case, "_MOD|BUNDLE"),
               "n": stock.rate("ofproto_recv_openflow")}


def again(case: Case) -> Numbers:
    stock, share = case.stock, case.stock.revalidators()
    rates = {reason: stock.repeated(reason) for reason in REASONS}
    reason = max(REASONS, key=reasons(case, rates))
    if share > HALF and rates[reason] and reason in WHY:
        yield {"share": share, "often": often(rates[reason]),
               "why": WHY[reason], "who": because(case, reason)}


def reconfigured(case: Case) -> Numbers:
    stock = case.stock
    rate, share = stock.rate("bridge_reconfigure"), stock.main()
    who = changes(case)
    if share > HALF and rate >= (0.2 if who else 2):
        yield {"share": share, "rate": rate, "who": (
            f", because the database changes{who}" if who else
            after(moved(case, "the link")))}


def main_busy(case: Case) -> Numbers:
    # Many rules that are loaded at once are work, and no trouble.
    bulk = (case.stock.rate("ofproto_recv_openflow")
            - case.stock.rate("ofproto_packet_out")) >= 1000
    if case.stock.main() > (FULL if bulk else HALF):
        yield {"share": case.stock.main(), "what": doing(case)}


def stalls(case: Case) -> Numbers:
    n, ms = case.stock.count("long_poll_interval"), case.stock.longest_poll()
    if n and case.stock.seconds and ms and "bridge" not in case.windows:
        yield {"share": min(ms * n / 1e3 / case.stock.seconds, 1.0), "n": n,
               "ms": ms, "what": f", waiting for {case.stock.awaited()} (RCU)"
               if case.stock.awaited() else doing(case)}


def upcall_threads(case: Case) -> Numbers:
    for name, share in case.stock.shares(r"(handler|revalidator)\d+").items():
        if share > HALF:
            yield {"share": share, "name": name, "flows": case.stock.flows(),
                   "rate": case.stock.rate("xlate_actions")}


def overloaded(case: Case) -> Numbers:
    threads = [pmd for pmd in case.stock.last.get(
        "dpif-netdev/pmd-rxq-show", ()) if pmd.known]
    missed_ = max([n["missed"] / max(n["missed"] + n["hit"], 1)
                   for name, n in case.stock.lookups()
                   if name.startswith("netdev@")], default=0.0)
    upcalls = (f"; {missed_:.0%} of the packets are upcalls"
               if missed_ > 0.2 else "")
    for pmd in threads:
        if pmd.busy < FULL or not pmd.queues:
            continue
        port, queue, share = max(pmd.queues, key=lambda q: q[2])
        idle = min(threads, key=lambda other: other.busy)
        yield {"share": min(pmd.busy, 1.0), "core": pmd.core, "port": port,
               "queue": queue, "usage": min(share, 1.0), "other": upcalls + (
                   f"; the one of core {idle.core} is {idle.busy:.0%} busy"
                   if idle.busy < HALF else "")}


def losses(rows: List[Dict[str, Any]], what: str, way: str) -> Numbers:
    """Yields how many packets a port has lost, by a counter of its, of those
    that went that way."""
    n = gain(rows, "statistics", what)
    packets = gain(rows, "statistics", f"{way}_packets")
    if n >= FEW and n > 0.001 * packets:
        yield {"share": n / max(n + packets, 1), "n": n,
               "name": rows[-1]["name"]}


def missed(case: Case) -> Numbers:
    for rows in case.stock.rows("Interface").values():
        yield from losses(rows, "rx_missed_errors", "rx")


def limited(case: Case) -> Numbers:
    stock = case.stock
    for name, dp in stock.last.get("upcall/show", {}).items():
        hit = stock.rate("upcall_flow_limit_hit") * (stock.seconds or 60)
        current, limit, ms = dp["current"], dp["limit"], dp.get("dump_ms", 0)
        if (hit < FEW and current < limit) or case.limit:
            continue
        state = (f"{current:,} flows are at" if current >= limit
                 else "flows reached") + f" the limit, {limit:,}, "
        if stock.config("flow-limit") == str(limit):
            state += "set in the database (other_config:flow-limit)"
        elif current >= limit or ms > 1000:
            state += f"because revalidation takes long: {ms:,} ms a round"
        else:
            state = (f"{hit:,.0f} upcalls found the flow limit reached, which "
                     f"is {limit:,} now and grows, as after a start: "
                     f"revalidation takes only {ms:,} ms a round")
        yield {"share": min(current / max(limit, 1), 1.0), "name": name,
               "current": current, "limit": limit, "state": state}


def kept(case: Case) -> Numbers:
    stock = case.stock
    for name, dp in stock.last.get("upcall/show", {}).items():
        before = stock.first.get("upcall/show", {}).get(name, dp)
        current = max(dp["current"], before["current"])
        gone = 2500 * (dp["max"] - current)         # About, in bytes.
        rules = stock.last.get("memory/show", {}).get("rules", 0)
        kept_ = stock.resident - 1000 * rules
        # If it was returned, less is left than they took.
        if gone > 0.1 * stock.room and dp["max"] > 10 * current + 10000 and (
                0 < 0.3 * kept_ < gone < kept_):
            yield {"share": 0.0, "mb": stock.resident / 1e6, "max": dp["max"],
                   "now": f"is {current}" if current == 1 else
                   f"are {current:,}", "advice": KEPT + RETURNED * (
                       name.startswith("system@"))}


def slow(case: Case) -> Numbers:
    stock = case.stock
    flows = [flow for flow in stock.more.get("slow", ()) if flow[0] >= 1]
    rate = sum(flow[0] for flow in flows)
    if rate > 100:
        highest, port, reason, _ = flows[0]
        rule = stock.more.get("slow rule")
        yield {"share": highest / rate, "rate": rate, "who": (
            f", {'most ' if flows[1:] else ''}of port {port} (flows: "
            f"{len(flows)}; reason: {reason}"
            + (f"; rule: {rule})" if rule else ")"))}
    for account in case.accounts("upcall") if not stock.seconds else ():
        body = account.classes.get("slow-path")
        rate = (body.events if body else 0) / case.windows["upcall"].seconds
        if rate > 100:
            top = max(case.tops.get("upcall port", ()), default={"share": 0.0},
                      key=lambda row: row["share"])
            yield {"share": top["share"], "rate": rate, "who": (
                f"; {top['share']:.0%} of all upcalls are of port "
                + top["name"] if top["share"] > HALF else "")}


def packet_ins(case: Case) -> Numbers:
    for n, whole, row in case.stock.packet_ins():
        if n >= FEW:
            limit = row.get("controller_rate_limit")
            yield {"n": n, "name": row.get("target", ""),
                   "share": n / max(whole, 1),
                   "who": (f" of {limit:,} a second"
                           if isinstance(limit, int) else "")
                   + packet_in_sender(case.stock)}


def connections(case: Case) -> Numbers:
    last = case.stock.last
    limit = last.get("dpctl/ct-get-maxconns", 0)
    n, full = last.get("dpctl/ct-get-nconns", 0), case.stock.rate(
        "conntrack_full")
    if limit > 0 and (full >= 1 or n >= FULL * limit):
        yield {"share": min(n / limit, 1.0), "n": n, "limit": limit,
               "lost": f"; {full:,.0f} packets a second find no room"
                       if full >= 1 else ""}


def port_drops(case: Case) -> Numbers:
    for rows in case.stock.rows("Interface").values():
        # What is flooded to an internal port that is down is no loss.
        if not rows[1:] or rows[-1].get("type") == "internal" or (
                rows[-1].get("link_state") == "down"):
            continue
        for what, way, done in (("tx_dropped", "tx", "sent"),
                                ("tx_errors", "tx", "sent"),
                                ("rx_errors", "rx", "received")):
            for lost in losses(rows, what, way):
                port = [row for row in case.stock.latest("Port")
                        if row["name"] == lost["name"] and way == "tx"]
                qos = [each[-1].get("type") for each
                       in case.stock.referred(port, "qos", "QoS")]
                yield dict(lost, way=done, advice=(
                    SENT if way == "tx" else RECEIVED), what=what + (
                    f", by its QoS ({qos[0]})?" if qos else ""))


def pipeline_drops(case: Case) -> Numbers:
    for rate, why, rule in case.stock.more.get("dropped", ()):
        if rate >= FEW and MISS not in why:
            yield {"share": 0.5, "rate": rate, "why": why, "name": rule,
                   "advice": " ".join((next(
                       (advice for word, advice in VANISHED.items()
                        if word in why), "Correct the rule."), TRACE))}


def lost_upcalls(case: Case) -> Numbers:
    for name, counts in case.stock.lookups():
        userspace = name.startswith("netdev@")
        # There, an upcall without room for its flow counts as lost, too.
        n = counts["lost"] - userspace * case.stock.count(
            "upcall_flow_limit_hit")
        share = n / max(n + counts["missed"], 1)
        # The two counters are not read at the same moment.
        if n >= FEW and share >= 0.01 * userspace and (
                "upcall" not in case.windows):
            yield {"name": name, "n": n, "share": share,
                   "advice": FAILED if userspace else ""}


def dropped(counter: str) -> Callable[[Case], Numbers]:
    """Returns a condition: packets are dropped, for the reason that a coverage
    counter has."""
    def condition(case: Case) -> Numbers:
        rate = case.stock.rate(counter) or case.stock.more.get(counter, 0)
        if rate >= 1:
            yield {"share": 1.0, "rate": rate, "who": WHERE.get(
                counter, lambda stock: "")(case.stock)}
    return condition


STOCK_RULES = (
    Rule("cpu-quota", "critical", "everything is slow, because of a limit for "
         "a container or service", "",
         "Raise the limit (`cpu.max` of the cgroup, `CPUQuota` of systemd, "
         "`limits: cpu` of Kubernetes), or remove it: a PMD thread needs a "
         "CPU of its own.",
         "The CPU quota of the cgroup {name} is used up in {share:.0%} of the "
         "periods: no thread of Open vSwitch runs until the next one",
         throttled,
         causes="starved, main-loop-stalled, main-stalls, main-busy, "
                "threads-busy, upcalls-lost-kernel, flow-limit-low, "
                "flow-limit-fell, rx-missed, pmd-overloaded, bfd-flaps, "
                "controller-flaps"),
    Rule("fragments-full", "warning", "large packets do not arrive, because "
         "fragments are dropped", "dpctl/ipf-get-status",
         "Find the sender of incomplete fragments. "
         "`dpctl/ipf-set-max-nfrags` raises the limit.",
         "{n:,} IP fragments wait for the rest of their packets, which is the "
         "limit: connection tracking drops new ones", fragments),
    Rule("max-idle-low", "warning", "too many upcalls, because flows are "
         "deleted too soon", "upcall/show, dpctl/show",
         "`ovs-vsctl remove Open_vSwitch . other_config max-idle` restores "
         "the default, 10,000 ms.",
         "{name}: {share:.0%} of packets are upcalls, because unused flows "
         "are deleted after {ms} ms (other_config:max-idle)", idle,
         causes="main-busy, threads-busy, main-loop-stalled"),
    Rule("multicast-table-full", "warning", "multicast is lost or flooded, "
         "because the table of groups is too small", "mdb/show BRIDGE",
         "Raise `other_config:mcast-snooping-table-size` of the bridge "
         "(default: 2,048).",
         "{name}: the table of multicast groups ({n:,}) is full, and changes "
         "{rate:,.0f} times a second", multicast,
         causes="flows-retranslated, threads-busy"),
    Rule("mac-table-full", "critical", "traffic is flooded, or revalidators "
         "are busy, because a MAC table is too small",
         "fdb/stats-show BRIDGE, fdb/show BRIDGE, coverage/show",
         "Raise `other_config:mac-table-size` of the bridge (default: 8,192), "
         "or find the source of so many addresses: a scan, or a loop. Each "
         "eviction makes Open vSwitch translate flows again.",
         "{name}: the MAC table ({max:,}{set}) is full: {n:,} addresses were "
         "evicted in {s:.0f} s{who}", evicted,
         causes="mac-moves, flows-retranslated, threads-busy, main-busy"),
    Rule("rules-grow", "critical", "memory and the number of OpenFlow rules "
         "keep growing", "memory/show, coverage/show",
         "Look for a `learn` action without `idle_timeout` or "
         "`hard_timeout`, or with too specific a match.",
         "The number of OpenFlow rules grows by {rate:,.0f} a second "
         "without a message, to {n:,}{where}: a learn action adds them", grows,
         causes="flows-retranslated, rules-change, threads-busy, main-busy"),
    Rule("rules-change", "warning", "revalidators are busy, because OpenFlow "
         "rules keep changing", "coverage/show, upcall/show",
         "After each change, Open vSwitch translates all datapath flows "
         "again, and may delete many. Make the program change rules less "
         "often, or many at once (a bundle), or keep fewer flows "
         "(`other_config:max-idle`).",
         "Flows are translated again {often}, because OpenFlow rules change "
         "({n:,.1f} messages a second){who}: a revalidator needs {share:.0%} "
         "of a CPU", flow_mods,
         causes="threads-busy, main-busy, flow-limit-low, flow-limit-fell, "
                "flows-refused"),
    Rule("config-changes", "warning", "the main thread is busy, because the "
         "database keeps changing", "coverage/show",
         "After each change of a bridge, port or interface, Open vSwitch "
         "reconfigures all of them. Find the program, and make it write only "
         "what differs.",
         "Bridges are reconfigured {rate:,.1f} times a second{who}; the main "
         "thread needs {share:.0%} of a CPU", reconfigured,
         causes="main-busy, main-stalls, main-loop-stalled, "
                "flows-retranslated, database-busy"),
    Rule("flows-retranslated", "warning", "revalidators are busy, because "
         "something keeps changing", "coverage/show, fdb/stats-show BRIDGE, "
         "dpctl/dump-flows",
         "The counters `rev_*` of `coverage/show` show what changes. Stop "
         "that, or keep fewer flows: rules that match on less make wider ones "
         "(`dpctl/dump-flows`), and `other_config:max-idle` deletes unused "
         "ones sooner. Each new MAC address makes Open vSwitch translate all "
         "flows again: find the sender of so many (`fdb/show BRIDGE`).",
         "Flows are translated again {often}, because {why}{who}: a "
         "revalidator needs {share:.0%} of a CPU", again,
         causes="threads-busy, flow-limit-low, flow-limit-fell, "
                "flows-refused"),
    Rule("main-busy", "warning", "the main thread is busy", "coverage/show",
         "While it works, OpenFlow, ovs-appctl, the database and ports "
         "without a PMD thread wait, even if no iteration is long.",
         "The main thread needs {share:.0%} of a CPU{what}", main_busy),
    Rule("main-stalls", "warning", "", "coverage/show",
         "All other work of the main thread waits meanwhile. The log has the "
         "times (\"Unreasonably long\").",
         "The main thread was busy for up to {ms:,} ms in one go ({n} times "
         "over 1 s){what}", stalls,
         causes="main-busy"),
    Rule("threads-busy", "warning", "handlers or revalidators are busy",
         "upcall/show, coverage/show",
         "If it is a handler, find out who creates so many new flows. If it "
         "is a revalidator, keep fewer flows (`other_config:flow-limit`, "
         "`max-idle`), or make fewer changes.",
         "{name} needs {share:.0%} of a CPU: {flows:,} flows, {rate:,.0f} "
         "translations a second", upcall_threads),
    Rule("pmd-overloaded", "warning", "a PMD thread has no time left",
         "dpif-netdev/pmd-rxq-show, dpif-netdev/pmd-perf-show, "
         "dpif-netdev/pmd-rxq-rebalance",
         "Give some of its queues to another PMD thread "
         "(`dpif-netdev/pmd-rxq-rebalance`, `other_config:pmd-auto-lb`), use "
         "more queues (`options:n_rxq`) or more CPUs "
         "(`other_config:pmd-cpu-mask`). If many packets are upcalls, find "
         "out what makes so many flows.",
         "The PMD thread of core {core} is {share:.0%} busy, "
         "{usage:.0%} with queue {queue} of port {port}{other}", overloaded,
         causes="rx-missed"),
    Rule("rx-missed", "warning", "packets are lost before Open vSwitch "
         "receives them", "dpif-netdev/pmd-rxq-show",
         "The device's queue was full: a PMD thread is too slow, or stopped "
         "for a moment. Against bursts, raise `options:n_rxq_desc`.",
         "Port {name} has lost {n:,} packets ({share:.1%}) before they were "
         "received", missed),
    Rule("port-drops", "warning", "packets are lost at a port",
         "ovs-vsctl list Interface, tx/cost-show",
         f"{SENT} {RECEIVED}",
         "Port {name} has lost {n:,} packets ({what}), {share:.1%} of those "
         "{way}", port_drops),
    Rule("pipeline-drops", "warning", "packets vanish in a bridge",
         "coverage/show, dpctl/dump-flows, ofproto/trace",
         " ".join((*VANISHED.values(), TRACE, "Rules that only say `drop` are "
                   "not reported.")),
         "{rate:,.0f} packets a second are dropped: {why} ({name})",
         pipeline_drops),
    Rule("upcalls-lost-kernel", "critical", "", "dpctl/show",
         "A handler's socket overflowed. Look for a busy or starved handler, "
         "and for a scan.",
         "{name} has lost {n:,} upcalls ({share:.1%}) and their packets",
         lost_upcalls),
    Rule("flow-limit-low", "critical", "", "upcall/show, coverage/show",
         "Some flows cannot be installed, so each of their packets is an "
         "upcall. Raise `other_config:flow-limit`, or find what creates so "
         "many flows.",
         "{name}: {state}", limited),
    Rule("slow-path", "warning", "packets take the slow path",
         "dpctl/dump-flows --names, ofproto/trace DATAPATH FLOW, "
         "upcall/cost-show -class slow-path",
         "Each packet of such a flow is an upcall. Reason `action`: the rule "
         "has an action that the datapath cannot execute; replace it.",
         "{rate:,.0f} packets a second take the slow path{who}", slow,
         causes="main-busy, threads-busy"),
    Rule("packet-ins-dropped", "warning", "a controller does not receive all "
         "packets", "coverage/show",
         "Raise `controller_rate_limit` in the Controller table, or send the "
         "controller fewer packets.",
         "{n:,} packets for the controller {name} ({share:.0%}) were dropped: "
         "they exceed its limit{who}", packet_ins),
    Rule("conntrack-full", "critical", "connections fail, because connection "
         "tracking is full", "dpctl/ct-get-maxconns, dpctl/ct-get-nconns, "
         "dpctl/ct-stats-show",
         "Raise the limit (`dpctl/ct-set-maxconns`, in the kernel "
         "`nf_conntrack_max`), use shorter timeouts, or find out who opens so "
         "many connections.",
         "Connection tracking is full: {n:,} of {limit:,} connections{lost}",
         connections),
    Rule("conntrack-zone-full", "critical", "replies do not match `+est`: a "
         "zone of connection tracking is full", "dpctl/ct-get-limits",
         "Raise the limit (`dpctl/ct-set-limits`), or find out who opens so "
         "many connections.",
         "{rate:,.0f} packets a second of new connections are not tracked, "
         "because a zone is full{who}: they go on with ct_state +new, and "
         "replies do not match +est", dropped("conntrack_zone_full")),
    Rule("mac-moves", "warning", "packets arrive several times, or at the "
         "wrong port: a loop, or a duplicate MAC address",
         "fdb/stats-show BRIDGE, fdb/show BRIDGE",
         "Two ports lead to the same network, patch ports form a loop (the "
         "log has \"over max translation depth\"), or two hosts have the same "
         "address. Run `fdb/show` several times: the address whose port "
         "changes shows where. Remove one path, or set `stp_enable` or "
         "`rstp_enable` on the bridges.",
         "{name}: MAC addresses ({n:,} are known) move between ports "
         "{rate:,.0f} times a second: {why}", moves,
         causes="flows-retranslated, threads-busy, main-busy, slow-path"),
    Rule("memory-kept", "hint", "memory stays high after many flows",
         "memory/show, upcall/show",
         KEPT + RETURNED,
         "ovs-vswitchd uses {mb:,.0f} MB, most of it kept from a time with "
         "{max:,} flows; now there {now}", kept),
    *(Rule(counter.replace("_", "-"), "critical", symptom,
           "coverage/show, " + commands, advice,
           f"{{rate:,.0f}} packets a second are dropped: {what}{{who}}",
           dropped(counter),
           causes="main-busy, threads-busy, slow-path, upcalls-lost, "
                  "upcalls-lost-kernel")
      for counter, symptom, what, commands, advice in (
        ("drop_action_too_many_resubmit", "broadcasts do not arrive: too many "
         "resubmits", "they need more than 4,096 resubmits",
         "ofproto/trace BRIDGE FLOW",
         "That is a fixed limit for each packet. A packet beyond it reaches "
         "no port; others are not affected. Usually, a rule for broadcasts "
         "resubmits once for each port, through several tables: make it "
         "output to the ports directly, or by a group whose buckets only "
         "output."),
        ("drop_action_recursion_too_deep", "", "their resubmits are nested "
         "too deeply (64): tables or patch ports may form a loop",
         "ofproto/trace BRIDGE FLOW", "The trace shows the loop. The log has "
         "the whole packet."),
        ("drop_action_tunnel_neigh_cache_miss", "a tunnel carries no packets: "
         "no ARP reply", "the next hop of a tunnel has no MAC address",
         "tnl/neigh/show, ovs/route/show",
         "The next hop does not answer ARP (or neighbour discovery), or its "
         "answer does not reach the bridge. `tcpdump` there shows which."),
        ("drop_action_tunnel_routing_failed", "", "there is no route to the "
         "remote end of a tunnel", "ovs/route/show, ovs/route/lookup",
         "Add a route, or give the bridge with that port an address."),
        ("datapath_drop_meter", "a meter drops packets", "a meter limits them",
         "dpctl/show", "`ovs-ofctl -O OpenFlow13 meter-stats BRIDGE` shows "
         "how many, `dump-meters` the limits, and `dump-flows` which rules "
         "use which meter."),
        ("datapath_drop_lock_error", "a bridge carries nothing after a "
         "restart", "upcalls are locked out", "ovs-vsctl get "
         "Open_vSwitch . other_config, ovsdb-tool show-log -m",
         "If `other_config` has `flow-restore-wait`, a script that was to "
         "restore flows has failed: `ovs-vsctl remove Open_vSwitch . "
         "other_config flow-restore-wait` helps at once, and the database's "
         "log names the script. Otherwise, find what keeps changing bridges "
         "or ports."),
        ("conntrack_l4csum_err", "connections fail: wrong checksums",
         "connection tracking finds wrong checksums", "dpctl/dump-flows",
         "Their sender, or what emulates its NIC, leaves checksums to "
         "hardware that is not there: `ethtool -K DEVICE tx off`."),
        ("rconn_overflow", "a controller, or `ovs-ofctl monitor`, does not "
         "receive all packets", "a controller or \"ovs-ofctl monitor\" does "
         "not read fast enough", "ofproto/list, memory/show",
         "It hangs, or is too slow. Start it again, or send it fewer "
         "packets."),
        ("packet_in_overflow", "", "too many wait for a controller",
         "ofproto/list", "Send the controller only the first packet of a "
         "connection."),
      )),
)
