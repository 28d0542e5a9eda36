# SPDX-License-Identifier: Apache-2.0
"""What benchmarks have in common, and their results: how they are written and
read, and the tables that are made from them."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shlex
import shutil
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import (Any, Callable, Dict, Iterable, Iterator, List, NamedTuple,
                    Sequence, Tuple)

from bench import machine
from bench.stats import Median, ratio


class Result(NamedTuple):
    """The values that each variant has in one case: one for each pair of
    processes."""
    case: str
    unit: str
    values: Dict[str, List[Any]]

    def ratio(self, above: str, below: str) -> Median:
        return ratio(self.values[above], self.values[below])


@dataclass
class Context:
    """What a benchmark gets, and what it has measured."""
    stock: Path
    ovs: Path
    directory: Path             # For temporary files.
    args: argparse.Namespace
    started: float = 0.0
    results: Dict[Tuple[str, str], Result] = field(default_factory=dict)

    @property
    def trees(self) -> Dict[str, Path]:
        return {"stock": self.stock, "patched": self.ovs}

    def choose(self, option: str, usual: int, quick: int) -> int:
        """Returns the value of an option, or its default."""
        return (getattr(self.args, option)
                or (quick if self.args.quick else usual))

    def turns(self, names: Iterable[str], usual: int, quick: int
              ) -> Iterator[Tuple[int, str]]:
        """Yields the number of each pair with 'names', which take turns."""
        for k in range(self.choose("pairs", usual, quick)):
            for name in list(names)[::-1 if k % 2 else 1]:
                yield k, name

    def compare(self, what: str, create: Callable[..., Any],
                measure: Callable[[str, Any], None],
                finish: Callable[[Any], None] = lambda _switch: None) -> None:
        """Has 'create' make a switch of each tree in a directory, sets all up,
        and calls 'measure' with the tree's name and the switch, for each pair,
        in turns; then 'finish' with each switch."""
        with contextlib.ExitStack() as stack:
            switches = {}
            for name, tree in self.trees.items():
                self.progress(f"{what}, {name}")
                where = self.directory / f"{what.split()[-1]}-{name}"
                stack.callback(shutil.rmtree, where, ignore_errors=True)
                switches[name] = stack.enter_context(create(tree, where))
                switches[name].set_up()
            for k, name in self.turns(switches, 9, 2):
                self.progress(f"{what}, pair {k + 1}, {name}")
                measure(name, switches[name])
            for switch in switches.values():
                finish(switch)

    def add(self, case: str, unit: str, variant: str, *values: Any) -> None:
        """Adds to the results what was measured."""
        self.results.setdefault((case, unit), Result(
            case, unit, {})).values.setdefault(variant, []).extend(values)

    def progress(self, message: str) -> None:
        """Says what is going on."""
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


def write_json(path: Path, command: str, trees: Dict[str, Path],
               results: Dict[str, List[Result]], **about: object) -> None:
    """Writes what 'command' has measured of 'trees'."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_json(results, **{
        "command": command,
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


def number(value: float, digits: int = 3) -> str:
    """Returns 'value' with four significant digits, but at most 'digits'
    decimals, and no less than all digits of its whole part."""
    digits = min(digits, max(3 - math.floor(math.log10(abs(value))), 0)) \
        if value else 0
    return f"{value:,.{digits}f}"


class Table(NamedTuple):
    header: List[str]
    rows: List[List[str]]

    def narrow(self) -> Table:
        """Returns this without columns that say the same in each row: what
        that is, is in a header instead."""
        header, kept, corner = list(self.header), [], []
        for i, name in enumerate(self.header):
            values = {row[i] for row in self.rows} - {""}
            if len(values) > 1 or values and name not in (
                    "case", "unit", "variant", "against", "coverage"):
                kept.append(i)
            elif name == "coverage":
                header[i - 1] += f" ({''.join(values)})"
            elif name in ("variant", "against"):
                header[i + 1] = "".join(values) or header[i + 1]
            else:
                corner += values
        header[kept[0]] = ", ".join(corner) or {"case": ""}.get(
            header[kept[0]], header[kept[0]])
        return Table([header[i] for i in kept],
                     [[row[i] for i in kept] for row in self.rows])

    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)

    def rst(self) -> str:
        widths = [max(map(len, column))
                  for column in zip(self.header, *self.rows)]
        rule = " ".join("=" * width for width in widths)
        lines = [" ".join(cell.ljust(width) for cell, width
                          in zip(line, widths)).rstrip()
                 for line in [self.header, *self.rows]]
        return "\n".join([rule, lines[0], rule, *lines[1:], rule]) + "\n"


def ratios(results: Iterable[Result], pairs: Sequence[str]) -> Table:
    """A row for each result and each of 'pairs', variants "A/B" that it
    has."""
    rows = []
    for r in results:
        for above, below in (pair.split("/") for pair in pairs):
            if above in r.values and below in r.values:
                found = r.ratio(above, below)
                digits = (2 if found.median >= 10 else
                          3 if found.high - found.low > 0.005 else 4)
                rows.append([
                    r.case, r.unit, above, number(median(r.values[above])),
                    below, number(median(r.values[below])),
                    f"{found.median:.{digits}f}",
                    f"{found.low:.{digits}f} to {found.high:.{digits}f}",
                    f"{int(found.coverage * 1000) / 10:.1f}%",
                    f"{median(differences(r, above, below)):+,.0f}"
                    if r.unit == "ns" else ""])
    return Table(["case", "unit", "variant", "median", "against", "median",
                  "ratio", "interval", "coverage", "difference"], rows)


def differences(r: Result, above: str, below: str) -> List[float]:
    return [a - b for a, b in zip(r.values[above], r.values[below])]


def spread(results: Iterable[Result]) -> Table:
    """A row for each variant of each result: median, least and most."""
    return Table(["case", "variant", "unit", "median", "least", "most"],
                 [[r.case, name, r.unit, *(number(of(values))
                                           for of in (median, min, max))]
                  for r in results for name, values in r.values.items()])


def cells(results: Iterable[Result], by: str) -> Table:
    """A row for each "case", "unit" or "variant", as 'by' says, or several of
    them, with a plus; a column for each of what is left."""
    names = ("case", "unit", "variant")
    found: Dict[str, Dict[str, str]] = {}
    columns: Dict[str, None] = {}
    for r in results:
        for variant, values in r.values.items():
            key = dict(zip(names, (r.case, r.unit, variant)))
            row = ", ".join(key[name] for name in by.split("+"))
            column = ", ".join(key[name] for name in names
                               if name not in by.split("+"))
            columns[column] = None
            found.setdefault(row, {})[column] = (
                values[0] if isinstance(values[0], str)
                else number(median(values)))
    # What all columns say is said once.
    words = [column.split(", ") for column in columns]
    common = [word for word in words[0] if all(word in w for w in words)] \
        if len(words) > 1 else []
    return Table(
        [", ".join(common), *(", ".join(w for w in column if w not in common)
                              for column in words)],
        [[row, *(of.get(column, "") for column in columns)]
         for row, of in found.items()])


# How the results of a benchmark are shown: the kind of table, and arguments.
# "case=PATTERN" and "unit=PATTERN" choose results.
TABLES = {
    "addrs": "ratios stock/patched unit=us",
    "batches": "ratios 32/64 16/64 1/64 ovs/stock unit=ns",
    "ct": "cells case",
    "fleet": "cells case",
    "flood": "ratios off/stock patched/off",
    "forwarding": "cells case+variant",
    "histogram": "spread",
    "instructions": "cells variant",
    "kernel": "ratios off/stock on/off on/stock queue/on trace/stock",
    "memory": "cells case",
    "pods": "ratios stock/patched unit=cpu*",
    "port_changes": "ratios stock/patched",
    "recording": "cells unit+variant",
    "reports": "spread",
    "stats_loop": "ratios stock/patched",
    "trim": "cells case unit=MB",
    "txqueue": "ratios patched/stock unit=Mpps",
    "upcalls": "ratios off/stock on/stock on/off every/off uprobes/beside",
    "usdt": "ratios with/without attached/with cost/with",
}


def make_table(benchmark: str, results: Iterable[Result],
               spec: str = "") -> Table:
    """Returns the table of 'results' that 'spec' describes."""
    kind, *words = shlex.split(spec or TABLES[benchmark])
    for word in [w for w in words if "=" in w]:
        field, pattern = word.split("=", 1)
        words.remove(word)
        results = [r for r in results
                   if fnmatchcase(getattr(r, field), pattern)]
    table = (ratios(results, words) if kind == "ratios" else
             cells(results, *words) if kind == "cells" else spread(results))
    if not table.rows:
        raise ValueError(f"{benchmark} has nothing for '{spec}'")
    return table.narrow()
