#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what the benchmarks calculate.  Run it: bench/test_bench.py"""

from __future__ import annotations

import struct
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import instructions                                            # noqa: E402
import machine                                                 # noqa: E402
import packets                                                 # noqa: E402
import stats                                                   # noqa: E402
import upcalls                                                 # noqa: E402
from report import table                                       # noqa: E402


class Stats(unittest.TestCase):
    def test_sign_test(self) -> None:
        self.assertEqual(stats.sign_test(5, 5), 1)
        self.assertEqual(stats.sign_test(7, 0), 2 / 2 ** 7)
        self.assertEqual(stats.sign_test(1, 6), 2 * 8 / 2 ** 7)

    def test_ratio(self) -> None:
        r = stats.ratio([10.1, 20.4, 30.3], [10, 20, 30])
        self.assertEqual(r.n, 3)
        self.assertAlmostEqual(r.median, 1.01)
        self.assertAlmostEqual(r.minimum, 1.01)
        self.assertAlmostEqual(r.maximum, 1.02)
        self.assertEqual(r.p, 0.25)
        self.assertEqual(r, stats.ratio([10.1, 20.4, 30.3], [10, 20, 30]))
        self.assertRaises(ValueError, stats.ratio, [1], [1, 2])
        self.assertRaises(ValueError, stats.ratio, [], [])

    def test_verdict(self) -> None:
        def verdict(values, budget):
            return stats.verdict(stats.ratio(values, [1] * len(values)),
                                 budget)
        same = [0.98, 0.99, 1.0, 1.01, 1.02, 0.99, 1.01]
        self.assertEqual(verdict(same, None), "within noise")
        self.assertEqual(verdict([1.01] * 7, None),
                         "higher than noise explains")
        self.assertEqual(verdict([0.99] * 7, None),
                         "lower than noise explains")
        self.assertEqual(verdict([1.01] * 4, None), "within noise")
        self.assertEqual(verdict([1.005] * 7, 0.01), "within 1%")
        self.assertEqual(verdict([1.02] * 7, 0.01), "over 1%")
        self.assertEqual(verdict([1.0] * 4 + [1.05] * 3, 0.03),
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
        count = instructions.parse_profile("""\
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
        self.assertEqual(count, instructions.Count(1400, 100))


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


class Table(unittest.TestCase):
    def test_table(self) -> None:
        self.assertEqual(table(["x", "number"], [["long name", "1"],
                                                 ["y", "12,345,678"]]),
                         "  x              number\n"
                         "  long name           1\n"
                         "  y          12,345,678")


if __name__ == "__main__":
    unittest.main()
