# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a switch, how it shows, and what to do about it.

"ovs-cost doctor" evaluates the conditions of these rules.  Alerts, runbook and
tables of symptoms are made from the same list.  A condition compares numbers
of a window with others of the same window, so that it holds on any machine.
"""

from __future__ import annotations

import re
from typing import Callable

from ovs.cost.blame import DOING, clients, moved, who
from ovs.cost.case import Case, Numbers, Rule, above, limit_of
from ovs.cost.distribution import Distribution
from ovs.cost.model import most

# Shares that are too much.
LOST = 0.001                    # Of upcalls or packets.
MOST = 2 / 3                    # Of upcalls: by one port or rule.
REFUSED = 0.1                   # Of upcalls: without room for a flow.
PREEMPTED = 0.2                 # Of the time: a PMD thread has no CPU.
STARVED = 0.75                  # Of the time: another thread has none.
STALLED = 0.02                  # Of the time: iterations that are long.
BUSY = 0.2                      # Of the time: a thread does one thing.

LONG = 20                       # Times the median is long.
LONG_NS = 50e6                  # A shorter iteration delays nothing.
FEW = 100                       # Events that say nothing about shares.

STALL = ("While the main thread is stalled, OpenFlow, ovs-appctl and ports "
         "without a PMD thread all wait. ")
STALL_BY = {
    "unix": "The client is a program on this host, such as ovs-ofctl in a "
            "script; `bridge/cost-show -slowest 5 openflow` shows its process "
            "ID. Make it ask for fewer rules, or less often.",
    "appctl": "Find out who runs the command, and how often it is needed. "
              "`bridge/cost-show -slowest 5 commands` shows its arguments.",
    "stats": "`bridge/cost-show -slowest 5 interfaces` shows their names. "
             "Raise `other_config:stats-update-interval`. If it is mostly "
             "Netlink, programs that create or delete links on this host may "
             "hold the kernel's lock (RTNL)."}

HANDLER = ("In `cost/threads`, a handler with `CPU %` near 100 is overloaded; "
           "one with a high `delay %` is starved of a CPU. If both are low, "
           "it waited for something else. `translate` is slow with long "
           "OpenFlow pipelines.")


def lost(report: str, group: str, only: str = "", but: str = ""
         ) -> Callable[[Case], Numbers]:
    """Returns a condition: 'group' has losses, by the reason 'only', or by any
    but one."""
    def condition(case: Case) -> Numbers:
        for account in case.accounts(report):
            body = account.total
            reasons = {r: n for r, n in body.counters.get(group, {}).items()
                       if n and (r == only if only else r != but)}
            n = sum(reasons.values())
            whole = max(n, body.counters.get("sent", {}).get("packets", 0)
                        if report == "tx" else n + body.events)
            # A queue that was full once is reason enough.
            if n > (0 if only == "overrun" else max(LOST * whole, FEW / 10)):
                yield {"name": account.key.name, "n": n, "share": n / whole,
                       "reasons": ", ".join(
                           sorted(reasons, key=lambda r: -reasons[r]))}
    return condition


def refused_bursts(case: Case) -> Numbers:
    # What is flooded to a port that is down is no loss.
    up = {row["name"] for row in case.stock.latest("Interface")
          if row.get("link_state") == "up"}
    for account in case.accounts("tx"):
        body = account.total
        n = body.counters.get("other", {}).get("errors", 0)
        if n > max(LOST * body.events, FEW / 10) and account.key.name in up:
            yield {"name": account.key.name, "n": n,
                   "share": n / max(n, body.events)}


def refused(case: Case) -> Numbers:
    for account in case.accounts("upcall"):
        flows = account.total.counters.get("flows", {})
        n, n_all = flows.get("flow-limit", 0), sum(flows.values())
        if n_all >= FEW and n > REFUSED * n_all:
            yield {"name": account.key.name, "n": n, "all": n_all,
                   "share": n / n_all, **limit_of(case, account.key.name)}


def fallen(case: Case) -> Numbers:
    if any(refused(case)):
        return
    for account in case.accounts("revalidator", "round"):
        found = limit_of(case, account.key.name)
        if found["recent"] and found["limit"] < found["before"] / 2:
            yield dict(found, name=account.key.name,
                       share=1 - found["limit"] / found["before"])


def starved(case: Case) -> Numbers:
    # Nobody waits for the one that frees memory.
    found = [thread for thread in case.delays()
             if thread[1] > (PREEMPTED if thread[0] else STARVED)
             and not thread[2].startswith("urcu")]
    for _, delay, name, _ in [max(found)] if found else ():
        cpu = re.match(r"pmd-c(\d{1,9})/", name)
        share, hog = case.stock.hogs.get(int(cpu[1]) if cpu else -1, (0, ""))
        yield {"name": name, "share": min(delay, 1.0), "others": (
            f"; {hog} has used {share:.0%} of that CPU" if hog else "")
            + (f"; other starved threads: {len(found) - 1}" if found[1:]
               else "")}


def stalled(case: Case) -> Numbers:
    loop, window_ns = case.main_loop()
    run = loop.stages.get("run", Distribution())
    long = max(LONG * run.percentile(50), LONG_NS)
    n, time = above(run, long)
    stages = {name: above(d, long / 2)[1] for name, d in loop.parts()}
    stage = most(stages)
    classes = {name: body.time_ns for account in case.accounts("bridge", {
        "appctl": "command", "stats": "update"}.get(stage, "none"))
        for name, body in account.classes.items() if stage == "stats"
        or body.stages["total"].percentile(50) > long / 2}
    # Anything takes long without a CPU, but a command that always does.
    # It may have slept instead, or been without a CPU at other times.
    delay = next((min(delay, share * time / window_ns)
                  for _, delay, name, share in case.delays()
                  if name == "ovs-vswitchd" and n and not classes), 0.0)
    # One stall or two say little, but who asks for them asks again.
    few = n < (2 if stage in ("appctl", "openflow") else 3)
    calls = {account.key.name: body.time_ns
             for account in case.accounts("netlink")
             for name, body in account.threads.items() if name == "main"}
    waited = sum(calls.values()) > time / 2
    # Who waits for the kernel waits for anybody; for threads, on a busy host.
    limit = (BUSY if few or stage == "rcu" and not any(starved(case)) else
             5 * STALLED if waited or stage in ("stats", "datapath", "rcu")
             else STALLED)
    if time < (limit + delay) * window_ns or not n or (
            stage == "stats" and any(slow_statistics(case))):
        return
    what = DOING.get(stage, stage)
    messages = case.tops.get("bridge message", []) * (stage == "openflow")
    if messages:
        worst = max(messages, key=lambda m: m["ns"])
        what = f"OpenFlow ({worst['name']})"
        stage = stage if ":" in worst["name"].partition("<->")[2] else "unix"
    if classes:
        what += (" of type " if stage == "stats" else " ") + most(classes)
    if stage == "appctl":
        what += who(clients(case.stock, r".*\.ctl"))
    if stage == "rcu" and case.stock.awaited():
        what = f"waiting for {case.stock.awaited()} (RCU)"
    if stage in ("routes", "netdev") and moved(case):
        what += f" ({moved(case)})"
    if waited:
        what += f", mostly Netlink ({most(calls)})"
    yield {"share": min(time / window_ns, 1.0), "n": n, "what": what,
           "ms": time / n / 1e6,
           "advice": STALL + STALL_BY[stage] if stage in STALL_BY else ""}


def slow_statistics(case: Case) -> Numbers:
    loop, window_ns = case.main_loop()
    stats = loop.stages.get("stats", Distribution())
    if stats.sum > BUSY * window_ns:
        yield {"share": min(stats.sum / window_ns, 1.0),
               "s": stats.mean / 1e9, "every": window_ns / stats.count / 1e9}


def most_upcalls(what: str) -> Callable[[Case], Numbers]:
    """Returns a condition: upcalls do harm, and one port, or rule, makes most,
    however far the samples are off."""
    def condition(case: Case) -> Numbers:
        rows = case.tops.get(f"upcall {what}", [])
        for row in rows if len(rows) > 1 and case.pressed() else ():
            if row["least"] > MOST and row["events"] >= FEW and (
                    " table=254 " not in row["name"]):      # It is internal.
                yield {"name": row["name"], "share": row["share"],
                       "n": row["events"], "error": row["sampling_error"],
                       "others": len(rows) - 1}
    return condition


def waits_for_lock(case: Case) -> Numbers:
    rounds = {a.key.name: a.total.stages["total"]
              for a in case.accounts("revalidator", "round")}
    for account in case.accounts("revalidator", "share"):
        whole = rounds.get(account.key.name, Distribution())
        lock, barrier, total = (account.total.stages[n].sum for n in
                                ("lock", "barrier", "total"))
        ns = 1e9 * case.windows["revalidator"].seconds
        if whole.sum > ns / 2 and lock > (total - barrier) / 2:
            yield {"name": account.key.name, "ms": whole.mean / 1e6,
                   "share": lock / (total - barrier)}


RULES = (
    Rule("down", "critical", "a switch does not answer", "version",
         "See its log. Either it is not running (no pidfile, or connection "
         "refused), its control socket belongs to another user, or its main "
         "thread hangs (the log has \"Unreasonably long\").",
         link=("bridge-cost", "The main loop")),
    Rule("report-fails", "warning", "", "cost/show",
         "\"is not a valid command\": this `ovs-vswitchd` does not have the "
         "report. \"more than can be sent\": ask for fewer accounts. \"a "
         "newer one is needed\": update the program that reads the report.",
         link=("cost-json", "Limits")),
    Rule("slow-upcalls", "hint", "new connections are slow",
         "coverage/show, upcall/show, "
         "upcall/cost-show -last 1m, upcall/cost-show -slowest 5 -last 1m, "
         "bridge/cost-show main-loop -last 1m",
         "Find the stage with the highest `mean` and `p99`: `translate` is "
         "time in the OpenFlow tables, the others are time in the datapath. "
         "If none is high, the main thread may stall (`run`): in the "
         "userspace datapath, packets from ports without a PMD thread wait "
         "for it.",
         link=("upcall-cost", "What to look for")),
    Rule("upcall-overrun", "critical", "upcalls are lost (`overrun`)",
         "cost/threads -last 1m, upcall/cost-show -thread, "
         "upcall/cost-show -slowest 5, dpctl/dump-flows",
         "A handler's socket overflowed. " + HANDLER + " To find the sender, "
         "sort the datapath's flows by port. More handlers help only with "
         "per-vport dispatch.",
         "{name} has lost {n:,} upcalls ({share:.1%}) and their packets: a "
         "handler's queue was full", lost("upcall", "lost", "overrun"),
         link=("upcall-cost-kernel", "Results")),
    Rule("upcalls-lost", "warning", "upcalls are lost (other reasons)",
         "upcall/cost-show",
         "`lock`: bridges were being reconfigured, PMD threads had just "
         "started, or `other_config:flow-restore-wait` is set; if it "
         "continues, something keeps changing the configuration. "
         "`no-bridge`: packets from a port that is in no bridge. `error`: see "
         "the log. `ovs-appctl -f json --pretty cost/describe` defines the "
         "other reasons.",
         "{name} has lost {n:,} upcalls ({share:.1%}): {reasons}",
         lost("upcall", "lost", but="overrun"),
         link=("upcall-cost", "Results")),
    Rule("netlink-overrun", "warning", "", "netlink/cost-show",
         "After each loss, the main thread reads all links or routes again "
         "(`routes`, `status`). Losses are typical with thousands of "
         "interfaces or full routing tables.",
         "Notifications from the kernel ({name}) were lost {n:,} times",
         lost("netlink", "lost", "overrun"),
         link=("netlink-cost", "Reading the report")),
    Rule("flow-limit-fell", "warning", "the flow limit falls",
         "revalidator/cost-limit, revalidator/cost-show",
         "Revalidation rounds take too long. Find the stage that takes the "
         "time: `kernel` and `lock` (reading the datapath's flows), "
         "`revalidate` (translating flows again), or `operate`. If traffic is "
         "unchanged, look for other load on the revalidators' CPUs.",
         "{name}: the flow limit has fallen from {before:,} to {limit:,} "
         "{cause}; {lasts}", fallen,
         link=("revalidator-cost", "When the flow limit falls")),
    Rule("flows-refused", "critical",
         "new connections are slow, and `flows:` has `flow-limit`",
         "upcall/cost-show, revalidator/cost-limit",
         "Some flows cannot be installed, so each of their packets is an "
         "upcall. Raise `other_config:flow-limit` (default: 200,000), or find "
         "what creates so many flows: a scan, or a table that matches on "
         "ports (narrow megaflows).",
         "{name}: the flow limit, {limit:,}, is too low: {n:,} of {all:,} "
         "upcalls ({share:.0%}) could not install a flow; it was set {cause}, "
         "and {lasts}", refused,
         link=("revalidator-cost", "Changes of the flow limit")),
    Rule("tx-drops", "warning", "packets are dropped on output",
         "tx/cost-show PORT",
         "`no-room`: the device is too slow (for vhost, check whether the "
         "guest's CPU is busy). `mtu`, `qos`, `offload`: check the "
         "configuration. `ovs-appctl -f json --pretty cost/describe` defines "
         "the other reasons.",
         "{name} has dropped {n:,} packets ({share:.1%}) on output: {reasons}",
         lost("tx", "packets dropped", but="down"), causes="port-drops",
         link=("tx-cost", "What to look for")),
    Rule("tx-errors", "warning", "packets cannot be sent",
         "tx/cost-show PORT",
         "The log has the error: \"Message too long\" (the MTU is smaller), "
         "or \"Resource temporarily unavailable\" (the queue is full, such "
         "as by a QoS).",
         "Port {name} refuses packets: {n:,} bursts of them ({share:.1%}) "
         "were not sent, or in part", refused_bursts,
         link=("tx-cost", "What to look for")),
    Rule("small-bursts", "hint", "small bursts, low throughput",
         "tx/cost-show PORT",
         "`packets` is below 32. In `sent when`, `iteration` means that the "
         "rx queue had no more packets.",
         link=("tx-cost", "What to look for")),
    Rule("queue-slow", "warning", "upcalls wait for a handler",
         "cost/threads -last 1m, upcall/cost-show -thread",
         "`queue` is the wait in the kernel (with "
         "`other_config:cost-kernel-queue`). " + HANDLER,
         link=("upcall-cost-queue", "What it adds to a report")),
    Rule("starved", "warning", "everything is slow at times",
         "cost/threads -last 10s",
         "Something else runs on that CPU, or the container has used up its "
         "CPU quota (`throttled`: raise `cpu.max`). A PMD thread's name "
         "contains its CPU. `ps -eLo psr,pcpu,pid,args --sort=psr,-pcpu` "
         "lists the threads on each CPU, and `taskset -p` shows where a "
         "process may run. Move the other processes away (`isolcpus`, "
         "systemd's `CPUAffinity`), or move the PMD thread "
         "(`other_config:pmd-cpu-mask`).",
         "{name} is starved: for {share:.0%} of the time it was ready to run "
         "but had no CPU{others}", starved, causes="rx-missed, "
         "main-stalls, main-loop-stalled, flow-limit-low, flow-limit-fell",
         link=("cost-threads", "How much of a CPU each thread gets")),
    Rule("main-loop-stalled", "warning", "the main thread stalls",
         "bridge/cost-show -last 15m, bridge/cost-show -top -last 15m, "
         "bridge/cost-show -slowest 5 -last 15m",
         STALL + "Find the stage with the highest `max`: `stats` (many "
         "interfaces, or a slow driver), `appctl` (`bridge/cost-show -slowest "
         "5 commands` shows the arguments), `openflow` (who dumps or changes "
         "many rules?), `configure`, `idl` (a large database change), ...",
         "The main thread is stalled by {what}: {share:.0%} of the time, in "
         "{n:,} iterations of its loop that took {ms:,.0f} ms on average",
         stalled, causes="main-busy, main-stalls",
         link=("bridge-cost", "The main loop")),
    Rule("statistics-slow", "warning", "statistics are late",
         "bridge/cost-show interfaces, netlink/cost-show",
         "Find the type of interface and the Netlink calls that take the time "
         "(`bridge/cost-show -slowest 5 interfaces` shows names). Raise "
         "`other_config:stats-update-interval`.",
         "Reading statistics takes the main thread {s:,.1f} s of every "
         "{every:,.1f} s", slow_statistics, causes="main-busy, main-stalls",
         link=("bridge-cost", "Interfaces")),
    Rule("port-makes-upcalls", "warning", "new connections are slow, and most "
         "come from one port",
         "upcall/cost-show -top -last 15m, dpctl/dump-flows",
         "Look at what the port sends: a scan, or a flood of short "
         "connections. Limit its traffic, or give the port rules that make "
         "wider megaflows.",
         "Port {name} causes most upcalls: {share:.0%} ({n:,} +/- "
         "{error:,.0f}), {others} other ports the rest",
         most_upcalls("port"), causes="flows-refused, upcall-overrun, "
         "main-loop-stalled, main-busy, main-stalls, threads-busy",
         link=("upcall-cost", "What to look for")),
    Rule("rule-makes-upcalls", "warning", "new connections are slow, and most "
         "match one rule", "upcall/cost-show -top -last 15m, dpctl/dump-flows",
         "Megaflows are narrow if the rule, or one in an earlier table, "
         "matches on many fields or has actions that read them (`move`, "
         "`learn`). `ofproto/trace` shows the megaflow of a packet.",
         "Rule {name} causes most upcalls: {share:.0%} ({n:,} +/- "
         "{error:,.0f}), {others} other rules the rest",
         most_upcalls("rule"), causes="main-loop-stalled, main-busy, "
         "main-stalls, threads-busy",
         link=("upcall-cost", "What to look for")),
    Rule("revalidators-wait", "warning", "revalidation is slow, but uses no "
         "CPU", "revalidator/cost-show",
         "Only one thread at a time can read the datapath's flows, so more "
         "revalidators do not help. Keep fewer flows "
         "(`other_config:flow-limit`, `max-idle`), or steer the packets of "
         "each flow to fewer CPUs.",
         "{name}: revalidators wait for a lock {share:.0%} of the time, not "
         "counting waits for each other; a round takes {ms:,.0f} ms",
         waits_for_lock,
         link=("revalidator-cost", "When the flow limit falls")),
)
