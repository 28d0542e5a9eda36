# SPDX-License-Identifier: Apache-2.0
"""The stage "tools": Python's unit tests."""

from __future__ import annotations

import os
import tempfile
import unittest
from typing import List

from tools.autotest import FAIL, PASS, SKIP, TODO, Job
from tools.project import TOP


class Verdicts(unittest.TextTestResult):
    """Keeps the verdict of each test."""

    job: Job

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        why = dict(self.skipped).get(test, "")
        failed = any(getattr(one, "test_case", one) == test     # Of a subtest.
                     for one, _ in self.failures + self.errors)
        self.job.add(name_of(test), FAIL if failed else SKIP if why else PASS,
                     why)


def name_of(test: unittest.TestCase) -> str:
    return test.id().split(".", 2)[2]


def flatten(suite: unittest.TestSuite | unittest.TestCase
            ) -> List[unittest.TestCase]:
    if not isinstance(suite, unittest.TestSuite):
        return [suite]
    return [test for part in suite for test in flatten(part)]


def check(job: Job) -> None:
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{word}*" for word in job.flags] or None
    suite = unittest.TestSuite(
        loader.discover(str(TOP / name), top_level_dir=str(TOP))
        for name in ("tools", "bench", "differential"))
    Verdicts.job = job
    for test in flatten(suite):
        job.add(name_of(test), TODO)
    # Tests do not clean up after a signal.
    with tempfile.TemporaryDirectory(prefix="ovs-cost-tools.") as directory:
        tempfile.tempdir = os.environ["TMPDIR"] = directory
        unittest.TextTestRunner(resultclass=Verdicts, verbosity=2).run(suite)
