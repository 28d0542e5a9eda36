# SPDX-License-Identifier: Apache-2.0
"""What a benchmark gets, and how its results are printed."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Optional, Sequence

import machine
from stats import Ratio, describe_interval, verdict


@dataclass
class Context:
    """What a benchmark gets."""
    stock: Path
    ovs: Path
    directory: Path             # For temporary files.
    args: argparse.Namespace
    started: float = 0.0

    def progress(self, message: str) -> None:
        """Says what is going on, unless that is not wanted."""
        if not self.args.quiet:
            elapsed = time.monotonic() - self.started
            print(f"  {elapsed:5.0f} s  {message}", flush=True)


def write_json(path: Path, command: str, args: Sequence[str],
               **found: object) -> None:
    """Writes what 'command' with 'args' has found."""
    path.write_text(json.dumps(
        {"command": " ".join([command, *args]),
         "date": time.strftime("%Y-%m-%d", time.gmtime()),
         "commit": machine.describe_commit(), **found}, indent=2) + "\n")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns an aligned table: the first column to the left, the others to
    the right."""
    widths = [max(len(row[i]) for row in [header, *rows])
              for i in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width)
                  for cell, width in zip(row[1:], widths[1:])]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def ratio_line(name: str, r: Ratio, budget: Optional[float],
               note: str = "", judge: bool = True) -> str:
    """Returns the line that tells the result of a comparison."""
    words = [f"  ratio  {name:<13} {r.median:6.3f}  "
             + describe_interval(f"{r.low:.3f}", f"{r.high:.3f}",
                                 r.coverage)]
    if note:
        words.append(note)
    if judge:
        words.append(verdict(r, budget))
    return "  ".join(words)


def ratio_json(r: Ratio, budget: Optional[float],
               judge: bool = True) -> Dict[str, object]:
    result = r.as_dict()
    result["budget"] = budget
    if judge:
        result["verdict"] = verdict(r, budget)
    return result
