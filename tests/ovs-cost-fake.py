# SPDX-License-Identifier: Apache-2.0
"""A switch that only pretends: it answers the cost commands on a control
socket, with events that it makes up, always the same ones."""

from __future__ import annotations

import contextlib
import json
import math
import random
import socket
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from ovs.cost.distribution import Distribution
from ovs.cost.model import REPORTS, VERSION, Account, Body, Key, Reply

# Median, in ns, and spread of each stage: (stages, sampled, whole).
UPCALL = {"parse": 180, "translate": 1900, "install": 600, "execute": 300}
BURST = {"wait": 240, "send": 1100}
LOOP = {"poll": 90000000, "idl": 9000, "datapath": 14000, "openflow": 30000,
        "configure": 2000, "stats": 60000, "status": 9000, "commit": 4000,
        "appctl": 20000, "routes": 900, "netdev": 3000, "rcu": 5000,
        "register": 7000, "other": 2000}
CALL = {"send": 3000, "receive": 9000}
SHARE = {"idle": 4e8, "lead": 3000, "lock": 200, "dump": 700000,
         "barrier": 90000, "sweep": 60000}
ROUND = {"idle": 4e8, "start": 3000, "dump": 900000, "sweep": 60000,
         "finish": 5000}

# Kinds of a reply: stages, those that are apart, and counters in groups.
KINDS: Dict[str, Tuple[List[str], List[str], Dict[str, List[str]]]] = {
    "upcall": ([*UPCALL, "total"], [], {
        "flows": ["installed", "flow-limit", "no-recirc-context", "duplicate",
                  "refused"],
        "lost": ["lock", "no-bridge", "error", "overrun"]}),
    "burst": ([*BURST, "packets", "total"], [], {
        "sent when": ["full", "interval", "iteration", "forced"],
        "packets dropped": ["down", "mtu", "qos", "offload", "no-room"],
        "other": ["retries", "errors"], "sent": ["packets"]}),
    "iteration": ([*LOOP, "run"], ["poll"], {}),
    "command": (["total"], [], {}),
    "update": (["total"], [], {}),
    "call": ([*CALL, "requests", "bytes", "total"], [], {
        "result": ["done", "nothing", "interrupted", "error"],
        "lost": ["overrun"]}),
    "round": ([*ROUND, "threads", "flows", "limit", "total"], ["idle"], {
        "flows": ["kept", "modified", "duplicate", "skipped"],
        "deleted": ["idle", "flow-limit"]}),
}
KINDS["share"] = ([*SHARE, "flows", "total"], ["idle"], KINDS["round"][2])


class Switch:
    """What a switch would have counted."""

    def __init__(self, start_us: int, seed: int = 1, pid: int = 4242) -> None:
        self.start_us = start_us
        self.now_us = start_us
        self.pid = pid
        self.rng = random.Random(seed)
        self.slow = 1.0                 # Factor of all times.
        self.accounts: Dict[str, Dict[Key, Account]] = {}
        self.deleted: Dict[str, Dict[Key, Account]] = {}
        self.moves: List[Dict[str, Any]] = []
        self.limit = 10000
        self.well = False               # Is nothing wrong?
        self.clock = "test"
        self.threads = ["new"]
        self.tops: Dict[str, List[Dict[str, Any]]] = {}     # Rows.
        self.flight: Optional[Dict[str, Any]] = None

    def account(self, report: str, kind: str, name: str,
                datapath: str = "") -> Account:
        key = Key(kind, name, datapath)
        accounts = self.accounts.setdefault(report, {})
        if key not in accounts:
            accounts[key] = Account(key)
            accounts[key].since_us = self.now_us
        return accounts[key]

    def time(self, median: float) -> int:
        return int(self.rng.lognormvariate(math.log(median), 0.5) * self.slow)

    def event(self, account: Account, class_: str, thread: str,
              stages: Dict[str, float], whole: str, numbers: Dict[str, int],
              counters: List[Tuple[str, str]], sample: int = 1,
              sample_whole: bool = False, outside: str = "") -> None:
        """Counts one event in everything that it belongs to.  Where whole
        events are sampled, so are numbers."""
        times = {n: self.time(m) for n, m in stages.items()}
        if self.rng.random() < 0.002:
            slow = self.rng.choice([n for n in times if n != outside])
            times[slow] += 40 * sum(stages[n] for n in times if n != outside)
            times[slow] = int(times[slow])
        total = sum(t for n, t in times.items() if n != outside)
        split = self.rng.randrange(sample) == 0
        for bodies, name in ((None, ""), (account.classes, class_),
                             (account.threads, thread)):
            body = (account.total if bodies is None else
                    bodies.setdefault(name, Body(account.key.kind)))
            prepare(body, list(stages), whole, numbers, sample, sample_whole)
            body.events += 1
            if split:
                for n, t in times.items():
                    body.stages[n].add(t)
            if split or not sample_whole:
                body.stages[whole].add(total)
            for n, v in numbers.items() if split or not sample_whole else ():
                body.stages[n].add(v)
            for group, n in counters:
                body.counters[group][n] += 1
            if "packets" in numbers:
                body.counters["sent"]["packets"] += numbers["packets"]

    def run(self, seconds: float, rate: float = 200) -> None:
        """Lets 'seconds' pass, with 'rate' upcalls a second."""
        rng = self.rng
        for _ in range(int(rate * seconds)):
            class_ = rng.choice(["miss", "miss", "controller"])
            lost = rng.random() < 0.001 and not self.well
            self.event(self.account("upcall", "upcall", "netdev@ovs-netdev",
                                    "netdev@ovs-netdev"), class_,
                       rng.choice(["pmd-c01", "pmd-c01", "pmd-c02"]), UPCALL,
                       "total", {}, [("flows", "installed")]
                       + ([("lost", "lock")] if lost else []), 4)
        for _ in range(int(2 * rate * seconds)):
            n = rng.choice([32, 32, 32, 8, 4, 1])
            self.event(self.account("tx", "burst", rng.choice(
                ["p0", "p0", "vhost-<b>\"1\"\n"]), "netdev@ovs-netdev"),
                rng.choice(["txq0", "txq1"]),
                rng.choice(["pmd-c01", "pmd-c02"]), BURST, "total",
                {"packets": n},
                [("sent when", "full" if n == 32 else "iteration")], 8, True)
        for _ in range(int(10 * seconds)):
            self.event(self.account("bridge", "iteration", "main-loop"),
                       "iteration", "main", LOOP, "run", {}, [],
                       outside="poll")
            self.event(self.account("netlink", "call", "link"), "transact",
                       "main", CALL, "total",
                       {"requests": 1, "bytes": rng.choice([20, 1400])},
                       [("result", "done")])
        for _ in range(max(int(2 * seconds), 1)):
            flows = rng.randrange(900, 1100)
            old = self.limit
            self.limit = rng.choice([old, old, old + 1000, old * 3 // 4])
            if self.well:
                self.limit = old
            if self.limit != old:
                self.moves.insert(0, {
                    "time_us": self.now_us, "from": old, "to": self.limit,
                    "reason": "grew" if self.limit > old else "scaled",
                    "duration_ms": 3, "flows": flows})
            self.event(self.account("revalidator", "round",
                                    "netdev@ovs-netdev", "netdev@ovs-netdev"),
                       "statistics", "revalidator7", ROUND, "total",
                       {"threads": 2, "flows": flows, "limit": self.limit},
                       [("flows", "kept")], outside="idle")
        self.now_us += int(seconds * 1e6)

    def clear(self, report: str) -> None:
        for account in self.accounts[report].values():
            self._forget(account)
        self.deleted.pop(report, None)

    def _forget(self, account: Account) -> None:
        account.total = Body(account.key.kind)
        account.classes, account.threads = {}, {}
        account.since_us = self.now_us

    def remake(self, report: str, key: Key) -> None:
        """Deletes an account, and makes it again."""
        account = self.accounts[report][key]
        deleted = self.deleted.setdefault(report, {})
        sum_key = Key(key.kind, "", "")
        if sum_key not in deleted:
            deleted[sum_key] = Account(sum_key)
            deleted[sum_key].accounts = 0
        deleted[sum_key].merge(account)
        deleted[sum_key].accounts += 1
        deleted[sum_key].since_us = None
        self._forget(account)

    def head(self, report: str, command: str) -> Dict[str, Any]:
        return {"version": VERSION, "report": report, "command": command,
                "pid": self.pid, "start_us": self.start_us,
                "ovs_version": "4.0.0", "now_us": self.now_us,
                "clock": {"source": self.clock},
                "settings": {"enabled": True, "sample_interval": 4}}

    def show(self, report: str, slowest: bool = False) -> Dict[str, Any]:
        """Returns the reply to cost-show -hist -thread -top."""
        reply = Reply(report)
        reply.head = self.head(report, "cost-show")
        reply.pid, reply.start_us = self.pid, self.start_us
        reply.now_us, reply.ovs_version = self.now_us, "4.0.0"
        reply.accounts = self.accounts.get(report, {})
        reply.deleted = self.deleted.get(report, {})
        for account in (list(reply.accounts.values())
                        + list(reply.deleted.values())):
            key = Key(account.key.kind, "", "")
            if key not in reply.totals:
                reply.totals[key] = Account(key)
                reply.totals[key].accounts = 0
            reply.totals[key].merge(account)
            reply.totals[key].accounts += account.accounts
        for total in reply.totals.values():
            total.since_us = None
            total.threads = {}
        json_ = reply.to_json()
        for total in json_["total"][:1]:
            total["top"] = [{"what": what.split()[1], "rows": rows}
                            for what, rows in self.tops.items()
                            if what.split()[0] == report]
        for account in json_["accounts"] if slowest else ():
            account["slowest"] = [{
                "total_ns": account["stages"]["parse"]["max"],
                "excluded_ns": 0, "time_us": self.now_us,
                "thread": "pmd-c01", "class": "miss", "cause": "starved",
                "stages": {"parse": 180}, "details": {
                    "dp_port": 3, "port_name": "<v1>&", "packet_bytes": 98,
                    "flow": "in_port(3),eth_type(0x0800)"}}
            ] if "parse" in account["stages"] else []
        return json_

    def cost_threads(self) -> Dict[str, Any]:
        usage = {"cpu_ns": 110 * 10 ** 6, "run_delay_ns": 890 * 10 ** 6,
                 "voluntary_switches": 0, "involuntary_switches": 25,
                 "major_faults": 0}
        if self.well:
            usage["run_delay_ns"] = 0
        ever = {name: n * (self.now_us - self.start_us) // 10 ** 6
                for name, n in usage.items()}
        return dict(self.head("cost", "threads"), window_ns=60 * 10 ** 9,
                    have_ns=10 ** 9, threads=[
                        dict(ever, name="pmd-c01/id:<9>", tid=self.pid + 1,
                             last=dict(usage, ns=10 ** 9)),
                        *(dict(ever, name=name, tid=tid, **(
                            {} if name == "new" else
                            {"last": dict(usage, ns=10 ** 9)}))
                          for tid, name in enumerate(self.threads,
                                                     self.pid + 2))])

    def cost_limit(self) -> Dict[str, Any]:
        return dict(self.head("revalidator", "cost-limit"), datapaths=[
            {"name": "netdev@ovs-netdev", "flow_limit": self.limit,
             "moves": len(self.moves), "latest": self.moves[:16]}])


def prepare(body: Body, stages: List[str], whole: str,
            numbers: Dict[str, int], sample: int, sample_whole: bool) -> None:
    """Makes the members that 'body' lacks."""
    if body.stages:
        return
    names, apart, groups = KINDS[body.kind]
    for name in names:
        if name in stages:
            body.stages[name] = Distribution(sampled=sample > 1,
                                             apart=name in apart)
        elif name == whole:
            body.stages[name] = Distribution(sampled=sample_whole)
        elif name in numbers:
            body.stages[name] = Distribution(
                "flows" if name == "limit" else name, sample_whole)
    for group, members in groups.items():
        body.counters[group] = {name: 0 for name in members}


class Server(threading.Thread):
    """Answers on a control socket, one connection after the other."""

    def __init__(self, path: str, switch: Switch,
                 live: bool = False) -> None:
        super().__init__(daemon=True)
        self.switch = switch
        self.live = live                # Does time pass?
        self.hang = False               # In the middle of a reply.
        self.commands: List[List[str]] = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen(4)

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=[connection],
                             daemon=True).start()

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def serve(self, connection: socket.socket) -> None:
        is_json = False
        text = ""
        with connection, contextlib.suppress(OSError):  # Closed meanwhile.
            while True:
                data = connection.recv(65536)
                if not data:
                    return
                text += data.decode()
                while text.endswith("}"):
                    try:
                        request, end = json.JSONDecoder().raw_decode(text)
                    except ValueError:
                        break           # There is more of it.
                    text = text[end:]
                    is_json = self.execute(connection, request, is_json)

    def execute(self, connection: socket.socket, request: Any,
                is_json: bool) -> bool:
        """Answers one request.  Returns whether replies are in JSON now."""
        command = [request["method"]] + request["params"]
        self.commands.append(command)
        if command == ["set-options", "--format", "json"]:
            is_json = True
            result: Optional[Any] = ""
        else:
            result = self.reply(*command) if is_json else "not JSON"
        text = answer(request, result)
        if self.hang:
            connection.sendall(text[:len(text) // 2])
            raise OSError               # It ends here.
        connection.sendall(text)
        return is_json

    def reply(self, command: str, *params: str) -> Optional[Any]:
        report, _, verb = command.partition("/")
        if command == "cost/show":
            reports = [p for p in params if p in REPORTS] or REPORTS
            replies = [self.reply(f"{name}/cost-show", *params)
                       for name in reports if name in self.switch.accounts]
            if "revalidator" in reports:
                replies.append(self.switch.cost_limit())
            replies.append(self.switch.cost_threads())
            return {"version": VERSION, "replies": replies}
        if report == "upcall" and self.live:
            now = time.time()
            self.switch.run(min(now - self.switch.now_us / 1e6, 5))
            self.switch.now_us = int(now * 1e6)
        if verb == "cost-show" and report in self.switch.accounts:
            return self.switch.show(report, "-slowest" in params)
        elif command == "revalidator/cost-limit":
            return self.switch.cost_limit()
        elif command == "cost/threads":
            return self.switch.cost_threads()
        elif command == "cost/flight":
            return self.switch.flight
        return None


def answer(request: Any, result: Optional[Any]) -> bytes:
    """Returns the reply to 'request', an error without a 'result'."""
    return json.dumps({
        "id": request["id"], "result": result,
        "error": None if result is not None else
        f"\"{request['method']}\" is not a valid command"}).encode()
