#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unit tests of ovs-cost doctor."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from ovs.cost import doctor, model, recording, rules
from ovs.cost.stock import Stock

HERE = Path(__file__).resolve().parent


base = importlib.import_module("test-ovs-cost")
fake = base.fake
START = base.START


# What is wrong with a switch: each takes a switch that is well, and its
# recording, and makes one rule true.
def lose(report: str, kind: str, name: str, group: str, reason: str,
         n: int) -> Callable[[Any, Any], None]:
    def change(switch: Any, _: Any) -> None:
        counters = switch.account(report, kind, name, DATAPATH[report]).total
        reasons = counters.counters[group]
        reasons[reason] = reasons.get(reason, 0) + n
    return change


DATAPATH = {"upcall": "netdev@ovs-netdev", "tx": "netdev@ovs-netdev",
            "netlink": "", "bridge": "", "revalidator": "netdev@ovs-netdev"}


def move(switch: Any, *moves: Tuple[str, int, int, int]) -> None:
    """Moves the flow limit: latest reason, from, to, ms first."""
    switch.limit = moves[0][2]
    switch.moves = [dict(
        {"time_us": START, "reason": reason, "from": old, "to": new},
        **({"duration_ms": ms, "flows": 9} if ms else {}))
        for reason, old, new, ms in moves]


def fall(switch: Any, _: Any) -> None:
    move(switch, ("grew", 3000, 4000, 900), ("scaled", 10000, 3000, 2500))


def refuse(switch: Any, got: Any) -> None:
    move(switch, ("set", 10000, 300, 0))
    lose("upcall", "upcall", "netdev@ovs-netdev", "flows", "flow-limit", 9000
         )(switch, got)


def refuse_bursts(switch: Any, got: Any) -> None:
    lose("tx", "burst", "p0", "other", "errors", 500)(switch, got)
    got.stock[SOURCE] = Stock()
    got.stock[SOURCE].tables = [{"Interface": [
        {"name": "p0", "link_state": "up"}]}]


def events(switch: Any, report: str, kind: str, name: str, class_: str,
           stages: Dict[str, float], n: int, whole: str = "total",
           result: str = "") -> None:
    account = switch.account(report, kind, name, DATAPATH[report])
    numbers = {"requests": 1, "bytes": 20} if kind == "call" else (
        {"flows": 1000} if kind == "share" else {})
    for _ in range(n):
        switch.event(account, class_, "main", stages, whole, numbers,
                     [("result", result)] if result else [],
                     outside="poll" if kind == "iteration" else "idle")


def main_loop(switch: Any, n: int, **stages: float) -> None:
    events(switch, "bridge", "iteration", "main-loop", "iteration",
           dict(fake.LOOP, **stages), n, "run")


def dump(switch: Any, _: Any) -> None:
    main_loop(switch, 5, appctl=2e8)
    events(switch, "bridge", "command", "commands", "bridge/dump-flows",
           {"total": 2e8}, 5)
    events(switch, "bridge", "command", "commands", "version",
           {"total": 2e4}, 50)


def ask(switch: Any, _: Any) -> None:
    main_loop(switch, 5, openflow=2e8)


def ask_all(switch: Any, _: Any) -> None:
    ask(switch, _)
    switch.tops["bridge message"] = [
        {"name": name, "group": peer, "share": 0.5, "events": n,
         "mean_ns": ns, "error": 0, "samples": n}
        for name, peer, n, ns in (
            ("OFPT_FLOW_MOD", "br0<->tcp:1.2.3.4", 9000, 1000),
            ("OFPST_FLOW request", "br0<->unix", 5, 10 ** 8))]


def link_calls(switch: Any, _: Any) -> None:
    main_loop(switch, 5, netdev=2e8)
    events(switch, "netlink", "call", "link", "dump",
           {"send": 1e8, "receive": 1e8}, 8, result="done")


def count_slowly(switch: Any, _: Any) -> None:
    main_loop(switch, 2, stats=3e9)


def top_rows(first: int, second: int, third: int, interval: int = 16
             ) -> List[Dict[str, Any]]:
    """Shares are of time, which is not what port and rule are judged by."""
    return [{"name": name, "share": share, "events": events, "mean_ns": 1000,
             "error": 0, "samples": events // interval}
            for name, share, events in (("p1", 0.3, first), ("p3", 0.3, third),
                                        ("p2", 0.4, second))]


def top_of(what: str) -> Callable[[Any, Any], None]:
    def change(switch: Any, _: Any) -> None:
        switch.tops[what] = top_rows(14000, 50500, 700)
        press(switch)
    return change


def press(switch: Any) -> None:
    """Has upcalls take 60% of the time."""
    stage = switch.account("upcall", "upcall", "netdev@ovs-netdev",
                           "netdev@ovs-netdev").total.stages["total"]
    for _ in range(600):
        stage.add(10 ** 7)


def lock(switch: Any, _: Any) -> None:
    events(switch, "revalidator", "share", "netdev@ovs-netdev", "statistics",
           dict(fake.SHARE, lock=4e8, dump=1e8), 20)
    events(switch, "revalidator", "round", "netdev@ovs-netdev", "statistics",
           dict(fake.ROUND, dump=4e8), 20)


def starve(switch: Any, _: Any) -> None:
    switch.well = False


SOURCE = "host/ovs-vswitchd"
CASES: Dict[str, Tuple[Callable[[Any, Any], None], str]] = {
    "upcall-overrun": (lose("upcall", "upcall", "netdev@ovs-netdev", "lost",
                            "overrun", 50), "has lost 50 upcalls"),
    "upcalls-lost": (lose("upcall", "upcall", "netdev@ovs-netdev", "lost",
                          "no-bridge", 50), "no-bridge"),
    "netlink-overrun": (lose("netlink", "call", "link", "lost", "overrun", 5),
                        "(link) were lost 5 times"),
    "flow-limit-fell": (fall, "from 10,000 to 4,000 by load: a "
                        "revalidation round took 2,500 ms; it grows"),
    "flows-refused": (refuse, "the flow limit, 300, is too low: 9,000 of "),
    "tx-drops": (lose("tx", "burst", "p0", "packets dropped", "no-room", 5000),
                 "p0 has dropped 5,000 packets"),
    "tx-errors": (refuse_bursts, "p0 refuses packets: 500 bursts of them"),
    "starved": (starve, "pmd-c01/id:<9> is starved: for 9"),
    "main-loop-stalled": (dump, "by ovs-appctl bridge/dump-flows: "),
    "statistics-slow": (count_slowly, "Reading statistics takes the main "),
    "port-makes-upcalls": (top_of("upcall port"), "Port p1 causes most upcalls"
                           ": 90% (9,000 +/- 720), 2 other ports the rest"),
    "rule-makes-upcalls": (top_of("upcall rule"), "Rule p1 causes most upcalls"
                           ": 90% (9,000 +/- 720), 2 other rules the rest"),
    "revalidators-wait": (lock, "revalidators wait for a lock "),
}


class TestDoctor(base.InTemporary):         # type: ignore
    def switch(self) -> Any:
        switch = fake.Switch(START)
        switch.well, switch.clock = True, "tsc"
        switch.tops = {"upcall port": top_rows(5000, 50000, 200),
                       "upcall rule": top_rows(5000, 50000, 200)}
        switch.run(1, 50)
        return switch

    def after(self, change: Callable[[Any, Any], None],
              rate: float = 50) -> recording.Recording:
        """Returns what was recorded while a switch had 'change'."""
        switch, got = self.switch(), recording.Recording()
        got.headers.append({"host": "host", "processors": 2})
        for i in range(2):
            if i:
                switch.run(10, rate)
                change(switch, got)
            for report in model.REPORTS:
                got.add(SOURCE, switch.show(report))
            got.add(SOURCE, switch.cost_limit())
            got.add(SOURCE, switch.cost_threads())
        got.finish()
        return got

    def findings(self, got: recording.Recording) -> Dict[str, str]:
        (_, case), = doctor.cases(got)
        return {f["rule"]: f["sentence"] for f in doctor.diagnose(case)}

    def test_rules(self) -> None:
        """Each rule is true in its case, and only there."""
        self.assertEqual(CASES.keys(),
                         {r.name for r in rules.RULES if r.condition})
        for name, (change, words) in CASES.items():
            with self.subTest(name):
                found = self.findings(self.after(change))
                self.assertEqual(list(found), [name])
                self.assertIn(words, found[name])

    def test_new_reasons(self) -> None:
        """Losses by a reason that no rule names count, too."""
        for rule, args in (
                ("upcalls-lost", ("upcall", "upcall", "netdev@ovs-netdev",
                                  "lost")),
                ("tx-drops", ("tx", "burst", "p0", "packets dropped"))):
            found = self.findings(self.after(lose(*args, "new", 5000)))
            self.assertEqual(list(found), [rule])
            self.assertIn("new", found[rule])
        self.assertEqual(self.findings(self.after(lose(
            "tx", "burst", "p0", "packets dropped", "down", 5000))), {})

    def test_busy(self) -> None:
        """Upcalls overlap, so that only cost/threads has a handler's load."""
        for rule in rules.RULES:
            self.assertNotIn("times `total`", rule.advice)
            if "handlers" in rule.advice + rule.symptom:
                self.assertIn("cost/threads", rule.commands)

    def test_old_fall(self) -> None:
        """Of a flow limit that fell long ago, nothing is said."""
        def change(switch: Any, got: Any) -> None:
            fall(switch, got)
            for moved in switch.moves:
                moved["time_us"] -= 16 * 60 * 10 ** 6
        self.assertEqual(self.findings(self.after(change)), {})

    def test_well(self) -> None:
        """Nothing is said of a switch that is well, however busy it is."""
        for rate in 1, 50, 100, 400:
            self.assertEqual(self.findings(self.after(
                lambda s, got: None, rate)), {})

    def test_limit(self) -> None:
        """The cause of a flow limit, and whether it lasts."""
        database, command = ("set", 10000, 300, 2), ("set", 10000, 300, 0)
        load = ("reduced", 10000, 300, 1388)
        for moves, cause, lasts in (
                ([database], "by the database", "until that is changed"),
                ([("grew", 300, 1300, 1), database], "by the database",
                 "it grows: "),
                ([command], "by command", "it grows: reval"),
                ([("set", 300, 1000, 1), command], "by command", "it grows"),
                ([load], "by load: a revalidation round took 1,388 ms",
                 "it grows: "),
                ([("grew", 9000, 10000, 1)], "to its initial value",
                 "it grows")):
            def change(switch: Any, got: Any) -> None:
                refuse(switch, got)
                move(switch, *moves)
            found = self.findings(self.after(change))
            self.assertEqual(list(found), ["flows-refused"])
            self.assertIn(f"set {cause}", found["flows-refused"])
            self.assertIn(lasts, found["flows-refused"])

    def test_stalled(self) -> None:
        """What stalls the main thread."""
        for change, words in (
                (ask, "by OpenFlow (a controller, ovs-ofctl): "),
                (ask_all, "by OpenFlow (OFPST_FLOW request br0<->unix): "),
                (link_calls, "kernel links, mostly Netlink (link)")):
            found = self.findings(self.after(change))
            self.assertEqual(list(found), ["main-loop-stalled"])
            self.assertIn(words, found["main-loop-stalled"])

        def starved(switch: Any, got: Any) -> None:
            starve(switch, got)
            switch.threads.append("ovs-vswitchd")
            change(switch, got)
        for change, names in (
                (ask, ["starved"]), (dump, ["starved", "main-loop-stalled"])):
            self.assertEqual(list(self.findings(self.after(starved))), names)

    def test_stalled_by_starved(self) -> None:
        """The main thread waits for threads: a trouble if one is starved."""
        def wait(switch: Any, _: Any) -> None:
            main_loop(switch, 6, rcu=2e8)

        def both(switch: Any, got: Any) -> None:
            starve(switch, got)
            wait(switch, got)

        for change, names in ((wait, []),
                              (both, ["starved", "main-loop-stalled"])):
            self.assertEqual(list(self.findings(self.after(change))), names)

    def test_stalled_on_a_busy_host(self) -> None:
        """What little the main thread has no CPU for is no excuse."""
        got = self.after(lambda switch, _: main_loop(switch, 5, configure=2e8))
        for delay, names in (5 * 10 ** 8, ["main-loop-stalled"]), (
                10 ** 11, []):
            got.threads[SOURCE] = [dict(got.threads[SOURCE][-1], threads=[{
                "tid": 4242, "name": "ovs-vswitchd", "cpu_ns": 10 ** 12,
                "run_delay_ns": 10 ** 12, "last": {
                    "ns": 10 ** 10, "cpu_ns": 4 * 10 ** 9,
                    "run_delay_ns": delay}}])]
            self.assertEqual([name for name in self.findings(got)
                              if name.startswith("main-loop")], names)

    def test_last(self) -> None:
        """With --last, one reply says that the main thread is busy."""
        got = self.after(lambda *_: None)
        # Each thread has begun at its own moment; the last one is new.
        threads = [
            {"tid": 4242 + i, "name": name, "cpu_ns": 10 ** 12,
             "run_delay_ns": 10 ** 9, "last": {
                 "ns": ns, "cpu_ns": ns * 93 // 100, "run_delay_ns": 0}}
            for i, (name, ns) in enumerate((
                ("ovs-vswitchd", 10 ** 10), ("handler1", 10 ** 10 + 60000),
                ("urcu2", 10 ** 10 + 1), ("revalidator3", 2 * 10 ** 9)))]
        got.threads[SOURCE] = [dict(got.threads[SOURCE][-1], pid=4242,
                                    threads=threads)]
        found = self.findings(got)
        self.assertIn("The main thread needs 93% of a CPU",
                      found["main-busy"])
        self.assertIn("handler1 needs 93% of a CPU", found["threads-busy"])
        (_, case), = doctor.cases(got)
        self.assertEqual(case.stock.revalidators(), 0)

    def test_worst_first(self) -> None:
        def change(switch: Any, got: Any) -> None:
            for name in "port-makes-upcalls", "starved", "flows-refused":
                CASES[name][0](switch, got)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(doctor.run(self.after(change), [], True), 1)
        reply = json.loads(out.getvalue())
        self.assertEqual([f["rule"] for f in reply["findings"]], [
            "starved", "port-makes-upcalls", "flows-refused"])
        self.assertEqual([f["because"] for f in reply["findings"]], [
            "", "", "port-makes-upcalls"])
        self.assertEqual(reply["findings"][1]["numbers"]["name"], "p1")

    def test_commands(self) -> None:
        """Commands are not wrapped, however long they are."""
        long = "ovs-appctl dpctl/dump-flows " + "x" * 80
        self.assertEqual([*doctor.render([{
            "source": "a", "because": "", "sentence": "It is so",
            "advice": "Use `a`.", "commands": ["ovs-appctl a b", long],
            "more": ""}], False)], [
                "It is so.", "    Use a.", "    See: ovs-appctl a b",
                f"         {long}"])

    def test_recordings(self) -> None:
        """A recording of several hosts; which of them it is of."""
        self.record("a")
        status, out, err = self.run_main("doctor", "a")
        self.assertEqual((status, err), (1, ""))
        self.assertRegex(out, "(?m)^pmd-c01/id:<9> is starved: ")
        self.assertIn("\n    See: ovs-appctl cost/threads -last 10s\n", out)
        Path("b").write_text(re.sub('"host":"[^"]*"', '"host":"other"',
                                    Path("a").read_text()))
        self.assertRegex(self.output("doctor", "a", "b", status=1),
                         "(?m)^other/ovs-vswitchd: pmd-c01/id:<9> is ")
        for path, words in (("none", "none: No such file"),
                            ("sos.tar.xz", "sos.tar.xz: unpack it")):
            self.assertIn(words, self.errors("doctor", path))

    def test_live(self) -> None:
        switch = self.switch()
        server = self.serve(switch)
        live = ["doctor", "-i", "0.1", "-t", self.sock]
        switch.start_us -= 10 ** 6
        no_database = (
            f"ovs-cost: {self.sock}: the database at unix:{os.getcwd()}/"
            "db.sock can't be read: [Errno 2] No such file or directory\n")
        self.assertEqual(self.run_main(*live), (2, "", no_database))
        switch.well = False
        reply = json.loads(self.output(*live, "--json", status=1))
        self.assertEqual(reply["findings"][0]["rule"], "starved")
        # Of a window, all that a reply has counts.
        switch.well = True
        switch.tops = {"upcall port": top_rows(9000, 500, 500)}
        press(switch)
        self.assertEqual(self.run_main(*live), (2, "", no_database))
        server.commands.clear()
        out = self.output(*live, "--last", "5m", status=1)
        self.assertEqual(out.splitlines()[0], "Port p1 causes most upcalls: "
                         "90% (9,000 +/- 720), 2 other ports the rest.")
        self.assertEqual([c for c in server.commands if "5m" not in c
                          and "cost" in c[0]], [])
        os.unlink(self.sock)
        self.assertEqual(self.run_main(*live)[0], 2)
        self.assertIn("/none: No such file", self.errors(
            "doctor", "-i", "0.1", "-t", "/none"))
        for bad in ["-l", "7s"], ["-i", "none"]:
            with self.assertRaises(SystemExit):
                self.run_main(*live, *bad)
        self.assertEqual(self.run_main(*live, "a.jsonl")[0], 2)

    def test_few(self) -> None:
        """Few events, or a short time, say nothing."""
        def change(switch: Any, got: Any) -> None:
            lose("upcall", "upcall", "netdev@ovs-netdev", "lost", "lock", 5
                 )(switch, got)
            switch.tops["upcall port"] = top_rows(5080, 50005, 210)
            switch.threads.append("pmd-c09/id:9")
        got = self.after(change)
        got.threads[SOURCE][-1]["threads"][-1]["last"] = {
            "ns": 10 ** 7, "run_delay_ns": 10 ** 7}
        self.assertEqual(self.findings(got), {})

    def test_samples(self) -> None:
        """A port causes most upcalls only if it does however far the samples
        are off, and whatever ports have lost its row."""
        for interval, error, names in (
                (16, 0, []), (1, 0, ["port-makes-upcalls"]), (1, 300, [])):
            def change(switch: Any, got: Any) -> None:
                press(switch)
                switch.tops["upcall port"] = top_rows(
                    5700, 50240, 210, interval)
                switch.tops["upcall port"][0]["error"] = error
            with self.subTest((interval, error)):
                got = self.after(change)
                first, _ = got.tops[SOURCE, "upcall port"]
                for row in first["rows"]:
                    row["samples"] = row["events"] // interval
                self.assertEqual(list(self.findings(got)), names)

    def test_off(self) -> None:
        """Without accounting, other rules still hold."""
        got = self.after(lambda s, got: None)
        for replies in got.replies.values():
            replies[-1].head["settings"] = {"sample_interval": 0}
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(doctor.run(got, [], False), 0)
        self.assertEqual(err.getvalue(), f"ovs-cost: {SOURCE}: accounting is "
                         "off (other_config:cost-accounting), so this has "
                         "only what any Open vSwitch shows\n")

    def test_links(self) -> None:
        """The sections that rules name exist."""
        topics = HERE.parent / "Documentation/topics"
        for rule in rules.RULES:
            name, section = rule.link
            self.assertIn(f"\n{section}\n" + "-" * len(section),
                          (topics / f"{name}.rst").read_text(), rule.name)


if __name__ == "__main__":
    unittest.main()
