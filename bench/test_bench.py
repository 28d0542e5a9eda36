#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what the benchmarks calculate.  Run it: bench/test_bench.py"""

from __future__ import annotations

import itertools
import random
import struct
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
import callgrind                                               # noqa: E402
import figures                                                 # noqa: E402
import machine                                                 # noqa: E402
import packets                                                 # noqa: E402
import stats                                                   # noqa: E402
import upcalls                                                 # noqa: E402
from report import (Result, as_json, number, read_json,        # noqa: E402
                    rounded, table)


class Stats(unittest.TestCase):
    def test_coverage(self) -> None:
        """Against all ways in which n values can be below the median or
        above."""
        for n in range(1, 14):
            for k in range(1, (n + 1) // 2 + 1):
                inside = sum(k <= sum(sides) <= n - k for sides in
                             itertools.product((0, 1), repeat=n))
                self.assertAlmostEqual(stats.coverage(n, k), inside / 2 ** n)
        self.assertEqual(stats.coverage(3, 1), 0.75)
        self.assertEqual(stats.coverage(5, 1), 0.9375)
        self.assertEqual(stats.coverage(7, 2), 0.875)
        self.assertAlmostEqual(stats.coverage(11, 3), 0.935, places=3)

    def test_interval(self) -> None:
        """An interval has the median as often as it says, and at least 95% of
        the time, for a distribution that is not symmetric, either."""
        rng = random.Random(1)
        n_tries = 4000
        for n in 6, 7, 9, 11, 15, 21:
            found = [stats.interval([rng.lognormvariate(0, 1)
                                     for _ in range(n)])
                     for _ in range(n_tries)]
            expected = found[0].coverage
            self.assertGreaterEqual(expected, 0.95)
            share = sum(x.low <= 1 <= x.high for x in found) / n_tries
            deviation = (expected * (1 - expected) / n_tries) ** .5
            self.assertLess(abs(share - expected), 4 * deviation, n)
        self.assertEqual(stats.interval([3, 1, 2]), (1, 3, 0.75))
        self.assertEqual(stats.interval(range(9))[:2], (1, 7))
        self.assertEqual(stats.interval(range(11))[:2], (1, 9))
        self.assertEqual(stats.interval(range(12))[:2], (2, 9))
        self.assertEqual(stats.interval([5]), (5, 5, 0))
        self.assertEqual(stats.describe_interval("1", "2", 511 / 512),
                         "[1, 2] 99.8%")

    def test_ratio(self) -> None:
        r = stats.ratio([10.1, 20.4, 30.3], [10, 20, 30])
        self.assertEqual(r.n, 3)
        self.assertAlmostEqual(r.median, 1.01)
        self.assertAlmostEqual(r.low, 1.01)
        self.assertAlmostEqual(r.high, 1.02)
        self.assertEqual(r.coverage, 0.75)
        self.assertRaises(ValueError, stats.ratio, [1], [1, 2])
        self.assertRaises(ValueError, stats.ratio, [], [])

    def test_verdict(self) -> None:
        def verdict(values, budget):
            return stats.verdict(stats.ratio(values, [1] * len(values)),
                                 budget)
        same = [0.98, 0.99, 1.0, 1.01, 1.02, 0.99, 1.01, 1.0, 1.01]
        self.assertEqual(verdict(same, None), "within noise")
        self.assertEqual(verdict([1.01] * 8 + [0.9], None),
                         "higher than noise explains")
        self.assertEqual(verdict([0.99] * 9, None),
                         "lower than noise explains")
        self.assertEqual(verdict([1.01] * 7 + [0.9] * 2, None),
                         "within noise")
        self.assertEqual(verdict([1.01] * 8, None),
                         "too few pairs to tell (8)")
        self.assertEqual(verdict([1.005] * 9, 0.01), "within 1%")
        self.assertEqual(verdict([1.02] * 9, 0.01), "over 1%")
        self.assertEqual(verdict([1.0] * 5 + [1.05] * 4, 0.03),
                         "within 3%, but not by its interval")


class Upcalls(unittest.TestCase):
    def test_order(self) -> None:
        for block in range(3):
            names = [v.name for v in upcalls.order(block)]
            self.assertEqual(names, names[::-1])
            self.assertEqual(sorted(names),
                             sorted(2 * [v.name for v in upcalls.VARIANTS]))
        self.assertNotEqual(upcalls.order(0), upcalls.order(1))

    def test_capture(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "capture"
            packets.write_capture(path, range(300))
            data = path.read_bytes()[24:]
        sources = set()
        self.assertEqual(len(data), 300 * 76)
        for i in range(300):
            packet = data[i * 76 + 16:(i + 1) * 76]
            words = struct.unpack(">10H", packet[14:34])
            total = sum(words)
            self.assertEqual((total & 0xffff) + (total >> 16), 0xffff)
            sources.add(packet[26:30])
        self.assertEqual(len(sources), 300)


class Instructions(unittest.TestCase):
    def test_profile(self) -> None:
        count = callgrind.parse_profile("""\
events: Ir
fl=(1) /src/lib/dpif-netdev.c
fn=(1) dp_netdev_input__
10 100
fi=(2) /src/lib/cost.h
20 30
fe=(1)
+3 200
cfi=(3) /src/lib/upcall-cost.c
cfn=(2) upcall_cost_stop
calls=10 40
* 77
cfn=(1)
calls=1 40
* 5

fl=(3)
fn=(2)
41 7
cfi=(4) /src/lib/random.c
cfn=(3) random_uint32
calls=10 5
-1 60
cfn=(4) upcall_cost_get_details
calls=10 5
-1 10
43 3

fl=(4)
fn=(3)
5 60

fl=(5) /src/lib/coverage-cost-not-ours.c
fn=(5) other
1 1000
totals: 1400
""")
        # 30 inlined, 7 and 3 of our own, 60 in a function that ours calls.
        self.assertEqual(count, callgrind.Count(1400, 100, 0))

    def test_growth(self) -> None:
        """What makes room in histograms is known, with all that it calls."""
        count = callgrind.parse_profile("""\
events: Ir
fl=(1) /src/lib/cost.c
fn=(1) cost_record
10 100
cfi=(2) /src/lib/cost-histogram.c
cfn=(2) cost_block_extend
calls=2 40
* 90

fl=(2)
fn=(2)
41 20
cfi=(3) /src/lib/util.c
cfn=(3) xmalloc
calls=2 5
* 70

fl=(3)
fn=(3)
5 70

totals: 190
""")
        self.assertEqual(count, callgrind.Count(190, 190, 90))


class Figures(unittest.TestCase):
    ABOUT = {
        "command": "bench/run STOCKDIR OVSDIR upcalls", "date": "2026-01-02",
        "commit": "0123456789ab",
        "machine": {"cpu": "CPU", "cores": 2, "virtual": True,
                    "kernel": "6.1"},
        "trees": {"ovs": {"compiler": "gcc 12", "CFLAGS": "-O2",
                          "topics": "fixes"}}}
    RESULTS = {"upcalls": [Result("an upcall", "ns", {
        "stock": [3210.0] * 9, "off": [3000.0] * 9,
        "on": [3000 * r for r in (1.002, 1.003, 1.004, 1.005, 1.0096, 1.011,
                                  1.012, 1.015, 1.02)]})]}
    CELLS = ["on/off", "1.010", "1.003 to 1.015", "+29 ns"]

    def replace(self, name: str, text: str) -> str:
        with tempfile.TemporaryDirectory() as directory:
            results = Path(directory)
            for run in "upcalls", "upcalls-2":
                (results / f"{run}.json").write_text(
                    as_json(self.RESULTS, **self.ABOUT))
            with mock.patch.object(figures, "RESULTS", results), \
                    mock.patch.object(figures, "TOP", results):
                return figures.replace(results / name, text)

    def test_replace(self) -> None:
        for name, begin, end, row in (
                ("x.md", "<!-- figures: upcalls -->",
                 "<!-- end of figures -->", f"| {' | '.join(self.CELLS)} |"),
                ("x.rst", ".. figures: upcalls-2", ".. end of figures", "")):
            old = f"one\n\n{begin}\nOld.\n{end}\n\ntwo\n"
            new = self.replace(name, old)
            lines = new.splitlines()
            self.assertEqual(lines[:3] + lines[-3:],
                             ["one", "", begin, end, "", "two"])
            self.assertNotIn("Old.", new)
            self.assertIn("commit 0123456789ab; CPU, 2 cores, virtual machine",
                          new.replace("\n", " "))
            self.assertIn(row or " ".join(self.CELLS),
                          [" ".join(line.split()) for line in lines])
            self.assertIn(" interval (96.0%) ", new)
            self.assertEqual(self.replace(name, new), new)

    def test_narrow(self) -> None:
        table = figures.Table(["x", "interval", "confidence", "pairs"],
                              [["a", "1 to 2", "96.0%", "9"],
                               ["b", "", "", "9"],
                               ["c", "2 to 3", "96.0%", "9"]])
        self.assertEqual(table.narrow(), (
            ["x", "interval (96.0%)"],
            [["a", "1 to 2"], ["b", ""], ["c", "2 to 3"]]))
        table.rows[0][2:] = ["97.3%", "21"]
        self.assertEqual(table.narrow(), table)

    def test_recording(self) -> None:
        table = figures.recording([Result("100 ports", "as named", {
            "ports": [100], "us": [1234.4], "main_us": [500.6], "kb": [8.04],
            "recorded_percent": [0.1234], "held_up_p99_us": [99.7],
            "held_up_max_us": [1000.2]})])
        self.assertEqual(table.rows, [["100", "1,234 us", "501 us", "0.123%",
                                       "100 us", "1,000 us", "8.0 kB"]])

    def test_kernel(self) -> None:
        table = figures.kernel([Result("an upcall", "ns", {
            "stock": [50000, 51000, 52000], "off": [51000, 51510, 53000],
            "on": [1] * 3, "queue": [1] * 3, "trace": [1] * 3})])
        self.assertEqual(table.rows[:2], [
            ["stock", "51,000", "", "", "", ""],
            ["off", "51,510", "stock", "1.0192", "1.0100 to 1.0200",
             "75.0%"]])

    def test_flood(self) -> None:
        table = figures.flood([Result(
            "flood, dummy 1000", "instructions",
            {"stock": [10, 20, 30], "patched": [20, 21, 22]})])
        row = ["flood", "dummy", "1,000", "20", "50.0%", "21", "4.8%", "1.050"]
        self.assertEqual((len(table.header), table.rows), (8, [row]))
        table = figures.flood([Result("flood, dummy 1000", "instructions", {
            "stock": [20e6, 30e6], "off": [25.1e6], "patched": [30.12e6],
            "accounting": [64000.0], "accounting off": [30500.0],
            "growth": [3400.0]})])
        self.assertEqual(table.rows, [
            ["flood", "dummy", "1,000", "25,000 k", "25,100 k", "30,120 k",
             "1.004", "1.200", "30.1", "3.4"]])

    def test_memory(self) -> None:
        table = figures.TABLES["memory"]([Result(
            "2000 ports, 8 threads", "MB",
            {"accounted for": [1.31, 8.8, 35, 60],
             "of the process": [4.97, 14.39, 51.96, 75.04]})])
        self.assertEqual(table.rows, [
            ["accounted for", "2,000", "8", "1.3", "8.8", "35.0", "60.0"],
            ["of the process", "2,000", "8", "5.0", "14.4", "52.0", "75.0"]])

    PAIRS = {"stock": [2.0, 2.0, 4.0], "patched": [3.0, 1.0, 6.0]}
    CELLS_OF_RATIO = ["1.500", "0.500 to 1.500", "75.0%"]

    def test_txqueue(self) -> None:
        table = figures.txqueue([
            Result("split", "Mpps", self.PAIRS),
            Result("split", "packets a burst",
                   {"stock": [8], "patched": [10268.6]}),
            Result("split", "cycles a packet",
                   {"stock": [1500], "patched": [1500.4]}),
            Result("latency, p50", "us", self.PAIRS)])
        self.assertEqual(table.rows, [
            ["split", "2.000, 3.000", "8.0, 10,269", "1,500, 1,500",
             *self.CELLS_OF_RATIO, "3"],
            ["latency p50", "2.0, 3.0", "", "", *self.CELLS_OF_RATIO, "3"]])

    def test_reports(self) -> None:
        table = figures.TABLES["reports"]([Result(
            "tx/cost-show, text", "us", {"patched": [50, 1060, 60]})])
        self.assertEqual(table.rows,
                         [["tx/cost-show, text", "60 us", "1,060 us"]])

    def test_alone(self) -> None:
        """A patch alone is in one table, in the unit of its results."""
        results = {
            "txqueue-0100": [Result("split", "Mpps", self.PAIRS),
                             Result("split", "packets a burst", {})],
            "flood-0450": [
                Result("stats, tap 100", "instructions",
                       {"stock": [2e3], "patched": [1e3]}),
                Result("wake-up, tap 100", "instructions",
                       {"stock": [4e6], "patched": [4e6]})],
            "port_changes-0430": [
                Result("port", "ms",
                       {"stock": [40000.0], "patched": [20.5]})]}
        with mock.patch.object(figures, "ALONE", [
                figures.Alone("txqueue-0100", [], ["split"]),
                figures.Alone("flood-0450", ["stats, tap 100"],
                              ["wake-up, tap 100"]),
                figures.Alone("port_changes-0430", ["port"], [])]):
            table = figures.alone_table(results)
        self.assertEqual(table.rows, [
            ["0100", "split", "worst", "2.000 Mpps", "3.000 Mpps",
             *self.CELLS_OF_RATIO[:2]],
            ["0450", "stats, tap 100", "", "2 k", "1 k", "0.500",
             "0.500 to 0.500"],
            ["", "wake-up, tap 100", "worst", "4,000 k", "4,000 k", "1.000",
             "1.000 to 1.000"],
            ["0430", "port", "", "40,000 ms", "20.50 ms", "0.001",
             "0.001 to 0.001"]])

    def test_histogram(self) -> None:
        table = figures.histogram([Result("record", "ns",
                                          {"patched": [3.0, 2.0, 4.06]})])
        self.assertEqual(table.rows, [["record", "3.0 ns", "2.0 ns",
                                       "4.1 ns"]])

    def test_instructions(self) -> None:
        table = figures.instructions([
            Result("an upcall", "instructions", {"on": [24840.41, 24850]}),
            Result("of accounting", "instructions", {"on": [363.16, 362]})])
        self.assertEqual(table.rows, [["on", "24,845", "24,840", "24,850",
                                       "363"]])

    def test_addrs(self) -> None:
        table = figures.TABLES["addrs"]([
            Result("all devices, 1024", "us",
                   {"stock": [100], "patched": [20]}),
            Result("all devices, 1024", "calls",
                   {"stock": [2001], "patched": [2]})])
        self.assertEqual(table.rows, [[
            "all devices", "1,024", "100.0", "20.0", "5.0", "5.0 to 5.0",
            "0.0%", "2001, 2", "1"]])

    def test_stats_loop(self) -> None:
        table = figures.times_less("1,152 ports", [Result(
            "port", "ms", {"patched": [20], "stock": [60]})])
        self.assertEqual(table.rows, [["port", "60.00 ms", "20.00 ms", "3.00",
                                       "3.00 to 3.00", "0.0%", "1"]])

    def test_pods(self) -> None:
        text = figures.pods([
            Result("128+0 pods", "cpu ms", {"stock": [900, 800, 1000],
                                            "patched": [450, 400, 500]}),
            Result("128+0 pods", "wait ms", {"stock": [1] * 3,
                                             "patched": [7] * 3}),
            Result("128+0 pods", "up ms", {"stock": [50], "patched": [40]}),
            Result("128+0 pods", "up max ms", {"stock": [90],
                                               "patched": [80]}),
            Result("128+0 pods", "cycle s", {"stock": [2.72],
                                             "patched": [1.3]}),
            Result("128+0 pods", "call all calls", {"stock": [9000],
                                                    "patched": [8000]}),
            Result("128+0 pods", "call all ms", {"stock": [300],
                                                 "patched": [200]}),
            *(Result("128+0 pods", f"stage {name} ms", {"patched": [ms] * 3})
              for name, ms in (("elapsed", 1000), ("run", 600), ("idl", 595),
                               ("poll", 400))),
            Result("128+0 pods", "netlink link calls", {"patched": [2000]}),
            Result("128+0 pods", "netlink link ms", {"patched": [7]})])
        rows = [" ".join(line.split()) for line in text.splitlines()]
        for row in ("128+0 pods 900 / 450 2.00 2.00 to 2.00 50 / 40 90 / 80 "
                    "2.7 / 1.3", "all 9,000 / 8,000 300 / 200", "idl 595.0",
                    "explained 99.5%", "processor 450", "waited 7",
                    "link 2,000 7"):
            self.assertIn(row, rows)

    def test_ct(self) -> None:
        table = figures.ct([
            Result("nat", unit, {"patched": values}) for unit, values in (
                ("upcalls", [2, 2, 2]), ("execute", [1, 1, 1]),
                ("parse", [3, 3, 3]), ("total", [4, 5, 9]))])
        self.assertEqual(table.rows, [
            ["nat", "3.00", "1.00", "5.00", "4.00 to 9.00", "2", "400,000"]])

    def test_forwarding(self) -> None:
        def result(case: str, unit: str, *values: float) -> Result:
            return Result(case, unit, {"XDP": list(values)})

        results = [result(case, unit, *values) for case, pps in
                   (("1 out, 1000", 1000), ("2 out, 0", 5000))
                   for unit, values in {
                       "share": (0.1, 0.3), "pps": (pps, pps),
                       "ns": (100, 300), "sent": (1000, 1000),
                       "devices": (10, 10), "sockets": (5, 5),
                       "switch": (5, 5), "uncounted": (0, -2)}.items()]
        text = figures.forwarding(
            results + [result("1 out, single", "p99 us", 7)])
        self.assertEqual(text.splitlines()[3].split(),
                         "1 XDP 1,000 1,000 20.0% 200 100 to 300 2.0% 2"
                         .split())
        self.assertIn("all       5,000 ", text)
        self.assertIn("XDP       7.0\n", text)
        self.assertEqual(
            figures.forwarding_chart(results, 1).count("<polyline"), 1)

    def test_usdt(self) -> None:
        table = figures.usdt([Result("upcalls", "ns", {
            "without": [500.0], "with": [1000.0]})])
        self.assertEqual(table.rows, [
            ["upcalls", "without", "2,000,000", "", "", "", "1"],
            ["upcalls", "with", "1,000,000", "2.000", "2.000 to 2.000",
             "0.0%", "1"]])

    def test_rules(self) -> None:
        self.assertEqual(figures.rules([Result("1000 rules", "lines",
                                               {"diff": ["a", "", "  b"]})]),
                         "::\n\n    a\n\n      b\n")

    def test_fleet(self) -> None:
        self.assertEqual(figures.fleet([Result(
            "version", "text", {"prometheus": ["2.42"]})]).rows,
                         [["version", "2.42"]])

    def test_nothing_there(self) -> None:
        for name in "learning", "bench upcalls":
            with self.assertRaises(figures.Failure):
                self.replace("x.rst", f".. figures: {name}\n"
                             ".. end of figures\n")
        self.assertEqual(self.replace("x.rst", "Nothing.\n"), "Nothing.\n")


class Trees(unittest.TestCase):
    def test_topics(self) -> None:
        """A result says which topics its tree had."""
        with tempfile.TemporaryDirectory() as directory:
            tree = Path(directory)
            self.assertEqual(machine.describe_tree(tree)["topics"], "")
            (tree / ".git").mkdir()
            (tree / ".git/ovs-cost.json").write_text(
                '{"about": {"topics": "fixes tx", "only": "0100"}}')
            facts = machine.describe_tree(tree)
            self.assertEqual((facts["topics"], facts["patches"]),
                             ("fixes tx", "0100"))


class HugePages(unittest.TestCase):
    def reserve(self, before: int, free: int, pages: int) -> int:
        """Returns how many pages are reserved meanwhile."""
        with tempfile.TemporaryDirectory() as directory:
            count = Path(directory) / "nr_hugepages"
            count.write_text(f"{before}\n")
            (Path(directory) / "free_hugepages").write_text(f"{free}\n")
            with mock.patch.object(machine, "HUGEPAGES", Path(directory)):
                with machine.HugePages(pages):
                    meanwhile = int(count.read_text())
            self.assertEqual(int(count.read_text()), before)
        return meanwhile

    def test_reserve(self) -> None:
        self.assertEqual(self.reserve(0, 0, 128), 128)
        self.assertEqual(self.reserve(100, 30, 128), 198)
        self.assertEqual(self.reserve(500, 200, 128), 500)


class ByHand(unittest.TestCase):
    def test_by_hand(self) -> None:
        """Ratios, and sizes in README.md, are in sentences that are made."""
        text = ("It takes 0.97 (0.95 to 1.01) of it, and 47 MB.\n\n"
                "    0.97\n\n``0.97`` and `0.97`, Go 1.23, 0.94 to 28 MB, "
                "1.25\nus, 4.0.0, 0.31, 1.5, 96.0%, v1.02.3\n\n"
                ".. figures: x\n1.001\n.. end of figures\n")
        ratios = ["0.97", "0.95", "1.01"]
        self.assertEqual(figures.by_hand("x.rst", text), ratios)
        self.assertEqual(figures.by_hand("README.md", text),
                         ratios + ["47 MB", "28 MB"])

    def test_summary(self) -> None:
        """The worst is what the results say, and comes last."""
        def rate(case: str, x: float) -> Result:
            return Result(case, "Mpps", {
                "stock": [1.0] * 3, "patched": [x - 0.01, x, x + 0.01]})

        def flood(n_ports: int, patched: int) -> Result:
            return Result(f"flood, dummy {n_ports}", "instructions",
                          {"stock": [100], "patched": [patched]})

        of = {"txqueue-forward": [rate("full, 0 us", 0.9),
                                  rate("split", 1.01), rate("single", 0.97)],
              "flood-all": [flood(100, 99), flood(1000, 104)],
              "flood-10000": [flood(10000, 98)],
              "memory": [Result("10000 ports, 8 threads", "MB",
                                {"of the process": [12.3, 50, 172.3, 201]}),
                         Result("2000 ports, 8 threads", "MB",
                                {"of the process": [1, 2, 3, 4]})]}
        with mock.patch.object(figures, "load", lambda name: {
                "machine": {"kernel": "6." + str(len(name))},
                "results": {name.partition("-")[0]: of[name]}}):
            text = figures.make("summary", True)
        for part in (" 1.010 (1.000 to 1.020) times the packet rate of stock "
                     "OVS with bursts of 8 to four devices, 0.970 (0.960 "
                     "to 0.980) times with "
                     "bursts of one packet, and at worst 0.900 (0.890 to "
                     "0.910) times with full bursts.",
                     " 0.980 times the instructions of stock OVS with 10,000 "
                     "ports, and at worst 1.040 times with 1,000 ports.",
                     " 8 threads to 10,000 ports takes 12 MB ",
                     " 172 MB once each thread has sent 6,000 bursts ",
                     " on Linux 6.15, 6.9, 6.11, 6.6;"):
            self.assertIn(part, text)


class Results(unittest.TestCase):
    def test_rounded(self) -> None:
        for value, expected in ((18.42051, 18.421), (0.0123456, 0.012346),
                                (2196527.76, 2196528), (-3.15, -3.15),
                                (32.0, 32), (0.0, 0), (123456789, 123456789),
                                ("text", "text")):
            self.assertEqual(rounded(value), expected)
        self.assertIsInstance(rounded(32.0), int)

    def test_number(self) -> None:
        """No digits are shown that a result does not have."""
        self.assertEqual([number(x, 1) for x in (0, 15.94, 5376.81, 32523.5)],
                         ["0.0", "15.9", "5,376.8", "32,524"])

    def test_written(self) -> None:
        """There is one result in a line, and what is read is what was
        written."""
        results = {"x": [Result("a, b", "us", {"stock": [1, 2.5],
                                               "patched": [3, 4]}),
                         Result("c", "text", {"y": ["z"]})],
                   "nothing": []}
        text = as_json(results, date="2026-01-02", trees={"ovs": {"CC": "c"}})
        self.assertEqual(text.splitlines()[3:5], [
            '{"case": "a, b", "unit": "us", "stock": [1, 2.5], '
            '"patched": [3, 4]},',
            '{"case": "c", "unit": "text", "y": ["z"]}],'])
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "x.json"
            path.write_text(text)
            self.assertEqual(read_json(path), {
                "date": "2026-01-02", "trees": {"ovs": {"CC": "c"}},
                "results": results})


class Table(unittest.TestCase):
    def test_table(self) -> None:
        self.assertEqual(table(["x", "number"], [["long name", "1"],
                                                 ["y", "12,345,678"]]),
                         "  x              number\n"
                         "  long name           1\n"
                         "  y          12,345,678")


if __name__ == "__main__":
    unittest.main()
