# SPDX-License-Identifier: Apache-2.0
"""Finds the culprit in the data of any Open vSwitch, in words that continue a
sentence of a rule."""

from __future__ import annotations

import re
from typing import Callable, Dict, List, NamedTuple, Tuple

from ovs.cost.case import Case
from ovs.cost.model import most
from ovs.cost.stock import Stock, gain, has_pmd, number

FEW = 10                        # Events that may be chance.

# What the main thread does in a stage.
DOING = {
    "appctl": "ovs-appctl", "openflow": "OpenFlow (a controller, ovs-ofctl)",
    "stats": "statistics of interfaces", "status": "status of interfaces",
    "idl": "changes of the database", "commit": "writing to the database",
    "configure": "changes of ports and bridges",
    "routes": "kernel routes and addresses", "netdev": "kernel links",
    "datapath": "packets of ports that it polls",
    "rcu": "waiting for other threads (RCU)"}


def who(labels: List[str]) -> str:
    """Returns the possible culprits as text."""
    if not labels:
        return ""
    some = ", ".join(labels[:3]) + (", ..." if labels[3:] else "")
    return f", by {'one of ' if labels[1:] else ''}{some}"


def clients(stock: Stock, name: str) -> List[str]:
    """Returns who talks to the sockets whose names match."""
    seen = stock.clients.seen if stock.clients else {}
    return [label for socket in seen if re.fullmatch(name, socket)
            for label in stock.clients.of(socket)]  # type: ignore


def speakers(case: Case, kind: str = "", bridge: str = "") -> str:
    """Returns who talks OpenFlow to 'bridge', or any, and with accounting,
    what: a message whose name matches 'kind', if there is one."""
    stock = case.stock
    mgmt = sorted(((-seen[0], label if bridge else f"{label} to {name[:-5]}")
                   for name, labels in (stock.clients.seen if stock.clients
                                        else {}).items()
                   if name.endswith(".mgmt") and bridge in ("", name[:-5])
                   for label, seen in labels.items()))
    listeners = stock.more.get("listeners", {})
    remote = [listeners.get(str(row.get("target"))) or str(row.get("target"))
              for row in stock.latest("Controller")
              if row.get("is_connected") is True]
    messages = case.tops.get("bridge message", [])
    messages = [m for m in messages if re.search(kind, m["name"])] or messages
    message = max(messages, key=lambda m: m["ns"])["name"] if messages else ""
    return who([label for _, label in mgmt] + remote) + (
        f" ({message})" if message else "")


def changes(case: Case) -> str:
    """Returns what changes in the database, and who may do it."""
    stock = case.stock
    changed = {key: n for key, n in stock.changes.items() if n >= FEW}
    if not changed:
        return ""
    table, name, column = most(changed)
    n = changed[table, name, column]
    return (f" ({table} {name}, {column}: "
            f"{n / max(stock.seconds, 1):,.1f} times a second)"
            + who(clients(stock, r"db\.sock")))


def where_resubmits(stock: Stock) -> str:
    """Returns the rule that a packet's resubmits begin with, if it is known,
    and the packet: its protocol, its port and where it goes to."""
    bridge, flow = stock.resubmitting()
    if not bridge:
        return ""
    rule = stock.more.get("rule")
    fields = dict(re.findall(r"(\w+)=([^,]*)", flow))
    port = fields.get("in_port", "")
    return (f"; on {bridge}, {flow.partition(',')[0]} from port "
            + (stock.port(port, bridge) if port.isdigit() else port)
            + (f" to {fields['dl_dst']}" if "dl_dst" in fields else "")
            + (f", by the rule {rule}" if rule else ""))


def where_meter(stock: Stock) -> str:
    meters: Dict[str, int] = stock.more.get("meters", {})
    return f" ({most(meters)})" if meters else ""


def where_neighbour(stock: Stock) -> str:
    silent: List[Tuple[str, str]] = stock.more.get("silent", [])
    return "; no answer from " + ", ".join(
        hop if hop == end else f"{hop} (to {end})"
        for end, hop in silent[:3]) if silent else ""


def where(key: str) -> Callable[[Stock], str]:
    """Returns a function that lists what 'more' has."""
    return lambda stock: (f" ({'; '.join(stock.more[key][:3])})"
                          if stock.more.get(key) else "")


def packet_in_sender(stock: Stock) -> str:
    """Returns the port that sends most packets for a controller, if one does,
    and the rule that does."""
    port, rule = stock.more.get("packet-ins", ("", ""))
    return (f"; most come from port {port}" if port else "") + (
        f" (rule: {rule})" if rule else "")


def resets(stock: Stock) -> Dict[str, int]:
    """Returns how often the link of each port has changed its state."""
    return {rows[-1]["name"]: number(rows[-1].get("link_resets"))
            - number(rows[0].get("link_resets"))
            for rows in stock.rows("Interface").values() if rows[1:]}


def flapping(stock: Stock) -> str:
    """Returns the port whose link went up and down most."""
    n = resets(stock)
    port = most(n)
    return (f", most of port {port} ({n[port]} times)"
            if n.get(port, 0) > 1 else "")


def learner(stock: Stock) -> str:
    """Returns the bridge that learns most MAC addresses."""
    n = {bridge: stock.grown(bridge, "learned")
         for bridge, _ in stock.of("fdb/stats-show")} if stock.seconds else {}
    bridge = most(n)
    return (f", most by {bridge} ({n[bridge]:,} new ones)"
            if n.get(bridge, 0) > FEW else "")


def reasons(case: Case, rates: Dict[str, float]) -> Callable[[str], float]:
    """Returns how much a reason of revalidation matters: by the time of its
    rounds if they are accounted for, or else by 'rates'."""
    times: Dict[str, float] = {}
    for account in case.accounts("revalidator", "round"):
        for name, body in account.classes.items():
            reason = name.partition("+")[0].partition(":")[2]
            reason = reason.replace("-", "_")
            times[reason] = times.get(reason, 0.0) + body.stages["total"].sum
    times.pop("", None), times.pop("several", None)
    return lambda reason: (times or rates).get(reason, 0.0)


def because(case: Case, reason: str) -> str:
    """Returns who or what is behind a reason of revalidation."""
    if reason == "reconfigure":
        return changes(case) or after(moved(case, "the link"))
    who_ = {"port_toggled": flapping, "mac_learning": learner}.get(reason)
    return who_(case.stock) if who_ else ""


def often(rate: float) -> str:
    """Returns how often something happens that does so 'rate' times a
    second."""
    return (f"{rate:,.0f} times a second" if rate >= 1
            else f"every {1 / rate:,.0f} s")


def after(why: str) -> str:
    return f": {why}" if why else ""


def moved(case: Case, *kinds: str) -> str:
    """Returns what changes most in the kernel, of 'kinds' or of all, and who
    does it."""
    stock = case.stock
    what, n, sender = stock.kernel.most(kinds) if stock.kernel else (
        "", 0, "")
    if n < FEW or not stock.seconds:
        return ""
    verb = "changes" if what.startswith("the") else "change"
    return (f"{what} {verb} {n / stock.seconds:,.1f} times a second"
            + who([sender] if sender else []))


WHERE: Dict[str, Callable[[Stock], str]] = {
    "drop_action_too_many_resubmit": where_resubmits,
    "drop_action_recursion_too_deep": where_resubmits,
    "datapath_drop_meter": where_meter,
    "conntrack_zone_full": where("zones"),
    "drop_action_tunnel_routing_failed": where("unrouted"),
    "conntrack_l4csum_err": lambda stock: (
        f"; most come from port {stock.more['invalid']}"
        if "invalid" in stock.more else ""),
    "datapath_drop_lock_error": lambda stock: (
        " by other_config:flow-restore-wait"
        if stock.config("flow-restore-wait") == "true"
        else " while bridges or ports change"),
    "rconn_overflow": lambda stock: who(
        clients(stock, r".*\.mgmt")) + packet_in_sender(stock),
    "packet_in_overflow": packet_in_sender,
    "drop_action_tunnel_neigh_cache_miss": where_neighbour}


# Reasons of revalidation, besides changed OpenFlow rules.
WHY = {
    "reconfigure": "ports or bridges are reconfigured",
    "stp": "spanning tree ports change their state",
    "rstp": "rapid spanning tree ports change their state",
    "bond": "members of bonds change", "port_toggled": "ports go up and down",
    "mac_learning": "MAC addresses are learned, or move between ports",
    "mcast_snooping": "multicast groups change"}


def received(stock: Stock, by_pmd: bool) -> Dict[str, int]:
    """Returns how many packets each port has received that a PMD thread polls,
    or the main thread, if their statistics were read again."""
    return {rows[-1]["name"]: max(gain(rows, "statistics", "rx_packets"), 0)
            for rows in stock.rows("Interface").values() if rows[1:]
            and (has_pmd(rows[-1]) if by_pmd else rows[-1].get("type", "") in (
                "", "system", "internal", "tap", "afxdp-nonpmd"))}


def receives(stock: Stock) -> bool:
    """Returns true if the main thread may be what receives packets."""
    n = sum(received(stock, False).values())
    return n >= 100 * stock.seconds or not any(received(stock, True).values())


def receiver(stock: Stock) -> str:
    """Returns the port that the main thread has most packets of, if there is
    one."""
    n = received(stock, False)
    port = most(n)
    return (f", most of port {port}"
            if n.get(port, 0) > sum(n.values()) / 2 else "")


class Work(NamedTuple):
    """What may keep the main thread busy, if a counter is so high."""

    counter: str
    least: float                # A second.
    what: str                   # With {rate} and {who}.
    who: Callable[[Case], str] = lambda case: ""
    may: Callable[[Stock], bool] = lambda stock: True


WORK = (
    Work("bridge_reconfigure", 0.4,
         "reconfiguring bridges {rate:,.1f} times a second"),
    Work("route_table_dump", 0.15, "reading all routes {rate:,.1f} times a "
         "second{who}", lambda case: after(
             moved(case, "routes", "addresses")
             or "routes or addresses change")),
    Work("ofproto_recv_openflow", 20,
         "{rate:,.0f} OpenFlow messages a second{who}", speakers),
    Work("txn_success", 20, "{rate:,.0f} changes of the database a second"),
    Work("unixctl_received", 20, "{rate:,.0f} ovs-appctl commands a second"
         "{who}", lambda case: who(clients(case.stock, r".*\.ctl"))),
    Work("nln_changed", 50, "{rate:,.0f} changes in the kernel a second"
         "{who}", lambda case: after(moved(case))),
    Work("ofproto_recv_openflow", 1,
         "OpenFlow, {rate:,.1f} messages a second{who}", speakers),
    Work("packet_in_overflow", 100, "packets for a controller"),
    Work("netdev_received", 100, "packets of ports without a PMD thread"
         "{who}", lambda case: receiver(case.stock), receives),
)


def doing(case: Case) -> str:
    """Returns what keeps the main thread busy."""
    what = next((": " + work.what.format(rate=rate, who=work.who(case))
                 for work in WORK
                 for rate in (case.stock.rate(work.counter),)
                 if rate >= work.least and work.may(case.stock)), "")
    loop, _ = case.main_loop()
    stages = {name: d.sum for name, d in loop.parts()}
    if stages and not what:             # The patched one knows.
        return f": mostly {DOING.get(most(stages), most(stages))}"
    return what or ", for an unknown reason"
