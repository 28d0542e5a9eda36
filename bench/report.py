# SPDX-License-Identifier: Apache-2.0
"""The results of benchmarks: how they are printed, written and read."""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import machine
from stats import Ratio, describe_interval, ratio, verdict


class Result(NamedTuple):
    """The values that each variant has in one case: one for each pair of
    processes."""
    case: str
    unit: str
    values: Dict[str, List[Any]]

    def ratio(self, above: str = "patched", below: str = "stock") -> Ratio:
        return ratio(self.values[above], self.values[below])


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


def rounded(value: Any) -> Any:
    """Returns a number with five significant digits, but no less than all
    digits of its whole part."""
    if not isinstance(value, float):
        return value
    if value:
        digits = max(4 - math.floor(math.log10(abs(value))), 0)
        value = round(value, digits)
    return int(value) if value.is_integer() else value


def as_json(results: Dict[str, List[Result]], **about: object) -> str:
    """Returns a JSON object: a line for each member of 'about', and one for
    each result."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}"
             for name, value in about.items()]
    benchmarks = []
    for name, found in results.items():
        rows = [json.dumps({"case": r.case, "unit": r.unit,
                            **{variant: list(map(rounded, values))
                               for variant, values in r.values.items()}})
                for r in found]
        benchmarks.append(f"{json.dumps(name)}: [\n" + ",\n".join(rows) + "]")
    lines.append('"results": {' + ",\n".join(benchmarks) + "}")
    return "{" + ",\n".join(lines) + "}\n"


def write_json(path: Path, command: str, args: Sequence[str],
               trees: Dict[str, Path], results: Dict[str, List[Result]],
               **about: object) -> None:
    """Writes what 'command' with 'args' has measured of 'trees'."""
    path.write_text(as_json(results, **{
        "command": " ".join([command, *args]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": machine.describe_commit(),
        "machine": machine.describe(),
        "trees": {name: machine.describe_tree(tree)
                  for name, tree in trees.items()}, **about}))


def read_json(path: Path) -> Dict[str, Any]:
    """Returns what write_json() has written to 'path'."""
    data: Dict[str, Any] = json.loads(path.read_text())
    data["results"] = {
        name: [Result(r.pop("case"), r.pop("unit"), r) for r in found]
        for name, found in data["results"].items()}
    return data


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


def number(value: float, digits: int) -> str:
    """Returns 'value' with 'digits' decimals, less those that a result does
    not have."""
    if value:
        digits = min(digits,
                     max(4 - math.floor(math.log10(abs(value))), 0))
    return f"{value:,.{digits}f}"


def ratio_cells(r: Ratio, digits: int = 3) -> List[str]:
    """Returns the cells of a table that a ratio has: its median, the interval,
    and how often that is right, never rounded up."""
    return [f"{r.median:.{digits}f}",
            f"{r.low:.{digits}f} to {r.high:.{digits}f}",
            f"{int(r.coverage * 1000) / 10:.1f}%"]


def times_less(unit: str, results: Sequence[Result],
               note: Callable[[str, Ratio], str]) -> str:
    """Returns what each tree takes, and how many times less it is than stock;
    'note' returns what to say of a case."""
    trees = "stock", "patched"
    ratios = {r.case: r.ratio("stock", "patched") for r in results}
    return "\n".join([
        table([unit, *trees],
              [[r.case, *(f"{median(r.values[tree]):.2f}"
                          for tree in trees)] for r in results]), "",
        *(ratio_line(f"stock/patched, {case}", r, None, note(case, r),
                     judge=False) for case, r in ratios.items())])


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
