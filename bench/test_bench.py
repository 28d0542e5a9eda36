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

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench import callgrind, figures, machine, packets, report, stats, upcalls
from bench.report import Result, as_json, number, read_json, rounded


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
        self.assertEqual(stats.interval([3, 1, 2]), (2, 1, 3, 0.75))
        self.assertEqual(stats.interval(range(9))[:3], (4, 1, 7))
        self.assertEqual(stats.interval(range(11))[:3], (5, 1, 9))
        self.assertEqual(stats.interval(range(12))[:3], (5.5, 2, 9))
        self.assertEqual(stats.interval([5]), (5, 5, 5, 0))

    def test_ratio(self) -> None:
        r = stats.ratio([10.1, 20.4, 30.3], [10, 20, 30])
        self.assertAlmostEqual(r.median, 1.01)
        self.assertAlmostEqual(r.low, 1.01)
        self.assertAlmostEqual(r.high, 1.02)
        self.assertEqual(r.coverage, 0.75)
        self.assertRaises(ValueError, stats.ratio, [1], [1, 2])
        self.assertRaises(ValueError, stats.ratio, [], [])


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


class Tables(unittest.TestCase):
    RESULTS = [Result("an upcall", "ns", {
        "stock": [3210.0] * 9, "off": [3000.0] * 9,
        "on": [3000 * r for r in (1.002, 1.003, 1.004, 1.005, 1.0096, 1.011,
                                  1.012, 1.015, 1.02)]})]

    def table(self, benchmark: str, results, spec: str = "") -> list:
        table = report.make_table(benchmark, results, spec)
        return [table.header, *table.rows]

    def test_ratios(self) -> None:
        self.assertEqual(self.table("upcalls", self.RESULTS), [
            ["an upcall, ns", "median", "against", "median", "ratio",
             "interval (96.0%)", "difference"],
            ["off", "3,000", "stock", "3,210", "0.9346", "0.9346 to 0.9346",
             "-210"],
            ["on", "3,029", "stock", "3,210", "0.944", "0.937 to 0.949",
             "-181"],
            ["on", "3,029", "off", "3,000", "1.010", "1.003 to 1.015",
             "+29"]])
        pairs = {"stock": [2.0, 2.0, 40.0], "patched": [3.0, 1.0, 60.0]}
        self.assertEqual(self.table("port_changes", [
            Result("port", "ms", pairs), Result("route", "ms", pairs)]), [
            ["ms", "stock", "patched", "ratio", "interval (75.0%)"],
            *[[case, "2.000", "3.000", "0.667", "0.667 to 2.000"]
              for case in ("port", "route")]])

    def test_spread(self) -> None:
        self.assertEqual(self.table("reports", [
            Result("tx", "us", {"patched": [50, 1060, 60]}),
            Result("all", "us", {"patched": [1]})]), [
            ["us", "median", "least", "most"],
            ["tx", "60.00", "50.00", "1,060"],
            ["all", "1.000", "1.000", "1.000"]])

    def test_cells(self) -> None:
        results = [Result(case, unit, {"patched": [value], "stock": [7]})
                   for case in ("plain", "nat") for unit, value in (
                       ("us, parse", 0.25), ("us, total", 12))]
        self.assertEqual(self.table("ct", results, "cells case"), [
            ["us", "parse, patched", "parse, stock", "total, patched",
             "total, stock"],
            *[[case, "0.250", "7.000", "12.00", "7.000"]
              for case in ("plain", "nat")]])
        self.assertEqual(self.table(
            "ct", results, "cells case+variant case=nat unit=*total"), [
            ["", "us, total"], ["nat, patched", "12.00"],
            ["nat, stock", "7.000"]])
        self.assertRaises(ValueError, self.table, "ct", results,
                          "spread case=x")


class Figures(unittest.TestCase):
    """Figures in documents, with a made-up result."""

    SOURCES = """\
*
  [limit]
    95%
x.md
  [upcalls]
    takes {on - off} ns ({on/off %}%) of {stock
        k} us
  [theirs: a talk]
    169 and 181 ms; 7 kB
"""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.top = Path(directory.name)
        (self.top / "figures.txt").write_text(self.SOURCES)
        for name in ("TOP", "RESULTS"):
            patch = mock.patch.object(figures, name, self.top)
            patch.start()
            self.addCleanup(patch.stop)
        patch = mock.patch.object(figures, "SOURCES",
                                  self.top / "figures.txt")
        patch.start()
        self.addCleanup(patch.stop)
        (self.top / "upcalls.json").write_text(as_json(
            {"upcalls": Tables.RESULTS}, commit="0123456789ab-dirty",
            machine={"cpu": "CPU"}))

    def renew(self, text: str, name: str = "x.md") -> tuple:
        said: list = []
        return figures.renew(name, text, figures.read_sources(), said), said

    GOOD = ("It takes 29 ns (1.0%) of\n3.2 us. Theirs: 169 and\n181 ms, "
            "`8 kB`, 7 kB, 95%.\n\n    9 ns\n")

    def test_phrases(self) -> None:
        self.assertEqual(self.renew(self.GOOD), (self.GOOD, []))
        new, said = self.renew(self.GOOD.replace("29 ns", "45 ns"))
        self.assertEqual(new, self.GOOD)
        self.assertEqual(said[0][:11], "45 is 29: t")
        _, said = self.renew(self.GOOD.replace("7 kB", "8 kB") + "\n1.013\n")
        self.assertEqual(said, [
            "8 kB has no source in bench/figures.txt",
            "1.013 has no source in bench/figures.txt", "it has no 7 kB"])
        _, said = self.renew("")
        self.assertEqual(said[0][:16], "it says 0 times:")

    def test_blocks(self) -> None:
        for begin, end in (("<!-- figures: upcalls -->",
                            "<!-- end of figures -->"),
                           (".. figures: upcalls spread",
                            ".. end of figures")):
            name = "x.rst" if begin[0] == "." else "y.md"
            new, said = self.renew(f"{begin}\nOld.\n{end}\n", name)
            self.assertEqual(said, [])
            self.assertNotIn("Old.", new)
            self.assertIn("3,029", new)
            self.assertIn("From `", new)
            self.assertEqual(self.renew(new, name), (new, []))
        for what in "kernel", "upcalls cells", "upcalls spread case=x":
            _, said = self.renew(f".. figures: {what}\n.. end of figures\n",
                                 "x.rst")
            self.assertEqual(len(said), 1)

    def test_literal(self) -> None:
        text = "a::\n\n  1 ns\n\n  2 ns\n\nb 3 ns ``4 ns``\n\n    5 ns\n"
        found = [m[0] for m in figures.FIGURE_RE.finditer(
            figures.masked("x.rst", text))]
        self.assertEqual(found, ["3 ns", "5 ns"])

    def test_results(self) -> None:
        self.assertEqual([*figures.check_results({"CPU"}, set())], [
            "upcalls was measured of 0123456789ab-dirty on CPU: measure it "
            "again",
            "no document uses upcalls"])


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
        self.assertEqual([number(x, 1) for x in (0, 15.94, 5376.81, 32523.51)],
                         ["0", "15.9", "5,377", "32,524"])

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


if __name__ == "__main__":
    unittest.main()
