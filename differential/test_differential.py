# SPDX-License-Identifier: Apache-2.0
"""Tests the differential test, without a switch."""

from __future__ import annotations

import re
import runpy
import subprocess
import time
import unittest
from typing import List

from differential import changes
from tools.project import TOP


class Differential(unittest.TestCase):
    def setUp(self) -> None:
        self.run_ = runpy.run_path(str(TOP / "differential/run"))

    def test_steps(self) -> None:
        """They depend on the seed alone; shells understand them; daemons that
        are stopped are not waited for."""
        found = set()
        for seed in range(20):
            steps = changes.Changes(seed).steps(50)
            self.assertEqual(steps, changes.Changes(seed).steps(50))
            self.assertEqual(steps[:30], changes.Changes(seed).steps(30))
            found.update(c.kind for step in steps for c in step.changes)
            commands = [command for step in steps for c in step.changes
                        for command in c.commands]
            subprocess.run(["sh", "-n"], input="\n".join(commands), text=True,
                           check=True)
            waiting = [command for step in steps if step.stopped
                       for c in step.changes for command in c.commands
                       if re.search("ovs-(ofctl|appctl)|ovs-vswitchd",
                                    command)]
            self.assertEqual(waiting, [])
        self.assertEqual(found, {"overrun"} | {
            kind.__name__ for kind in changes.Changes(1).kinds})
        self.assertNotEqual(changes.Changes(1).steps(9),
                            changes.Changes(2).steps(9))

    def test_reduce(self) -> None:
        n_runs = 0

        def fails(items: List[int]) -> bool:
            nonlocal n_runs
            n_runs += 1
            return {7, 30, 48} <= {*items}

        deadline = time.monotonic() + 60
        self.assertEqual(
            self.run_["reduce"](list(range(50)), fails, deadline),
            [7, 30, 48])
        self.assertLess(n_runs, 60)
        self.assertEqual(
            self.run_["reduce"]([7, 8, 30, 48], fails, 0), [7, 8, 30, 48])

    def test_assemble(self) -> None:
        """Changes stay in their step, which stays stopped."""
        a, b, c = (changes.Change(name, [name]) for name in "abc")
        steps = [changes.Step([a, b], 0), changes.Step([c], -1, True)]
        self.assertEqual(self.run_["assemble"](steps, [(0, b), (1, c)]),
                         [changes.Step([b], 0), changes.Step([c], -1, True)])
        self.assertEqual(self.run_["assemble"](steps, [(0, a)]),
                         [changes.Step([a], 0, True)])
