#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares examples of reports in documents with reports of a switch.

    cost-documents.py REPORT DOCUMENT...

REPORT has the text of reports.  An example in a DOCUMENT may have only stages
and numbers of the reports on the same events, in the same order, and only
names that these have in the same line, apart from digits and from classes,
which depend on traffic.  Prints what is wrong, if anything.
"""

from __future__ import annotations

import re
import sys
from typing import Dict, Iterable, List, Set

HEAD = re.compile(r"( *)\S+: [0-9,]+ ([a-z]+?)s? in [0-9.]+ s\b")
ROW = re.compile(r" *([a-z]+) +[0-9]| *(stage|number) .*\bcount ")
ITEM = re.compile(r"(\S+) [0-9,]+ \([0-9.]+%\)")


class Report:
    """What a report, or an example, has."""

    def __init__(self, where: str, event: str) -> None:
        self.where = where
        self.event = event
        self.rows: List[str] = []
        self.names: Dict[str, Set[str]] = {}

    def add(self, line: str) -> None:
        label, colon, rest = line.strip().partition(":  ")
        row = ROW.match(line)
        if colon:
            items = ITEM.findall(rest)
            if items and label != "class":
                self.names[label] = {re.sub("[0-9]+", "N", i) for i in items}
        elif row:
            self.rows.append(row.group(1) or row.group(2))

    def merge(self, other: Report) -> None:
        self.rows = other.rows or self.rows
        for label, names in other.names.items():
            self.names[label] = self.names.get(label, set()) | names

    def errors(self, real: Dict[str, Report]) -> Iterable[str]:
        """Yields what none of the 'real' reports has."""
        other = real.get(self.event)
        if not other:
            yield f"{self.where}: there is no report on {self.event}s"
            return
        rows = iter(other.rows)
        for row in self.rows:
            if row not in rows:
                yield f"{self.where}: {row}: not in {other.rows}"
                break
        for label, names in self.names.items():
            for name in sorted(names - other.names.get(label, set())):
                yield f"{self.where}: {label}: {name}: not printed"


def read(path: str) -> List[Report]:
    """Returns the reports in a file."""
    reports: List[Report] = []
    indent = None
    with open(path, encoding="utf-8") as file:
        for i, line in enumerate(file, 1):
            head = HEAD.match(line)
            if head:
                indent = head.group(1) + " "
                reports.append(Report(f"{path}:{i}", head.group(2)))
            elif indent and line.startswith(indent):
                reports[-1].add(line.rstrip())
            else:
                indent = None
    return reports


def main() -> int:
    real: Dict[str, Report] = {}
    for report in read(sys.argv[1]):
        real.setdefault(report.event, report).merge(report)
    errors = []
    for document in sys.argv[2:]:
        examples = read(document)
        if not any(example.rows for example in examples):
            errors.append(f"{document}: no example")
        for example in examples:
            errors.extend(example.errors(real))
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
