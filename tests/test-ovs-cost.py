#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unit tests of python/ovs/cost."""

from __future__ import annotations

import contextlib
import html.parser
import importlib
import io
import json
import math
import os
import pwd
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple
from unittest import mock

from ovs.cost import charts, compare, distribution, flight, main, model, otlp
from ovs.cost import html as page
from ovs.cost import pcap, picture, record, recording, text, top
from ovs.cost.distribution import OVERFLOW, Distribution, Negative
from ovs.cost.model import Key, Reply, between
from ovs.cost.target import CommandError, Target, TargetError

HERE = Path(__file__).resolve().parent

fake = importlib.import_module("ovs-cost-fake")
START = 1795297500000000
NETDEV = Key("upcall", "netdev@ovs-netdev", "netdev@ovs-netdev")
SUM = Key("upcall", "", "")


def of(*values: int, unit: str = "ns") -> Distribution:
    d = Distribution(unit)
    for value in values:
        d.add(value)
    return d


def silent(_message: str) -> None:
    pass


def load(*paths: str) -> recording.Recording:
    return recording.load(paths, silent)


def again(reply: Dict[str, Any]) -> Reply:
    """Returns 'reply' as it is after having been written and read."""
    return Reply.from_json(json.loads(json.dumps(reply)))


class InTemporary(unittest.TestCase):
    """Tests that need a directory."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.before = os.getcwd()
        self.addCleanup(os.chdir, self.before)
        os.chdir(directory.name)
        self.sock = os.path.abspath("s")

    def serve(self, switch: Any, live: bool = False) -> Any:
        """Returns a server of the fake 'switch' at 'self.sock'."""
        server = fake.Server(self.sock, switch, live)
        server.start()
        self.addCleanup(server.close)
        return server

    def run_main(self, *args: str) -> Tuple[int, str, str]:
        """Returns status, output and errors of the command."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
                    for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main.main(args)
        out.seek(0)
        err.seek(0)
        return status, out.read(), err.read()

    def output(self, *args: str, status: int = 0) -> str:
        """Returns the output of the command, which has to exit with
        'status'."""
        found, out, err = self.run_main(*args)
        self.assertEqual(found, status, err)
        return out

    def errors(self, *args: str) -> str:
        """Returns the errors of the command, which has to do nothing else."""
        status, out, err = self.run_main(*args)
        self.assertEqual((status, out), (2, ""))
        return err

    def record(self, name: str, steps: int = 6, seed: int = 1,
               change: Callable[[Any, int], None] = lambda s, i: None,
               rate: float = 60) -> Any:
        """Writes a recording of a fake switch, which is returned."""
        switch = fake.Switch(START, seed)
        writer = recording.Writer(name,
                                  recording.header(["ovs-vswitchd"], 1.0))
        for i in range(steps):
            change(switch, i)
            switch.run(1, rate)
            for reply in (*(switch.show(report, True)
                            for report in model.REPORTS),
                          switch.cost_limit(), switch.cost_threads()):
                writer.write({"target": "ovs-vswitchd", "reply": reply})
            writer.flush()
        writer.close()
        return switch


class TestDistribution(unittest.TestCase):
    def test_edges(self) -> None:
        """Edges are those of lib/cost-histogram.c, and of OTLP."""
        source = (HERE.parent / "lib/cost-histogram.c").read_text()
        fixed = [int(x, 16) for x in
                 re.findall(r"#define EDGE_\d UINT64_C\((0x\w+)\)", source)]
        self.assertEqual(len(fixed), 8)
        self.assertEqual(
            [fixed[sub] >> (33 - exp) for exp in range(-30, 6)
             for sub in range(8)] + [fixed[0] >> 27],
            list(distribution.EDGES))
        self.assertEqual(distribution.EDGES[240], 10 ** 9)

    def test_buckets(self) -> None:
        """A bucket's upper edge belongs to it."""
        for b in range(1, distribution.N_EDGES):
            edge = distribution.EDGES[b]
            if edge != distribution.EDGES[b - 1]:
                self.assertEqual(distribution.bucket_of(edge), b)
        self.assertEqual(distribution.bucket_of(0), 0)
        self.assertEqual(distribution.bucket_of(64 * 10 ** 9), 288)
        self.assertEqual(distribution.bucket_of(64 * 10 ** 9 + 1), OVERFLOW)
        for ns in (1, 999, 1000, 123456789):
            otlp_index = distribution.bucket_of(ns) - 241
            self.assertLess(2 ** (otlp_index / 8), ns / 1e9)
            self.assertLessEqual(ns / 1e9, 2 ** ((otlp_index + 1) / 8))

    def test_known(self) -> None:
        d = of(0, 1000, 1000, 2000, 70 * 10 ** 9)
        self.assertEqual(d.buckets, {
            0: 1, distribution.bucket_of(1000): 2,
            distribution.bucket_of(2000): 1, OVERFLOW: 1})
        self.assertEqual((d.count, d.sum, d.min, d.max),
                         (5, 70000004000, 0, 70 * 10 ** 9))
        self.assertEqual(d.percentile(20), 0)
        self.assertEqual(d.percentile(100), 70e9)
        # The geometric mean of (2**(-80/8), 2**(-79/8)] s is 1019.8 us.
        ms = of(*[10 ** 6] * 99, 10 ** 7)
        self.assertAlmostEqual(ms.percentile(50), 1e9 * 2 ** -9.9375,
                               places=6)
        self.assertEqual(of(10 ** 6, 10 ** 6).percentile(50), 1e6)

    def test_mean(self) -> None:
        """The mean is exact, also of huge numbers."""
        self.assertEqual(of(2, 4, 4, 4, 5, 5, 7, 9).mean, 5)
        self.assertEqual(of(10 ** 15, 10 ** 15 + 2).mean, 10 ** 15 + 1)

    def test_percentiles(self) -> None:
        """Percentiles are within 4.5% of what nearest rank says."""
        rng = random.Random(3)
        for n in (1, 2, 9, 10, 100, 1000):
            values = sorted(int(rng.lognormvariate(9, 2)) for _ in range(n))
            d = of(*values)
            for p in (0.1, 1, 50, 90, 99, 99.9, 100):
                exact = values[max(math.ceil(round(p * n / 100, 9)), 1) - 1]
                if exact > 100:
                    self.assertLess(abs(d.percentile(p) / exact - 1), 0.0451)
                self.assertTrue(values[0] <= d.percentile(p) <= values[-1])

    def test_numbers(self) -> None:
        """Small numbers have a bucket each; others are its upper edge."""
        d = of(*[32] * 6, *[4] * 3, 1, unit="packets")
        self.assertEqual([d.percentile(p) for p in (10, 11, 40, 41, 100)],
                         [1, 4, 4, 32, 32])
        for n in range(distribution.MAX_EXACT + 2):
            self.assertEqual(distribution.BOUNDS[n], n)
        self.assertEqual(of(15, 40, unit="packets").percentile(50), 16)

    def test_merge(self) -> None:
        """A merged distribution is that of all values, in any order."""
        rng = random.Random(5)
        parts = [[int(rng.lognormvariate(8, 2)) for _ in range(50)]
                 for _ in range(4)]
        whole = of(*[v for part in parts for v in part])
        merged = Distribution()
        for part in parts[::-1]:
            merged.merge(of(*part))
        self.assertEqual(merged.to_json(), whole.to_json())
        with self.assertRaises(distribution.Unmergeable):
            merged.merge(of(1, unit="packets"))

    def test_merge_bounds(self) -> None:
        """Histograms of numbers are those of as many nanoseconds."""
        a, b = of(1, 2, unit="bytes"), of(4, unit="bytes")
        a.merge(b)
        self.assertEqual(a.numbers(), ([0, 1, 2, 3, 4], [0, 1, 1, 0, 1, 0]))
        self.assertEqual(a.to_json()["histogram"],
                         of(1, 2, 4).to_json()["histogram"])

    def test_since(self) -> None:
        early, late = of(1000, 2000), of(1000, 2000, 3000, 1000)
        d = late.since(early)
        self.assertEqual((d.count, d.sum), (2, 4000))
        # The maximum is new, so it is exact; the minimum is in its bucket.
        self.assertEqual((d.max, d.max_exact, d.min_exact),
                         (3000, True, False))
        self.assertEqual(d.buckets, of(1000, 3000).buckets)
        self.assertLessEqual(d.min, 1000)
        with self.assertRaises(Negative):
            early.since(late)
        with self.assertRaises(Negative):
            of(5, 5, 5).since(of(9))

    def test_json(self) -> None:
        for d in (of(), of(0, 1, 5000, 65 * 10 ** 9), of(3, 3,
                                                         unit="packets")):
            copy = Distribution.from_json(json.loads(json.dumps(d.to_json())))
            self.assertEqual(copy.to_json(), d.to_json())
        bad = of(1000).to_json()
        for change in ({"count": -1}, {"count": 2}, {"sum": "1"},
                       {"histogram": dict(bad["histogram"], scale=4)},
                       {"histogram": dict(bad["histogram"], offset=9999)}):
            with self.assertRaises(ValueError):
                Distribution.from_json(dict(bad, **change))


class TestBetween(unittest.TestCase):
    """What happened between two replies; never a negative count."""

    def setUp(self) -> None:
        self.switch = fake.Switch(START)
        self.switch.run(2, 100)

    def reply(self, report: str = "upcall") -> Reply:
        return again(self.switch.show(report))

    def test_plain(self) -> None:
        early = self.reply()
        self.switch.run(1, 100)
        window = between(early, self.reply())
        self.assertEqual(window.totals[SUM].total.events, 100)
        self.assertEqual(window.accounts[NETDEV].total.events, 100)
        self.assertEqual(window.seconds, 1)
        self.assertEqual(window.notes, [])
        self.assertEqual(sum(b.events for b in window.totals[SUM].classes
                             .values()), 100)
        self.assertEqual(sum(b.events for b in window.accounts[NETDEV].threads
                             .values()), 100)

    def test_clear(self) -> None:
        """Of an account that was cleared, what there is since then counts,
        be it less than before or more."""
        for n in 70, 1000:
            early = self.reply()
            self.switch.clear("upcall")
            self.switch.run(1, n)
            window = between(early, self.reply())
            self.assertEqual(window.totals[SUM].total.events, n)
            self.assertEqual(window.accounts[NETDEV].total.events, n)
            self.assertTrue(window.notes)

    def test_restart(self) -> None:
        early = self.reply()
        other = fake.Switch(self.switch.now_us + 10, pid=4243)
        other.run(1, 30)
        window = between(early, again(other.show("upcall")))
        self.assertEqual(window.totals[SUM].total.events, 30)

    def test_made_again(self) -> None:
        """A port that was deleted and made again: the sum loses nothing."""
        key = Key("burst", "p0", "netdev@ovs-netdev")
        early = self.reply("tx")
        self.switch.run(1, 100)
        middle = self.switch.accounts["tx"][key].total.events
        self.switch.remake("tx", key)
        self.switch.run(1, 100)
        window = between(early, self.reply("tx"))
        self.assertGreater(middle, 0)
        self.assertEqual(window.accounts[key].total.events,
                         self.switch.accounts["tx"][key].total.events)
        self.assertEqual(window.totals[Key("burst", "", "")].total.events,
                         400)

    def test_made_again_while_others_are_omitted(self) -> None:
        """The sum has what accounts that are not listed have done, too."""
        key = Key("burst", "p0", "netdev@ovs-netdev")
        early = self.reply("tx")
        self.switch.remake("tx", key)
        self.switch.run(1, 100)
        late = self.reply("tx")
        whole = between(early, late).totals[Key("burst", "", "")].total.events
        for reply in early, late:
            reply.totals[Key("burst", "", "")].since_us = START
            reply.omitted = len(reply.accounts) - 1
            reply.accounts = {key: reply.accounts[key]}
        window = between(early, late)
        self.assertEqual(window.totals[Key("burst", "", "")].total.events,
                         whole)
        self.assertGreater(whole, window.accounts[key].total.events)

    def test_omitted(self) -> None:
        """An account that was not among those listed is not new."""
        late = self.reply()
        early = self.reply()
        early.now_us -= 1
        early.omitted = 1
        for account in late.accounts.values():
            account.since_us = START - 1
        early.accounts = {}
        self.assertEqual(between(early, late).accounts, {})

    def test_unlisted_cleared(self) -> None:
        """That an account was cleared that is not listed shows in the sum."""
        key = Key("burst", "", "")
        early, late = self.reply("tx"), self.reply("tx")
        early.totals[key].since_us = START
        late.totals[key].since_us = START + 1
        for reply in early, late:
            reply.accounts = {}
        window = between(early, late)
        self.assertEqual(window.totals[key].total.events, 0)
        self.assertEqual(window.notes,
                         ["an account that is not listed was cleared"])

    def test_thread_ends(self) -> None:
        """What a thread has done is counted once, also when it has ended."""
        early = self.reply()
        self.switch.run(1, 100)
        threads = self.switch.accounts["upcall"][NETDEV].threads
        gone = threads.pop("pmd-c02")
        before = early.accounts[NETDEV].threads["pmd-c02"].events
        threads["exited"] = gone
        window = between(early, self.reply())
        now = window.accounts[NETDEV].threads
        self.assertEqual(now["exited"].events, gone.events - before)
        self.assertEqual(sum(b.events for b in now.values()), 100)

    def test_anything(self) -> None:
        """Whatever happens, no count is negative, and nothing is made up."""
        rng = random.Random(11)
        switch = self.switch
        replies = [self.reply("tx")]
        happened = 0
        for i in range(30):
            what = rng.randrange(4)
            if what == 0:
                switch.clear("tx")
            elif what == 1:
                key = rng.choice(list(switch.accounts["tx"]))
                switch.remake("tx", key)
            elif what == 2:
                switch = fake.Switch(switch.now_us + 1, i, 5000 + i)
            switch.run(0.1, 100)
            happened += 20
            replies.append(again(switch.show("tx")))
        counted = 0
        for early, late in zip(replies, replies[1:]):
            window = between(early, late)
            for account in (list(window.accounts.values())
                            + list(window.totals.values())):
                for body in [account.total, *account.classes.values(),
                             *account.threads.values()]:
                    self.assertGreaterEqual(body.events, 0)
                    for stage in body.stages.values():
                        self.assertGreaterEqual(stage.count, 0)
                        self.assertTrue(all(
                            n > 0 for n in (stage.buckets or {}).values()))
            counted += sum(t.total.events for t in window.totals.values())
        self.assertEqual(counted, happened)


class TestRecording(InTemporary):
    def test_cut(self) -> None:
        """A file that was cut off anywhere is readable up to there."""
        for name in ("r.jsonl", "r.jsonl.gz"):
            self.record(name, 3)
            data = Path(name).read_bytes()
            whole = load(name)
            source, = whole.sources()
            self.assertEqual(len(whole.replies[source, "upcall"]), 3)
            seen = set()
            for part in range(1, 20):
                cut = "cut" + name[1:]
                Path(cut).write_bytes(data[:len(data) * part // 20])
                try:
                    got = load(cut)
                except recording.BadRecording:
                    self.assertLess(part, 3)    # Not even a header.
                    continue
                seen.add(sum(len(r) for r in got.replies.values()))
            self.assertGreater(len(seen), 2)
            self.assertLess(max(seen), 15)

    def test_torn_gzip(self) -> None:
        """Compressed lines are readable without the file's end."""
        writer = recording.Writer("x.gz", recording.header([], 1.0))
        writer.write({"target": "t", "error": "e", "time_us": 1})
        writer.flush()
        self.assertEqual([line.error for line in load("x.gz").errors], ["e"])
        writer.close()

    def test_bad(self) -> None:
        """Files that are no recordings are named, with the reason."""
        newer = dict(fake.Switch(START).head("tx", "cost-show"), version=3)
        for content, reason in (
                (b"", "empty"), (b"hello\nworld\n", "no recording"),
                (b"\x00\xff\x00", "no recording"), (b"[]\n", "no reply"),
                (b'{"ovs_cost_recording": 99}\n', "newer"),
                (json.dumps(newer).encode(), "newer"),
                # A daemon may have been upgraded meanwhile.
                (b'{"ovs_cost_recording": 1}\n'
                 + json.dumps({"reply": newer}).encode(), "newer"),
                (b'{"ovs_cost_recording": 1}\nnonsense\n{}\n', "not JSON"),
                (b'{"ovs_cost_recording": 1}\n{"reply": {"version": 2, '
                 b'"report": "tx", "command": "cost-show", "now_us": 1}}\n',
                 "not understood")):
            Path("bad").write_bytes(content)
            with self.subTest(content):
                self.assertRegex(self.errors("show", "bad"),
                                 f"^ovs-cost: bad:.*{reason}")
        self.assertIn("absent: No such file", self.errors("show", "absent"))

    def test_threads_of_one_name(self) -> None:
        """Threads of two datapaths may have one name: they add up."""
        switch = fake.Switch(START)
        switch.run(2, 50)
        reply = switch.show("upcall")
        threads = reply["accounts"][0]["threads"]
        expected = {t["name"]: 2 * t["events"] for t in threads}
        threads += json.loads(json.dumps(threads))
        account, = model.Reply.from_json(reply).accounts.values()
        self.assertEqual({name: body.events for name, body
                          in account.threads.items()}, expected)

    def test_bare(self) -> None:
        """A reply alone will do, on a line or on several."""
        switch = fake.Switch(START)
        switch.run(1, 50)
        for indent in (None, 2):
            Path("reply").write_text(json.dumps(switch.show("upcall"),
                                                indent=indent))
            self.assertIn("netdev@ovs-netdev: 50 upcalls in 1.0 s",
                          self.output("show", "reply"))

    def test_mixed(self) -> None:
        """Recordings of several switches, with clocks that differ by hours,
        stay apart, and so do what was merged and single replies."""
        self.record("a.jsonl", 3)
        head, *lines = Path("a.jsonl").read_text().splitlines(True)
        other = dict(json.loads(head), host="other")
        Path("b.jsonl").write_text(
            json.dumps(other) + "\n" + "".join(
                re.sub(r'"(now_us|start_us|since_us)":(\d+)',
                       lambda m: f'"{m[1]}":{int(m[2]) - 7200 * 10 ** 6}',
                       line) for line in lines))
        self.output("merge", "-o", "sum.jsonl", "a.jsonl", "b.jsonl")
        switch = fake.Switch(START)
        switch.run(1, 50)
        Path("reply").write_text(json.dumps(switch.show("upcall")))
        paths = "sum.jsonl", "b.jsonl", "reply", "a.jsonl"
        got = load(*paths)
        events = {}
        for source in got.sources():
            total = model.add_up(got.windows(source, "upcall"))
            assert total
            events[source] = total.totals[SUM].total.events
        host = json.loads(head)["host"]
        self.assertEqual(events, {
            "": 50, f"{host}/ovs-vswitchd": 120, "other/ovs-vswitchd": 120,
            "sum.jsonl": 240})
        self.assertIn("<h1>other/ovs-vswitchd</h1>",
                      self.output("report", *paths))

    def test_long(self) -> None:
        """Of a long recording, replies are left out, but no event is: neither
        before it was cleared, nor before the switch was restarted."""
        def change(switch: Any, i: int) -> None:
            if i in (13, 31):
                switch.clear("upcall")
            elif i == 24:
                switch.pid, switch.start_us = 77, switch.now_us + 1
                switch.now_us += 2
                switch.accounts.pop("upcall")

        self.record("r.jsonl", 60, change=change)
        whole = load("r.jsonl")
        with mock.patch.object(recording.Recording, "MAX_REPLIES", 8):
            short = load("r.jsonl")
        source, = whole.sources()
        self.assertEqual(len(whole.replies[source, "upcall"]), 60)
        self.assertLess(len(short.replies[source, "upcall"]), 20)
        totals = []
        for got in whole, short:
            total = model.add_up(got.windows(source, "upcall"))
            assert total
            body = total.totals[SUM].total
            totals.append((body.events, body.stages["total"].sum,
                           body.stages["total"].buckets,
                           total.start_us, total.end_us))
        self.assertEqual(totals[0], totals[1])
        self.assertEqual(totals[0][0], 59 * 60)
        # Whatever the order of files is.
        head, *lines = Path("r.jsonl").read_text().splitlines(True)
        for name, part in (("one", lines[:200]), ("two", lines[200:])):
            Path(name).write_text(head + "".join(part))
        with mock.patch.object(recording.Recording, "MAX_REPLIES", 8):
            both = load("two", "one")
        total = model.add_up(both.windows(source, "upcall"))
        assert total
        self.assertEqual(total.totals[SUM].total.events, 59 * 60)

    def test_rotate(self) -> None:
        """Rotated files have a header each; the oldest ones go away."""
        files = "r.jsonl.2", "r.jsonl.1", "r.jsonl"
        writer = recording.Writer(files[2], recording.header([], 1), 2000, 2)
        for i in range(100):
            writer.write({"target": "t", "error": f"{i:0100}"})
            writer.flush()
        writer.close()
        self.assertEqual(sorted(os.listdir()), sorted(files))
        times = []
        for name in files:
            head, lines = recording.read(name, silent)
            self.assertEqual(head["ovs_cost_recording"], 1)
            times += [int(line.error) for line in lines]
        self.assertEqual(times, list(range(times[0], 100)))


class TestShow(InTemporary):
    def test_numbers(self) -> None:
        for ns, shown in ((0, "0.00"), (4, "0.00"), (5, "0.01"),
                          (1234, "1.23"), (9999994, "9,999.99"),
                          (9999996, "10,000.0"), (99999960, "100,000"),
                          (999999499, "999,999"), (999999500, "1.00 s"),
                          (10 ** 10, "10.00 s")):
            self.assertEqual(text.us(ns), shown)

    def test_bars(self) -> None:
        """Bars of a distribution."""
        d = of(*[1000] * 3, 2000, 0)
        edges = [f"{distribution.EDGES[b] / 1000:.2f}" for b in range(289)]
        b1, b2 = (distribution.bucket_of(x) for x in (1000, 2000))
        self.assertEqual(b2 - b1, 8)
        lines = text.bars("upcall", "total", d)
        self.assertEqual(lines[0], "  total (us), each # is 1 upcall")
        self.assertEqual(lines[1].split(), ["<=", "0.00", "1", "#"])
        # From bucket 0 on there are more than 24 lines: 8 buckets each.
        found = [line.split() for line in lines[1:] if "#" in line]
        self.assertEqual([f[2] for f in found], ["1", "3", "1"])
        self.assertTrue(all(f[1] in edges for f in found))
        many = text.bars("burst", "packets", of(*[32] * 100, 1,
                                                unit="packets"))
        self.assertEqual(many[0], "  packets, each # is 2.5 bursts")
        self.assertIn("#" * 40, many[-1])

    def test_slowest(self) -> None:
        """The slowest events, with causes, come from a recording."""
        self.record("r", 2)
        self.assertIn(", class miss, starved, dp_port 3, port_name <v1>&, ",
                      self.output("show", "--slowest", "r"))
        self.assertIn("starved, dp_port 3, port_name &lt;v1&gt;&amp;",
                      self.output("report", "r"))

    def test_hostile_names(self) -> None:
        """No name reaches a terminal, a page or a picture as it is."""
        evil = "a\x1b[2J\"'<script>alert(1)</script>\n\u202e\u00e9"
        evil += "x" * (255 - len(evil.encode()))
        switch = fake.Switch(START)
        switch.account("tx", "burst", evil, "netdev@ovs-netdev")
        for _ in range(3):
            switch.event(switch.accounts["tx"][Key(
                "burst", evil, "netdev@ovs-netdev")], evil, evil, fake.BURST,
                "total", {"packets": 1}, [])
        Path("evil.json").write_text(json.dumps(switch.show("tx")))
        for command in (["show", "--hist"], ["report"],
                        ["report", "--format", "svg", "--title", evil],
                        ["report", "--format", "text"],
                        ["report", "--format", "csv"], ["diff", "evil.json"],
                        ["merge", "--all", "-o", "merged"],
                        ["convert", "--to", "otlp-json"]):
            status, out, err = self.run_main(*command, "evil.json")
            self.assertEqual((status, err), (0, ""), command)
            self.assertNotIn("\x1b", out)
            self.assertNotIn("\u202e", out)
            if command[0] == "show" or "text" in command:
                self.assertIn("<script>alert(1)</script>\\n\\u202e\u00e9x",
                              out)
            elif command == ["report"] or "svg" in command:
                self.assertNotIn("<script", out)
                self.assertIn("&lt;script&gt;alert(1)", out)
            elif command[0] == "convert":
                self.assertIn(evil, [
                    a["value"]["stringValue"]
                    for r in json.loads(out)["resourceMetrics"]
                    for s in r["scopeMetrics"] for m in s["metrics"]
                    for p in m.get("exponentialHistogram", {}).get(
                        "dataPoints", ()) for a in p["attributes"]
                    if "stringValue" in a["value"]])
        reply, = load("merged").replies["merged", "tx"]
        self.assertIn(evil, [key.name for key in reply.accounts])

    def test_hostile_terminal(self) -> None:
        """Names that a terminal's encoding does not have are shown."""
        with mock.patch("sys.stdout", io.TextIOWrapper(
                io.BytesIO(), encoding="latin-1")) as out:
            switch = fake.Switch(START)
            name = "\u4e2d\u00e9"
            switch.event(switch.account("tx", "burst", name), "c", "t",
                         fake.BURST, "total", {"packets": 1}, [])
            Path("utf-8.json").write_text(json.dumps(switch.show("tx")))
            self.assertEqual(main.main(["show", "utf-8.json"]), 0)
            out.flush()
            self.assertIn(b"\\u4e2d\xe9: 1 burst", out.buffer.getvalue())


class TestReport(InTemporary):
    def test_page(self) -> None:
        """The page is whole, and asks nobody for anything."""
        self.record("r.jsonl", 8)
        out = self.output("report", "r.jsonl")
        for title in ("upcalls (userspace)", "bursts", "main loop",
                      "Netlink calls", "revalidator rounds", "Flow limit",
                      "Percentile curves", "Time by latency", "By thread",
                      "By class", "By port", "The slowest"):
            self.assertIn(title, out)
        self.assertNotRegex(out, r"<script|https?://|\bsrc=|url\(|@import")
        for drawing in re.findall(r"<svg.*?</svg>", out, re.S):
            for number in re.findall(r'="([-.\d]+|nan|inf)"', drawing):
                self.assertTrue(math.isfinite(float(number)))
            xml.etree.ElementTree.fromstring(drawing)
        stack: List[str] = []

        class Parser(html.parser.HTMLParser):
            def handle_starttag(self, tag: str, _attrs: Any) -> None:
                if tag not in ("meta", "link"):
                    stack.append(tag)

            def handle_startendtag(self, _tag: str, _attrs: Any) -> None:
                pass

            def handle_endtag(self, tag: str) -> None:
                assert stack.pop() == tag, tag

        Parser().feed(out)
        self.assertEqual(stack, [])

    def test_summary(self) -> None:
        """What is wrong is on top, with a link if a section shows it; whole
        numbers are shown as such; no chart has more than five curves, or one
        bar."""
        def lose(switch: Any, _: int) -> None:
            account = switch.account("tx", "burst", "p0", "netdev@ovs-netdev")
            account.total.counters.setdefault("packets dropped", {})[
                "no-room"] = switch.now_us // 100

        self.record("r.jsonl", change=lose)
        out = self.output("report", "r.jsonl")
        title = re.search(r"<h1>(.*?)</h1>", out)
        assert title
        self.assertRegex(title[1], r"^\S+/ovs-vswitchd, 2026-11-21 21:45 UTC, "
                         "5 s$")
        links = re.findall(r'<p><a href="#([^"]*)">(.*?)</a>', out)
        self.assertIn("has dropped", "".join(line for _, line in links))
        self.assertIn("is starved: ", "".join(
            re.findall(r"<p><b>(.*?)</b>", out)))
        for anchor, _ in links:
            self.assertIn(f'id="{anchor}"', out)
        self.assertRegex(out, "<tr><td>threads</td><td>10</td>"
                         "(<td>2</td>){5}<td>(&le; )?2</td>")
        self.assertRegex(out, r"<tr><td>limit</td><td>10</td><td>[\d,.]+</td>"
                         r"<td>~[\d,]+</td>")
        for svg in re.findall('aria-label="Percentiles".*?</svg>', out):
            self.assertLessEqual(svg.count("<polyline"), 5)
        for svg in re.findall(r'viewBox="0 0 350 150".*?</svg>', out):
            self.assertGreater(svg.count("<rect"), 1)
        self.assertIn("Time of each stage, ms per s (~ from a sample)", out)
        self.assertIn("<h1>a&lt;b</h1>",
                      self.output("report", "--title", "a<b", "r.jsonl"))

    def test_browser(self) -> None:
        """A browser draws the page, and refuses nothing in it."""
        chromium = shutil.which("chromium")
        if not chromium:
            self.skipTest("there is no chromium")
        self.record("r.jsonl")
        self.output("report", "r.jsonl", "-o", "page.html")
        for width in 400, 1400:
            png = f"{width}.png"
            done = subprocess.run(
                [chromium, "--headless", "--no-sandbox", "--disable-gpu",
                 "--enable-logging=stderr", f"--screenshot={png}",
                 f"--user-data-dir={os.path.abspath('profile')}",
                 f"--window-size={width},1000",
                 f"file://{os.path.abspath('page.html')}"], check=True,
                timeout=120, stderr=subprocess.PIPE, text=True)
            self.assertNotIn("CONSOLE", done.stderr)
            data = Path(png).read_bytes()
            self.assertEqual(struct.unpack(">II", data[16:24]), (width, 1000))
            # What is blank is a few hundred bytes long.
            self.assertGreater(len(data), 20000)

    def test_scaled(self) -> None:
        """The stages of a sample add up to the time of all events."""
        self.record("r.jsonl", 2, rate=400)
        got = load("r.jsonl")
        source, = got.sources()
        windows = got.windows(source, "upcall")
        columns = charts.Columns(windows, SUM)
        body = windows[0].totals[SUM].total
        self.assertLess(body.stages["parse"].count, body.events)
        self.assertAlmostEqual(
            sum(columns._spent(name)[0] for name, _ in body.parts()),
            body.stages["total"].sum / 1e6)

    def test_svg(self) -> None:
        """The picture is whole, has a card for each chart and legible names,
        and needs nothing else."""
        switch = self.record("r.jsonl", 4)
        self.assertTrue(switch.moves)
        out = self.output("report", "-r", "upcall,revalidator", "--format",
                          "svg", "--title", "<T> & T", "r.jsonl")
        root = xml.etree.ElementTree.fromstring(out)
        name = "{http://www.w3.org/2000/svg}"
        texts = [t.text for t in root.iter(name + "text")]
        self.assertEqual(texts[0], "<T> & T")
        self.assertEqual([t for t in texts if t in (
            "upcalls (userspace)", "bursts", "revalidator rounds")],
            ["upcalls (userspace)", "revalidator rounds"])
        self.assertEqual(texts.count("Percentile curves"), 2)
        self.assertEqual(texts.count("Flow limit"), 1)
        cards = [r for r in root.iter(name + "rect")
                 if r.get("class") == "card"]
        self.assertEqual(len(cards), 11)
        width, height = (float(root.get(x, "")) for x in ("width", "height"))
        for card in cards:
            x, y, w, h = (float(card.get(a, "")) for a in
                          ("x", "y", "width", "height"))
            self.assertTrue(0 < x and x + w < width and 0 < y
                            and y + h < height)
        self.assertNotRegex(out.replace("http://www.w3.org/2000/svg", ""),
                            r"var\(|<script|https?://|href|url\(|@import")

    def test_no_cairosvg(self) -> None:
        """What is missing for a PNG, and how to get it, is said."""
        self.record("r.jsonl", 2)
        with mock.patch.dict(sys.modules, {"cairosvg": None}):
            self.assertIn("python3-cairosvg", self.errors(
                "report", "--format", "png", "-o", "p", "r.jsonl"))
        self.assertFalse(os.path.exists("p"))

    def test_too_large(self) -> None:
        """What is too large for a PNG is told before it is made."""
        with mock.patch.dict(sys.modules, {"cairosvg": mock.Mock()}), \
             self.assertRaisesRegex(ValueError, "too many charts"):
            picture.png_of('<svg width="9" height="40000">')

    def test_csv(self) -> None:
        self.record("r.jsonl", 3)
        rows = [line.split(",") for line in self.output(
            "report", "--format", "csv", "r.jsonl").splitlines()]
        self.assertEqual({len(r) for r in rows}, {19})
        totals = [r for r in rows if r[3] == "upcall" and r[7] == "total"]
        self.assertEqual([r[6] for r in totals], ["60", "60"])

    def test_empty(self) -> None:
        """There may be nothing at all."""
        Path("e").write_text(json.dumps(fake.Switch(START).show("tx")))
        self.assertIn("Nothing happened", page.page(load("e"), "", ["tx"]))


class TestPng(InTemporary):
    def test_png(self) -> None:
        """It is a PNG, as large as the SVG, and not empty."""
        self.record("r.jsonl", 3)
        for kind in "png", "svg":
            self.output("report", "-r", "upcall", "--format", kind, "-o",
                        kind, "r.jsonl")
        data = Path("png").read_bytes()
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        root = xml.etree.ElementTree.parse("svg").getroot()
        self.assertEqual(struct.unpack(">II", data[16:24]),
                         (int(root.get("width", "")),
                          int(root.get("height", ""))))
        self.assertGreater(len(data), 20000)


class TestMerge(InTemporary):
    def test_exact(self) -> None:
        """The sum of three is what one that had counted all would have."""
        whole = Distribution()
        paths = "0.jsonl", "1.jsonl", "2.jsonl"
        for seed, path in enumerate(paths, 1):
            switch = self.record(path, 3, seed)
            whole.merge(switch.accounts["upcall"][NETDEV].total
                        .stages["total"])
        self.output("merge", "--all", "-o", "sum", *paths)
        reply = load("sum").replies["sum", "upcall"][0]
        self.assertEqual(reply.accounts[NETDEV].total.stages["total"]
                         .to_json(), whole.to_json())
        self.assertEqual(reply.accounts[NETDEV].total.events, 540)
        self.assertEqual(reply.totals[SUM].total.events, 540)
        # Merging is associative.
        self.output("merge", "--all", "-o", "first", *paths[:2])
        self.output("merge", "--all", "-o", "again", "first", paths[2])
        other = load("again").replies["again", "upcall"][0]
        self.assertEqual(other.to_json()["accounts"],
                         reply.to_json()["accounts"])

    def test_recorded_only(self) -> None:
        self.record("r.jsonl", 4)
        self.output("merge", "-o", "sum", "r.jsonl")
        reply = load("sum").replies["sum", "upcall"][0]
        self.assertEqual(reply.totals[SUM].total.events, 180)

    def test_otlp(self) -> None:
        """OTLP has the same counts, and the buckets where they are."""
        switch = self.record("r.jsonl", 2)
        out = self.output("convert", "--to", "otlp-json", "r.jsonl")
        points = [p for r in json.loads(out)["resourceMetrics"]
                  for s in r["scopeMetrics"] for m in s["metrics"]
                  if m["name"] == "ovs.cost.upcall.duration"
                  for p in m["exponentialHistogram"]["dataPoints"]]
        total = [p for p in points if {"key": "stage", "value": {
            "stringValue": "total"}} in p["attributes"]]
        self.assertEqual(sum(int(p["count"]) for p in total), 120)
        for point in points:
            self.assertEqual(
                int(point["count"]), int(point["zeroCount"]) + sum(
                    int(n) for n in point["positive"]["bucketCounts"]))
        whole = switch.accounts["upcall"][NETDEV].total.stages["total"]
        self.assertAlmostEqual(sum(p["sum"] for p in total) * 1e9, whole.sum,
                               delta=1)
        over = Distribution()
        over.add(65 * 10 ** 9)
        point = {}
        otlp._Metrics._time(point, over)
        self.assertEqual(point["positive"],
                         {"offset": 48, "bucketCounts": ["1"]})


class TestDiff(InTemporary):
    def test_same(self) -> None:
        self.record("a.jsonl", 12)
        out = self.output(
            "diff", "a.jsonl", "a.jsonl",
            "--fail-if", "mean:total:+1%", "--fail-if", "p99:burst/send:+1%")
        for line in out.splitlines():
            self.assertRegex(line, "^[AB]: pmd-c01|^Fewer |: no change$|^$")
        self.assertRegex(self.output("diff", "-a", "a.jsonl", "a.jsonl"),
                         r"total +mean .*no change")

    def test_slower(self) -> None:
        def slow(switch: Any, _i: int) -> None:
            switch.slow = 2.0

        self.record("a", 14, rate=200)
        self.record("b", 14, 2, slow, rate=200)
        for old, new, limit, status in (
                ("a", "b", "p50:upcall/total:+50%", 1),
                ("a", "b", "p50:upcall/total:-5%", 0),
                ("b", "a", "p50:upcall/total:-20%", 1),
                ("a", "b", "rate:upcall/events:+1%", 0)):
            out = self.output("diff", old, new, "--fail-if", limit,
                              status=status)
            self.assertEqual(f"FAILED {limit}" in out, bool(status))

    def test_order(self) -> None:
        """What matters most is first, with what explains it."""
        def change(switch: Any, i: int) -> None:
            if i:
                account = switch.account("upcall", "upcall",
                                         "netdev@ovs-netdev",
                                         "netdev@ovs-netdev").total
                account.counters["flows"]["flow-limit"] += 100 + 7 * i
                account.stages["install"].sum += 10 ** 9
                account.stages["total"].sum += 10 ** 9

        def well(switch: Any, i: int) -> None:
            switch.well = True
            change(switch, i)
        self.record("a", 14, rate=100)
        self.record("b", 14, change=change, rate=100)
        self.record("c", 14, change=well, rate=100)
        out = self.output("diff", "a", "b")
        starved = "pmd-c01/id:<9> is starved: "
        for name in "A", "B":
            self.assertIn(f"{name}: {starved}", out)
        self.assertIn("\nB: netdev@ovs-netdev: the flow limit, ", out)
        advice = ("Fewer events are not an improvement where threads had no "
                  "CPU.")
        self.assertIn(f"\n{advice}\n", out)
        sections = out.split("\n\n")
        self.assertRegex(sections[1], (
            r"^upcalls \(userspace\): A 1,300 in 13.0 s, B 1,300 in 13.0 s\n"
            r" +stage .*\n  flow-limit +1/s +0.00 +1\d\d.* new .*\n"
            r"  (total|install) +mean .*\n  (install|total) +mean .*"))
        self.assertEqual(sections[1].count("\n"), 4)
        for section in sections[2:]:
            self.assertRegex(section, "^.*: no change\\s*$")
        self.assertNotRegex(self.output("diff", "c", "c"), "starved|Fewer")

    def test_one_bucket(self) -> None:
        """A percentile that is one bucket higher may be so by nothing."""
        def side(ns: int) -> compare.Side:
            result = compare.Side("command")
            windows = []
            for i in range(10):
                window = model.Window("bridge", START + i * 10 ** 6,
                                      START + (i + 1) * 10 ** 6)
                account = model.Account(Key("command", "", ""))
                account.total.events = 10
                account.total.stages["total"] = of(*[ns] * 10, 10 ** 9)
                window.totals[account.key] = account
                windows.append(window)
            result.add_source(windows, Key("command", "", ""))
            return result

        edge = distribution.EDGES[200]
        rows = {r.metric: r for r in compare.compare(side(edge),
                                                     side(edge + 1))}
        self.assertEqual(rows["p50"].verdict, "no change")
        rows = {r.metric: r for r in compare.compare(
            side(edge), side(int(edge * 1.2)))}
        self.assertEqual(rows["p50"].verdict, "")

    def test_limits(self) -> None:
        for spec in ("mean", "mean:total", "mean:total:5%", "p98:total:+5%",
                     "mean:total:+5"):
            with self.assertRaises(ValueError):
                compare.Limit(spec)
        self.record("a", 3)
        err = self.errors("diff", "a", "a", "--fail-if", "mean:nonsense:+5%")
        self.assertIn("nothing of that name in both recordings, which have ",
                      err)
        self.assertIn(" flow-limit, ", err)

    def test_coverage(self) -> None:
        """The 95% interval of a mean's change has the true change in 95% of
        experiments, or nearly so."""
        rng = random.Random(17)
        inside = n = 0
        for _ in range(200):
            sides = []
            for _ in range(2):
                side = compare.Side("command")
                for _ in range(12):
                    block = compare.Block("command")
                    block.seconds = 1
                    level = rng.lognormvariate(10, 0.2)
                    d = of(*[int(rng.lognormvariate(0, 0.5) * level)
                             for _ in range(10)])
                    block.body.events = 10
                    block.body.stages["total"] = d
                    side.blocks.append(block)
                    side.total.merge(block.body)
                side.n_sources, side.seconds = 1, 12
                sides.append(side)
            numbers = [compare._Numbers(s, "total") for s in sides]
            draws = []
            for _ in range(200):
                means = [x.metrics(compare._weights(rng, 12))["mean"]
                         for x in numbers]
                draws.append(means[1] / means[0] - 1)
            means = [s.total.stages["total"].mean for s in sides]
            low, high = compare.interval(draws, means[1] / means[0] - 1, 12)
            inside += low <= 0 <= high
            n += 1
        self.assertGreaterEqual(inside / n, 0.92)
        self.assertLessEqual(inside / n, 0.99)


class TestTarget(InTemporary):
    def setUp(self) -> None:
        super().setUp()
        self.switch = fake.Switch(START)
        self.switch.run(1, 50)
        self.server = self.serve(self.switch)

    def test_first_request(self) -> None:
        """The format is set before anything else."""
        target = Target(self.sock)
        reply = target.command("upcall/cost-show", "-hist")
        self.assertEqual(Reply.from_json(reply).pid, 4242)
        self.assertEqual(self.server.commands,
                         [["set-options", "--format", "json"],
                          ["upcall/cost-show", "-hist"]])
        with self.assertRaises(CommandError):
            target.command("nonsense")
        with self.assertRaisesRegex(CommandError, "has no accounting"):
            target.command("cost/nonsense")
        target.close()

    def test_trouble(self) -> None:
        with self.assertRaisesRegex(TargetError, "No such file"):
            Target(f"{self.sock}.absent").command("x")
        with self.assertRaisesRegex(TargetError, "is it running"):
            Target("no-such-daemon").command("x")
        Path("d.pid").write_text("x\n")
        with mock.patch("ovs.cost.target.RUNDIR", os.getcwd()), (
                self.assertRaisesRegex(TargetError, "it has no number")):
            Target("d").command("x")
        Path("d.pid").write_text("99999999\n")
        with mock.patch("ovs.cost.target.RUNDIR", os.getcwd()), (
                self.assertRaisesRegex(TargetError, "d.pid is stale")):
            Target("d").command("x")
        with mock.patch.object(Target, "_transact", side_effect=CommandError(
                "unknown method")), self.assertRaisesRegex(
                    TargetError, "this is the socket of a database"):
            Target(self.sock).command("x")
        self.server.hang = True
        with self.assertRaisesRegex(TargetError, "no reply|closed"):
            Target(self.sock, 0.2).command("upcall/cost-show")

    def test_interrupted(self) -> None:
        """Somebody does not want to wait."""
        with mock.patch("time.sleep", side_effect=KeyboardInterrupt):
            self.assertEqual(self.run_main("doctor", "-t", self.sock),
                             (130, "", ""))

    def test_permission(self) -> None:
        """Who may use the socket is said to those who may not."""
        os.chmod(".", 0o755)
        os.chmod(self.sock, 0)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                if not os.geteuid():
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                Target(self.sock).command("x")
            except TargetError as e:
                os.write(write, str(e).encode())
            finally:
                os._exit(0)
        os.close(write)
        with open(read) as f:
            message = f.read()
        os.waitpid(child, 0)
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.assertIn(f"{self.sock}: Permission denied (it is for user {user} "
                      "and group ", message)

    def test_record(self) -> None:
        status, _, err = self.run_main(
            "record", "-t", self.sock, "-t", "/absent", "-i", "0.01", "-d",
            "0.1", "-o", "r.gz")
        self.assertEqual(status, 0)
        self.assertIn("absent", err)
        self.assertEqual(err.count("\n"), 1)
        got = load("r.gz")
        self.assertEqual(len(got.sources()), 1)
        self.assertEqual(set(got.reports()), set(model.REPORTS))
        self.assertIn((got.sources()[0], "upcall"), got.slowest)
        self.assertTrue(got.limits)
        self.assertTrue(got.threads)
        self.assertEqual(len(got.errors), 1)
        self.assertEqual({c[0] for c in self.server.commands},
                         {"set-options", "cost/show"})
        self.assertIn("exists already", self.errors(
            "record", "-t", self.sock, "-o", "r.gz"))

    def test_arguments(self) -> None:
        for args, words in (
                (["-i", "none"], '"none" is not a positive number'),
                (["-i", "inf"], '"inf" is not a positive number'),
                (["-T", "-1"], '"-1" is not a positive number'),
                (["--accounts", "1.5"], '"1.5" is no whole number')):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                with self.assertRaises(SystemExit):
                    main.main(["record", *args])
            self.assertIn(words, err.getvalue())
        Path("b").write_bytes(bytes(range(128, 256)))
        self.assertEqual(self.run_main("show", "b"),
                         (2, "", "ovs-cost: b: no recording\n"))

    def test_nothing(self) -> None:
        err = self.errors("record", "-t", "/absent", "-d", "0.01", "-o", "r")
        self.assertRegex(err, r"^.*absent: No such file.*\n$")
        self.assertFalse(os.path.exists("r"))

    def test_full_disk(self) -> None:
        """A disk that is full is an error, and what was written before is
        readable."""
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500000, limit[1]))
        try:
            status, _, err = self.run_main("record", "-t", self.sock,
                                           "-i", "0.01", "-o", "r")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        self.assertEqual((status, err), (2, "ovs-cost: r: File too large\n"))
        self.assertEqual(os.path.getsize("r"), 500000)
        notes: List[str] = []
        got = recording.load(["r"], notes.append)
        self.assertEqual(notes,
                         ["r: the last line was cut off, and is left out"])
        self.assertGreater(len(got.replies[got.sources()[0], "upcall"]), 1)

    def test_busy(self) -> None:
        """A target that has too many requests is asked again, all at once."""
        target = Target(self.sock)
        poller = record.Poller(target, ["tx", "upcall"], 20)
        commands: List[str] = []
        busy = "8 commands such as this one are in progress, try again"
        together = target.command

        def command(name: str, *args: str) -> Any:
            commands.append(name)
            if len(commands) == 1:
                raise CommandError(busy)
            return together(name, *args)

        target.command = command                # type: ignore
        line, = poller.round(False)
        self.assertEqual(line["error"], busy)
        self.assertEqual(len(poller.round(False)), 3)
        self.assertEqual(commands, ["cost/show"] * 2)
        target.close()


def flying(thread: str, begin: int, ns: int, event: str = "upcall",
           excluded: int = 0, **stages: int) -> flight.Event:
    """Returns an event that begins 'begin' ns after START."""
    begin += START * 1000
    return flight.Event(thread, begin, begin + ns, {
        "event": event, "account": "dp", "class": "miss", "begin_ns": begin,
        "end_ns": begin + ns, "excluded_ns": excluded, "stages": stages,
        "apart": {}, "numbers": {}})


class TestFlight(InTemporary):
    """The main thread waits for a PMD thread, whose upcall takes long, while
    other threads do something else, or the same at another time."""

    EVENTS = [
        flying("main", 1000000, 250000000, "iteration", 4000,
               datapath=249000000, idl=996000),
        flying("main", 2000000, 4000, "call", send=4000),
        flying("pmd-c01", 1500000, 248000000, translate=240000000,
               install=8000000),
        flying("pmd-c01", 0, 900000, translate=900000),
        flying("handler1", 5000000, 90000000, translate=90000000),
        flying("handler1", 900000, 200000, translate=200000),
        flying("revalidator2", 251000001, 400000000, "round", dump=400000000),
    ]

    def reply(self, recording_: bool = True) -> Dict[str, Any]:
        threads = sorted({e.thread for e in self.EVENTS})
        now = [{"thread": thread, "events": [
            e.json for e in self.EVENTS if e.thread == thread]}
            for thread in threads]
        return {"pid": 42, "recording": recording_, "threads": now}

    def test_events(self) -> None:
        found = flight.events(self.reply())
        self.assertEqual(sorted(found, key=lambda e: e.begin),
                         sorted(self.EVENTS, key=lambda e: e.begin))

    def test_trace(self) -> None:
        """Who stalled whom follows from the file alone."""
        trace = json.loads(json.dumps(flight.trace(self.EVENTS, 42)))
        names = {(e["pid"], e["tid"]): e["args"]["name"]
                 for e in trace["traceEvents"] if e["name"] == "thread_name"}
        self.assertEqual(sorted(names.values()),
                         sorted({e.thread for e in self.EVENTS}))
        events = [e for e in trace["traceEvents"]
                  if e["ph"] == "X" and e["cat"] != "stage"]
        self.assertEqual(len(events), len(self.EVENTS))
        self.assertEqual(min(e["ts"] for e in events), 0)
        longest = max((e for e in events if e["args"]["stages"].get(
            "datapath")), key=lambda e: e["dur"])
        overlaps = sorted(
            (min(e["ts"] + e["dur"], longest["ts"] + longest["dur"])
             - max(e["ts"], longest["ts"]), names[e["pid"], e["tid"]],
             e["name"]) for e in events if e["tid"] != longest["tid"])
        self.assertEqual(overlaps[-1], (248000.0, "pmd-c01", "upcall miss"))
        self.assertEqual(overlaps[-2][:2], (90000.0, "handler1"))

        # Stages fill their event, unless there are others within it.
        stages = [e for e in trace["traceEvents"] if e.get("cat") == "stage"]
        self.assertNotIn("datapath", [e["name"] for e in stages])
        for event in events:
            parts = [s for s in stages if s["tid"] == event["tid"]
                     and event["ts"] <= s["ts"] < event["ts"] + event["dur"]]
            if not event["args"]["excluded_ns"]:
                self.assertAlmostEqual(sum(s["dur"] for s in parts),
                                       event["dur"])

    def test_lanes(self) -> None:
        """Events of a lane are within each other or apart."""
        events = [flying("handler1", 0, 100), flying("handler1", 10, 20),
                  flying("handler1", 40, 60), flying("handler1", 50, 70),
                  flying("handler1", 60, 10), flying("handler1", 100, 5)]
        self.assertEqual({(e.begin - START * 1000, lane)
                          for e, lane in flight.lanes(events)},
                         {(0, 0), (10, 0), (40, 0), (50, 1), (60, 0),
                          (100, 0)})
        names = [e["args"]["name"] for e
                 in flight.trace(events, 1)["traceEvents"]
                 if e["name"] == "thread_name"]
        self.assertEqual(names, ["handler1", "handler1 (2)"])

    def test_summary(self) -> None:
        lines = list(flight.summary(self.EVENTS, 2))
        self.assertEqual(lines[0], "7 events of 4 threads")
        self.assertRegex(lines[1], r"revalidator2 +400,000 us +round miss "
                         "of dp, mostly dump")
        self.assertRegex(lines[2], r"main +250,000 us +iteration")
        self.assertRegex(lines[3], r"meanwhile +pmd-c01 +248,000 us +upcall"
                         " miss of dp, mostly translate")
        self.assertRegex(lines[4], r"meanwhile +handler1 +90,000.0 us")

        # If there is a reason why all was kept, it is first.
        events = list(self.EVENTS)
        events[4] = events[4]._replace(json=dict(events[4].json,
                                                 stopped=True))
        lines = [line for line in flight.summary(events)
                 if "meanwhile" not in line]
        self.assertEqual([line.split()[1] for line in lines[1:]],
                         ["handler1", "main", "pmd-c01"])

    def test_command(self) -> None:
        switch = fake.Switch(START)
        server = self.serve(switch)
        switch.flight = self.reply()
        run = ("flight", "-t", self.sock)
        self.assertEqual(self.output(*run).split("\n")[0],
                         "7 events of 4 threads")
        self.assertEqual(self.run_main(*run, "-o", "trace"), (0, "", ""))
        self.output(*run, "-o", "trace", "-f")
        self.output(*run, "-k", "2")
        self.assertEqual(server.commands[-1], ["cost/flight", "-kept", "2"])
        os.symlink("nowhere", "link")
        for args, reply, words in (
                (["-o", "trace"], self.reply(),
                 "trace: exists already (-f replaces it)"),
                (["-o", "link"], self.reply(), "link: "),
                (["-o", "/dev/full", "-f"], self.reply(),
                 "ovs-cost: /dev/full: No space left on device\n"),
                (["-k", "7", "-l", "10s"], self.reply(),
                 "--kept or --last: not both"),
                ([], dict(self.reply(False), threads=[]),
                 "other_config:cost-flight=true"),
                ([], dict(self.reply(), threads=[]), "no event"),
                ([], None, "not a valid command")):     # An older version.
            switch.flight = reply
            self.assertIn(words, self.errors(*run, *args))
        self.assertFalse(os.path.exists("nowhere"))


class TestPcap(unittest.TestCase):
    def test_file(self) -> None:
        def slow(us: int, packet: bytes, length: int, port: str) -> Any:
            return {"time_us": START + us, "total_ns": 1500,
                    "excluded_ns": 300, "thread": "pmd-c01", "class": "miss",
                    "cause": "on CPU",
                    "stages": {"parse": 500, "install": 1000},
                    "details": {"dp_port": 1, "packet_bytes": length,
                                "packet": packet.hex(), "flow": "in_port(1)",
                                "ethernet": port != "",
                                **({"port_name": port} if port else {})}}

        not_kept = slow(5, b"", 64, "p1")
        del not_kept["details"]["packet"], not_kept["details"]["ethernet"]
        reply = {"pid": 42, "accounts": [{"name": "dp", "slowest": [
            not_kept,
            slow(20, bytes(range(60)), 60, "p1"),
            slow(10, bytes(range(128)), 1514, "p2"),
            slow(30, bytes(range(33)), 33, "")]}]}
        data = pcap.capture(reply)
        blocks = []
        while data:
            kind, length = struct.unpack("<II", data[:8])
            self.assertEqual(length % 4, 0)
            self.assertEqual(data[length - 4:length], data[4:8])
            blocks.append((kind, data[8:length - 4]))
            data = data[length:]
        self.assertEqual([kind for kind, _ in blocks],
                         [0x0a0d0d0a, 1, 6, 1, 6, 1, 6])
        for name, (_, body) in zip((b"p2 (dp)", b"p1 (dp)", b"port 1 (dp)"),
                                   blocks[1::2]):
            self.assertIn(name, body)
        self.assertEqual([struct.unpack("<H", body[:2])[0]
                          for _, body in blocks[1::2]], [1, 1, 101])
        for i, size, length, us in ((0, 128, 1514, 10), (1, 60, 60, 20),
                                    (2, 33, 33, 30)):
            body = blocks[2 + 2 * i][1]
            interface, high, low, n, whole = struct.unpack("<IIIII",
                                                           body[:20])
            self.assertEqual((interface, n, whole), (i, size, length))
            self.assertEqual(high << 32 | low,
                             1000 * (START + us) - 1500 - 300)
            self.assertEqual(body[20:20 + n], bytes(range(n)))
            self.assertIn(b"comm=pmd-c01 pid=42 upcall_type=miss "
                          b"total=1.50us parse=0.50us install=1.00us "
                          b"cause=on-CPU\nin_port(1)", body)
        reply["accounts"][0]["slowest"] = [not_kept]
        self.assertEqual(pcap.capture(reply), b"")
        self.assertEqual(pcap.capture({"pid": 42, "accounts": []}), b"")


class TestTop(InTemporary):
    def serve_live(self) -> None:
        switch = fake.Switch(int(time.time() * 1e6) - 10 ** 6)
        switch.run(1, 50)
        self.serve(switch, live=True)

    def test_batch(self) -> None:
        self.serve_live()
        status, out, err = self.run_main("top", "-b", "-n", "2", "-i", "0.3",
                                         "-t", self.sock)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.count("ovs-cost top"), 2)
        self.assertRegex(out, r"upcalls \(userspace\) +\d")
        self.assertRegex(out, r"bursts +~\d")
        self.assertRegex(out, r"main loop +\d")
        self.assertEqual(len(re.findall(
            r"(?m)^pmd-c01/id:<9> is starved: ", out)), 2)

    def watch(self, change: Callable[[Any], None] = lambda s: None) -> Any:
        """Returns what has seen an interval of a fake switch."""
        switch = fake.Switch(START)
        switch.well, switch.clock = True, "tsc"
        switch.run(1, 50)
        self.serve(switch)
        watch = top.Watch([Target(self.sock)], model.REPORTS, 20)
        watch.poll()
        switch.run(2, 100)
        change(switch)
        watch.poll()
        watch.pollers[0].target.close()
        return watch

    def test_screen(self) -> None:
        """All that is said fits in a terminal of any size, or is scrolled
        to."""
        watch = self.watch()
        self.assertEqual(watch.verdict,
                         "nothing is wrong, as far as ovs-cost doctor can see")
        for columns, rows in (80, 24), (40, 10), (200, 50), (300, 100):
            view = top.View(model.REPORTS)
            for key in "034h":
                view.key(key)
                lines = top.screen(watch, view, columns, rows)
                self.assertEqual(len(lines), rows)
                self.assertLessEqual(max(map(len, lines)), columns)
                self.assertIn("last 2.0 s", lines[0])
            view.key("h")
            view.key("0")
            text_ = "\n".join(top.screen(watch, view, columns, rows))
            # The last column that there is room for is there.
            for word in ["mostly", "ms/s"] + ["max", "events/s"] * (
                    columns >= 80) + ["lost", "p50"] * (columns >= 200):
                self.assertIn(word, text_)
            self.assertIn("receive", text_)
            view.key("3")
            seen = set()
            for _ in range(100):
                lines = top.screen(watch, view, columns, rows)
                seen.update(lines)
                if not lines[-1].startswith("-- "):
                    break
                view.key("\x1b[6~")
            self.assertEqual(lines[-1], "h: help")
            self.assertEqual({line[:columns] for line
                              in top.render(watch.cases, view)} - seen, set())
            view.key("\x1b[5~")
            offset = view.offset
            view.key("\x1bOB")
            self.assertEqual(view.offset, offset + 1)
            view.key("1")
            self.assertEqual(view.offset, 0)

    def test_verdict(self) -> None:
        def starve(switch: Any) -> None:
            switch.well = False
            switch.start_us -= 10 ** 7
        watch = self.watch(starve)
        self.assertIn("is starved", watch.verdict)
        view = top.View(model.REPORTS)
        self.assertTrue(top.screen(watch, view, 40, 10)[1].startswith(
            "pmd-c01/id:<9> is starved: for"))
        watch.findings, watch.off = [], ["x: accounting is off"]
        self.assertEqual(watch.verdict, "x: accounting is off")
        gone = top.Watch([Target("/gone")], model.REPORTS, 20)
        gone.poll()
        gone.poll()
        self.assertIn("No such file", str(top.screen(gone, view, 80, 24)))

    def test_mostly(self) -> None:
        body = model.Body("upcall")
        body.events = 10
        body.stages = {"parse": of(100), "translate": of(300),
                       "total": of(400)}
        body.counters = {"flows": {"installed": 9, "flow-limit": 1},
                         "lost": {"lock": 0}}
        rows = [{"name": n, "share": s, "least": s - 0.1} for n, s in (
            ("p1", 0.1), ("p5", 0.82), ("a\nb", 0.08))]
        self.assertEqual(top.mostly(body), "translate 75%")
        self.assertEqual(top.mostly(body, [rows]), "p5 82%")
        self.assertEqual(top.mostly(body, [rows[:2]]), "translate 75%")
        self.assertEqual(top.mostly(body, [[dict(row, least=0.6)
                                            for row in rows]]),
                         "translate 75%")
        rows[1]["name"] = "br0 table=0 cookie=0x25"
        self.assertEqual(top.mostly(body, [[], rows]), "cookie=0x25 82%")
        body.counters["flows"]["flow-limit"] = 5
        self.assertEqual(top.mostly(body, [rows]), "flow-limit 50%")
        self.assertEqual(top.mostly(model.Body("call")), "")

    @unittest.skipUnless(shutil.which("tmux"), "there is no tmux")
    def test_tmux(self) -> None:
        """In a real terminal, which changes its size meanwhile."""
        self.serve_live()

        def tmux(*args: str) -> str:
            return subprocess.run(
                ["tmux", "-f", "/dev/null", "-S", "t", *args],
                check=True, stdout=subprocess.PIPE, text=True).stdout

        def wait_for(*words: str) -> str:
            deadline = time.monotonic() + 60
            while True:
                seen = tmux("capture-pane", "-p", "-t", "0")
                if all(word in seen for word in words):
                    return seen
                self.assertLess(time.monotonic(), deadline, seen)
                time.sleep(0.1)

        # PYTHONPATH may be relative.
        tmux("new-session", "-d", "-x", "80", "-y", "24", "-c", self.before,
             sys.executable, "-c", "import sys; from ovs.cost import main; "
             f"main.main(['top', '-i', '0.5', '-t', {self.sock!r}])")
        try:
            wait_for("mostly", "is starved", "h: help")
            tmux("send-keys", "h")
            wait_for("PgUp, PgDn")
            tmux("send-keys", "h", "3")
            seen = wait_for("main loop: ", " more lines")
            tmux("send-keys", "PPage", "NPage")
            wait_for("h: help")
            self.assertLessEqual(max(map(len, seen.splitlines())), 80)
            tmux("resize-window", "-t", "0", "-x", "40", "-y", "10")
            tmux("send-keys", "0")
            wait_for("mostly")
            tmux("resize-window", "-t", "0", "-x", "200", "-y", "50")
            wait_for("p50 (us)", "lost", "upcalls (userspace)")
            tmux("send-keys", "q")
        finally:
            subprocess.run(["tmux", "-S", "t", "kill-server"],
                           check=False, stderr=subprocess.DEVNULL)

    def test_keys(self) -> None:
        view = top.View(model.REPORTS)
        self.assertTrue(view.key("2"))
        self.assertEqual(view.report, "tx")
        self.assertTrue(view.key("\t"))
        self.assertEqual(view.report, "bridge")
        for _ in top.SORTS[1:]:
            view.key("s")
        self.assertEqual(view.sort, "name")
        view.key("p")
        self.assertTrue(view.paused)
        view.key("0")
        self.assertIsNone(view.report)
        self.assertFalse(view.key("q"))

    def test_sort(self) -> None:
        bodies = []
        for events, ns in ((5, 100), (3, 1000), (4, 10)):
            body = model.Body("command")
            body.events = events
            body.stages["total"] = of(*[ns] * events)
            bodies.append(top.Row(f"e{events}", body))
        own = [top.Row(n, bodies[1].body) for n in ("cost/show",
                                                    "upcall/cost-show")]
        self.assertEqual([r.name for r in top.ordered(own + bodies, "max")],
                         ["e3", "e5", "e4", "cost/show", "upcall/cost-show"])
        names = {sort: [r.name for r in top.ordered(bodies, sort)]
                 for sort in top.SORTS}
        self.assertEqual(names["time"], ["e3", "e5", "e4"])
        self.assertEqual(names["events"], ["e5", "e4", "e3"])
        self.assertEqual(names["max"], ["e3", "e5", "e4"])
        self.assertEqual(names["name"], ["e3", "e4", "e5"])


if __name__ == "__main__":
    unittest.main()
