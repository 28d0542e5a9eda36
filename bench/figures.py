#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the figures in the documentation from committed results.

Between the lines "figures: NAME" and "end of figures", as comments of
reStructuredText or Markdown, a file has the table of bench/results/NAME.json,
as "bench/run ... NAME --json FILE" has written it, and what that was measured
with.  NAME may have a suffix, as in "flood-all", for another run.  "summary"
has sentences, of several results.  Whatever else is there, is replaced.  With
--check, says which files that would change, and which other sentences have
ratios to stock, or in README.md sizes, and changes nothing.
"""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from statistics import median
from typing import (Any, Callable, Dict, List, NamedTuple, Optional, Sequence,
                    Tuple, Union)
from unittest import mock

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
import addrs                                                   # noqa: E402
import memory                                                  # noqa: E402
import scale                                                   # noqa: E402
import txqueue as tx_queues                                    # noqa: E402
import upcalls as storms                                       # noqa: E402
import usdt as probes                                          # noqa: E402
from report import Result, number, ratio_cells, read_json      # noqa: E402
from stats import Ratio                                        # noqa: E402

TOP = Path(__file__).resolve().parent.parent
RESULTS = TOP / "bench/results"
BLOCK_RE = re.compile(
    r"^(?P<begin>(?:\.\. |<!-- )figures: (?P<name>.*?)(?: -->)?\n)"
    r"(?P<body>.*?)"
    r"^(?P<end>(?:\.\. |<!-- )end of figures(?: -->)?)$", re.M | re.S)

# A ratio, which has no unit: of what was measured, it belongs into a block.
RATIO_RE = re.compile(r"(?<![\w.])(?:0\.[5-9]\d{1,2}|1\.\d{2,3})(?![\w.%])"
                      r"(?!(?:\s+to\s+[\d,.]+)?\s+(?:us|ms|s|kB|MB)\b)")
SIZE_RE = re.compile(r"(?<![\w.])[\d,.]*\d\s+[kM]B\b")
# What looks like one and is none: literal text, versions, and how to read
# results.
NO_FIGURE_RE = re.compile(r"^    .*$|``.*?``|`.*?`|\bGo 1\.\d+", re.M)
NO_FIGURES = {"bench/README.rst": RATIO_RE,
              # us a flow, in a table that is computed.
              "bench/revalidators.rst": re.compile("0.95")}


class Failure(Exception):
    """Why a table can't be made."""


class Table(NamedTuple):
    header: List[str]
    rows: List[List[str]]

    def narrow(self) -> Table:
        """Returns this without columns that say the same in each row, of how
        often intervals are right, which their header says then, and of how
        many pairs there were, which the command or its help says."""
        header, columns = list(self.header), list(zip(*self.rows))
        keep = []
        for i, (name, cells) in enumerate(zip(header, columns)):
            values = set(cells) - {""}
            keep.append(name not in ("confidence", "pairs")
                        or len(values) != 1)
            if name == "confidence" and not keep[i]:
                header[i - 1] += f" ({values.pop()})"
        return Table([h for h, k in zip(header, keep) if k],
                     [[c for c, k in zip(row, keep) if k]
                      for row in self.rows])

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


def instructions(results: List[Result]) -> Table:
    upcall, accounting = results
    return Table(
        ["instructions per upcall", "median", "least", "most",
         "of accounting"],
        [[name, *(f"{of(counts):,.0f}" for of in (median, min, max)),
          f"{median(accounting.values[name]):,.0f}"]
         for name, counts in upcall.values.items()])


def upcalls(results: List[Result]) -> Table:
    times = results[0].values
    compared = [(name, r, ns) for name, r, ns, _ in storms.compare(times)]
    # Of bench/results/upcalls.json, the pairs of one ratio were not kept.
    compared += [(r.case, Ratio(*r.values["ratio"]), r.values["ns"][0])
                 for r in results if r.unit == "ratio"]
    return Table([f"time per upcall (stock {median(times['stock']) / 1e3:.2f} "
                  "us)", "ratio", "interval", "confidence", "difference",
                  "pairs"],
                 [[name, *ratio_cells(r), f"{ns:+.0f} ns", str(r.n)]
                  for name, r, ns in compared])


def flood(results: List[Result]) -> Table:
    """Instructions of two trees, or, of one that has accounting, with that off
    and on."""
    rows, with_off = [], []
    for r in results:
        case, kind, number_of = re.split(",? ", r.case)
        n_ports = int(number_of)
        middle = {name: median(counts) for name, counts in r.values.items()}
        begin = [case, kind, f"{n_ports:,}"]
        cells = []
        for name in "stock", "patched":
            spread = (max(r.values[name]) - min(r.values[name])) / 2
            cells += [f"{middle[name]:,.0f}",
                      f"{spread / middle[name] * 100:.1f}%"]
        rows.append([*begin, *cells,
                     f"{middle['patched'] / middle['stock']:.3f}"])
        if "off" in middle:
            growth = middle["growth"]
            more = middle["accounting"] - middle["accounting off"] - growth
            with_off.append([
                *begin, *(f"{middle[name] / 1000:,.0f} k"
                          for name in ("stock", "off", "patched")),
                f"{middle['off'] / middle['stock']:.3f}",
                f"{middle['patched'] / middle['off']:.3f}",
                f"{more / n_ports:.1f}", f"{growth / n_ports:.1f}"])
    ports = ["ports", "number", "stock"]
    if with_off:
        return Table(["case", *ports, "off", "on", "off/stock", "on/off",
                      "a port", "growth"], with_off)
    return Table(["instructions", *ports, "+-", "patched", "+-", "ratio"],
                 rows)


KERNEL_RATIOS = ("off/stock", "on/off", "on/stock", "queue/on", "trace/stock")


def kernel(results: List[Result]) -> Table:
    result, = results

    def instructions_of(variant: str) -> str:
        # The clock counts them, one in a nanosecond.
        return f"{median(result.values[variant]):,.0f}"

    rows = [["stock", instructions_of("stock"), "", "", "", ""]]
    for name in KERNEL_RATIOS:
        variant, base = name.split("/")
        rows.append([variant, instructions_of(variant), base,
                     *ratio_cells(result.ratio(variant, base), 4)])
    return Table(["variant", "instructions", "against", "ratio", "interval",
                  "confidence"], rows)


def totals(result: Result) -> List[Tuple[str, Any]]:
    """Returns the distribution of 'total' of each variant, of all storms."""
    distribution = drawing("distribution").Distribution
    named = []
    for name, storms_of in result.values.items():
        total = distribution.from_json(storms_of[0])
        for more in storms_of[1:]:
            total.merge(distribution.from_json(more))
        named.append((name, total))
    return named


def batches(results: List[Result]) -> str:
    """What an upcall takes with each tree, and when it was done, as trees with
    accounting reported it."""
    base = next(iter(results[0].values))
    rows = [[r.case, name, f"{median(ns):,.0f}",
             *([base, *ratio_cells(r.ratio(name, base), 4)] if name != base
               else [""] * 4)]
            for r in results if r.unit == "ns"
            for name, ns in r.values.items()]
    tables = [Table(["an upcall, ns", "variant", "median", "against", "ratio",
                     "interval", "confidence"], rows)]
    rows = [[r.case, name, f"{total.mean / 1e3:,.0f}",
             *(f"{total.percentile(p) / 1e3:,.0f}" for p in (50, 90, 99)),
             f"{total.max / 1e3:,.0f}"]
            for r in results if r.unit == "total" for name, total in totals(r)]
    if rows:
        tables.append(Table(["total, us", "variant", "mean", "p50", "p90",
                             "p99", "max"], rows))
    return "\n".join(table.narrow().rst() for table in tables)


def txqueue(results: List[Result]) -> Table:
    """Rates, bursts and latencies."""
    def both(result: Result, digits: int) -> str:
        return ", ".join(number(median(result.values[name]), digits)
                         for name in ("stock", "patched"))

    rows: Dict[str, List[str]] = {}
    for r in results:
        if r.unit in ("Mpps", "us"):
            rows[r.case] = [
                r.case.replace(", p", " p"),
                both(r, 3 if r.unit == "Mpps" else 1), "", "",
                *ratio_cells(r.ratio()), str(len(r.values["stock"]))]
        elif r.unit == tx_queues.RATE_UNITS[1]:
            rows[r.case][2] = both(r, 1)
        else:
            rows[r.case][3] = both(r, 0)
    return Table(["stock, patched", "Mpps, or us", "burst", "cycles", "ratio",
                  "interval", "confidence", "pairs"], list(rows.values()))


def histogram(results: List[Result]) -> Table:
    return Table(["on its own, in a loop", "median", "least", "most"],
                 [[r.case, *(f"{of(r.values['patched']):.1f} ns"
                             for of in (median, min, max))] for r in results])


def times_less(what: str, results: List[Result]) -> Table:
    """What stock takes, and all patches."""
    return Table([what, "stock", "patched", "times less", "interval",
                  "confidence", "pairs"],
                 [[r.case, *(f"{median(r.values[tree]):.2f} ms"
                             for tree in ("stock", "patched")),
                   *ratio_cells(r.ratio("stock", "patched"), 2),
                   str(len(r.values["stock"]))] for r in results])


def usdt(results: List[Result]) -> Table:
    rows = []
    for r in results:
        for name, ns in r.values.items():
            base = probes.BASES.get(name)
            rows.append([r.case, name, f"{1e9 / median(ns):,.0f}",
                         *(ratio_cells(r.ratio(name, base))
                           if base else [""] * 3), str(len(ns))])
    return Table(["a second", "variant", "median", "ratio of the time",
                  "interval", "confidence", "pairs"], rows)


class Alone(NamedTuple):
    """A result of one patch alone."""
    name: str                   # In RESULTS, ends with the patch.
    gains: List[str]            # Cases that show what it is worth.
    worst: List[str]            # Those in which it might lose.


ALONE = [
    Alone("txqueue-0100", ["full, 1000 us", "full, 50 us"],
          ["full, 0 us", "split"]),
    Alone("port_changes-0430", ["port"], ["request"]),
    Alone("port_changes-0441", ["route"], ["request"]),
    Alone("port_changes-0442", ["route"], ["port"]),
    Alone("port_changes-0450", ["request"], ["port"]),
]
# How large a value of a unit is in the table of all of them, what it is called
# there, and its decimals.
ALONE_UNITS = {"Mpps": (1.0, "Mpps", 3), "us": (1.0, "us", 1),
               "instructions": (1e3, "k", 0), "ms": (1.0, "ms", 2)}


def alone_table(results: Dict[str, List[Result]]) -> Table:
    """Returns one table of all ALONE."""
    rows = []
    for name, gains, worst in ALONE:
        patch = name.partition("-")[2]
        found = {r.case: r for r in results[name] if r.unit in ALONE_UNITS}
        for case in gains + worst:
            scale, unit, digits = ALONE_UNITS[found[case].unit]
            rows.append([
                patch, case, "worst" if case in worst else "",
                *(number(median(found[case].values[tree]) / scale, digits)
                  + f" {unit}" for tree in ("stock", "patched")),
                *ratio_cells(found[case].ratio())[:2]])
            patch = ""
    return Table(["patch", "case", "", "stock", "with it alone", "ratio",
                  "interval"], rows)


def fleet(results: List[Result]) -> Table:
    return Table(["one Prometheus", ""],
                 [[r.case, r.values["prometheus"][0]] for r in results])


def rules(results: List[Result]) -> str:
    """What 'ovs-cost diff' printed, as it is."""
    return "::\n\n" + "".join(f"    {line}".rstrip() + "\n" for r in results
                              for line in r.values["diff"])


def recording(results: List[Result]) -> Table:
    rows = [{name: value for name, (value,) in r.values.items()}
            for r in results]
    return Table(
        ["ports", "all threads", "main thread", "of one processor",
         "held up, p99", "at most", "size"],
        [[f"{row['ports']:,}", f"{row['us']:,.0f} us",
          f"{row['main_us']:,.0f} us", f"{row['recorded_percent']:.3f}%",
          f"{row['held_up_p99_us']:,.0f} us",
          f"{row['held_up_max_us']:,.0f} us", f"{row['kb']:.1f} kB"]
         for row in rows])


def pods(results: List[Result]) -> str:
    """What a cycle takes of the main thread, its system calls, and what the
    patched one reports of itself."""
    cases: Dict[str, Dict[str, Dict[str, List[float]]]] = {}
    for r in results:
        cases.setdefault(r.case, {})[r.unit] = r.values
    changing = [case for case, found in cases.items() if "up ms" in found]
    traced = [case for case in cases if "call all ms" in cases[case]]

    def cell(case: str, unit: str, digits: int = 0) -> str:
        return " / ".join(number(median(values), digits) for values
                          in cases[case].get(unit, {}).values())

    def rows(kind: str, of: List[str], *units: str,
             digits: int = 0) -> List[List[str]]:
        """Returns a row for each name of 'kind', which has cells of all
        'units' of each of the cases 'of'."""
        names = dict.fromkeys(unit.split()[1] for case in of
                              for unit in cases[case]
                              if unit.startswith(f"{kind} "))
        return [[name, *(cell(case, f"{kind} {name} {unit}", digits)
                         for case in of for unit in units)] for name in names]

    def explained(case: str) -> str:
        """Returns how much of the time that has passed is in a stage."""
        found = {unit: values["patched"] for unit, values
                 in cases[case].items() if unit.startswith("stage ")}
        passed = found.pop("stage elapsed ms")
        del found["stage run ms"]
        return f"{median(map(sum, zip(*found.values()))) / median(passed):.1%}"

    def times_less(case: str) -> List[str]:
        values = cases[case]["cpu ms"]
        return [*ratio_cells(Result(case, "", values).ratio(
            "stock", "patched"), 2), str(len(values["stock"]))]

    stages = rows("stage", changing, "ms", digits=1)
    stages += [[name, *(of(case) for case in changing)] for name, of in (
        ("explained", explained),
        ("processor", lambda case: cell(case, "cpu ms").split()[-1]),
        ("cost/threads", lambda case: cell(case, "threads ms")),
        ("waited", lambda case: cell(case, "wait ms").split()[-1]))]
    return "\n".join(table.narrow().rst() for table in (
        Table(["stock / patched", "main thread, ms", "times less", "interval",
               "confidence", "pairs", "port up, ms", "at most", "cycle, s"],
              [[case, cell(case, "cpu ms"), *times_less(case),
                cell(case, "up ms"), cell(case, "up max ms"),
                cell(case, "cycle s", 1)]
               for case in cases]),
        Table(["calls", *(title for case in traced
                          for title in (case, "ms"))],
              rows("call", traced, "calls", "ms")),
        Table(["patched, ms", *changing], stages),
        Table(["netlink", *(title for case in traced
                            for title in (case, "ms"))],
              rows("netlink", traced, "calls", "ms"))))


CT_STAGES = ("parse", "translate", "wait", "install", "execute", "operate",
             "total")


def ct(results: List[Result]) -> Table:
    """What the upcalls of a packet take, in us, and how many of them there can
    be in a second."""
    cases: Dict[str, Dict[str, List[float]]] = {}
    for r in results:
        cases.setdefault(r.case, {})[r.unit] = r.values["patched"]
    stages = [name for name in CT_STAGES if name in next(iter(cases.values()))]
    rows = []
    for case, found in cases.items():
        us, n = found["total"], median(found["upcalls"])
        rows.append([case, *(f"{median(found[stage]):.2f}"
                             for stage in stages),
                     *([f"{min(us):.2f} to {max(us):.2f}"] * (len(us) > 1)),
                     f"{n:.0f}", f"{n * 1e6 / median(us):,.0f}"])
    return Table(["us a packet", *stages, *["range"] * (len(us) > 1),
                  "upcalls", "a second"], rows)


def forwarding(results: List[Result]) -> str:
    """What a packet takes, by contender and rate, and what each one can do at
    most."""
    cases = {(r.case, r.unit): r.values for r in results}
    rates = list(dict.fromkeys(r.case for r in results if r.unit == "share"))
    names = list(cases[rates[0], "share"])

    def row(case: str, name: str) -> List[str]:
        found = {r.unit: r.values[name] for r in results
                 if r.case == case and name in r.values}
        out, rate = case.split(" out, ")
        middle = {what: median(values) for what, values in found.items()}
        counted = sum(middle.get(where, 0)
                      for where in ("devices", "sockets", "switch"))
        return [out, name, f"{int(rate):,}" if int(rate) else "all",
                f"{middle['pps']:,.0f}", f"{middle['share']:.1%}",
                f"{middle['ns']:,.0f}",
                f"{min(found['ns']):,.0f} to {max(found['ns']):,.0f}",
                f"{middle['tx ns']:,.0f}" if "tx ns" in middle else "",
                f"{counted / max(middle['sent'], 1):.1%}",
                f"{max(map(abs, found['uncounted'])):,.0f}"]

    latency = cases.get(("1 out, single", "p99 us"), {})
    return "\n".join(table.narrow().rst() for table in (
        Table(["out", "contender", "packets/s", "forwarded", "processor",
               "ns a packet", "range", "sending", "dropped", "uncounted"],
              [row(case, name) for case in rates for name in names
               if name in cases[case, "share"]]),
        Table(["contender", "single packets, p99, us"],
              [[name, f"{median(us):.1f}"] for name, us in latency.items()])))


TABLES: Dict[str, Callable[[List[Result]], Union[Table, str]]] = {
    "addrs": lambda results: Table(addrs.HEADER, addrs.rows(results)),
    "batches": batches,
    "ct": ct,
    "fleet": fleet,
    "flood": flood,
    "forwarding": forwarding,
    "histogram": histogram,
    "instructions": instructions,
    "kernel": kernel,
    "learning": upcalls,
    "memory": lambda results: Table(memory.HEADER, memory.cells(results)),
    "pods": pods,
    "port_changes": lambda results: times_less("1,152 ports", results),
    "recording": recording,
    "reports": lambda results: Table(scale.REPORTS_HEADER,
                                     scale.report_rows(results)),
    "rules": rules,
    "stats_loop": lambda results: times_less("1,024 ports", results),
    "txqueue": txqueue,
    "upcalls": upcalls,
    "usdt": usdt,
}


def fill(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 79, subsequent_indent=indent,
                         break_long_words=False, break_on_hyphens=False) + "\n"


def machine_of(data: Dict[str, Dict]) -> str:
    """Says on what 'data' was measured."""
    where, tree = data["machine"], data["trees"]["ovs"]
    machine = "virtual machine" if where["virtual"] else "no hypervisor"
    return (f"{where['cpu']}, {where['cores']} cores, {machine}, Linux "
            f"{where['kernel']}, {tree['compiler']}, ``{tree['CFLAGS']}``")


def command_of(data: Dict[str, Dict]) -> str:
    return f"``{data['command']}``, {data['date']}, commit {data['commit']}"


def provenance(name: str, data: Dict[str, Dict], markdown: bool) -> str:
    """Says with what 'data' was measured."""
    tree = data["trees"]["ovs"]
    text = (f"Made from ``bench/results/{name}.json``: {command_of(data)}; "
            f"{machine_of(data)}; with the topics {tree['topics']}")
    if tree.get("patches"):
        text += f", of their patches only {tree['patches']}"
    text += "."
    return text.replace("``", "`") + "\n" if markdown else fill(text)


def load(name: str) -> Dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise Failure(f"there is no {path.relative_to(TOP)}")
    return read_json(path)


def make_alone() -> str:
    """Returns what the block "alone" has to be."""
    data = {alone.name: load(alone.name) for alone in ALONE}
    results = {name: of["results"][name.partition("-")[0]]
               for name, of in data.items()}
    machines: Dict[str, List[str]] = {}
    for name, of in data.items():
        machines.setdefault(machine_of(of), []).append(fill(
            f"- {of['trees']['ovs']['patches']}: {command_of(of)}", "  "))
    return "\n" + alone_table(results).rst() + "\n" + "".join(
        fill(f"Made on {machine}:") + "\n" + "".join(lines) + "\n"
        for machine, lines in machines.items())


def best_and_worst(ratios: List[Tuple[str, str]], of: str) -> str:
    """Returns a sentence's part with 'ratios', each one with its case, of
    which the last one is the worst, to what 'of' is."""
    cases = [f"{ratio} times with {case}" for ratio, case in ratios]
    cases[0] = cases[0].replace(" times", f" times {of}", 1)
    return ", ".join(cases[:-1]) + f", and at worst {cases[-1]}"


def make_summary() -> str:
    """Returns what the block "summary" has to be: the best and the worst of
    what accounting.rst and output-queues.rst have."""
    names = ["txqueue-forward", "flood-all", "flood-10000", "memory"]
    data = {name: load(name) for name in names}
    results = {name: data[name]["results"][name.partition("-")[0]]
               for name in names}
    packets = {r.case: r.ratio() for r in results["txqueue-forward"]
               if r.unit == "Mpps"}
    rates = sorted(
        ((packets[case], what)
         for case, what in (("full, 0 us", "full bursts"),
                            ("split", "bursts of 8 to four devices"),
                            ("single", "bursts of one packet"))),
        key=lambda rate: -rate[0].median)
    forwarding = best_and_worst([
        (f"{rate.median:.3f} ({rate.low:.3f} to {rate.high:.3f})", what)
        for rate, what in rates], "the packet rate of stock OVS")
    floods = sorted(
        (median(r.values["patched"]) / median(r.values["stock"]),
         int(r.case.split()[-1]))
        for name in ("flood-all", "flood-10000") for r in results[name]
        if r.case.startswith("flood,"))
    flooding = best_and_worst([
        (f"{ratio:.3f}", f"{n:,} ports")
        for ratio, n in (floods[0], floods[-1])],
        "the instructions of stock OVS")
    large = max(results["memory"], key=memory.size)
    n_ports, n_threads = memory.size(large)
    before, _, after, later = large.values["of the process"]
    kernels = ", ".join(dict.fromkeys(of["machine"]["kernel"]
                                      for of in data.values()))
    return (
        f"Forwarding to DPDK devices without a NIC reaches {forwarding}. A "
        f"flood to dummy ports takes {flooding}. Accounting for the bursts of "
        f"{n_threads} threads to {n_ports:,} ports takes "
        f"{before:.0f} MB of the process before any traffic, {after:.0f} MB "
        f"once each thread has sent {memory.N_BURSTS:,} bursts to each port, "
        f"and {later:.0f} MB when all of them have been busy for 18 minutes. "
        "Made from " + ", ".join(f"`{name}.json`" for name in names)
        + f" in `bench/results`, on Linux {kernels}; "
        "[accounting.rst](bench/accounting.rst) and "
        "[output-queues.rst](bench/output-queues.rst) have all of it.\n")


def drawing(module: str) -> Any:
    """Returns a module of ovs-cost, of this tree: the installed package of
    this name need not have it."""
    package = types.ModuleType("ovs")
    package.__path__ = [str(TOP / "python/ovs")]
    with mock.patch.dict(sys.modules, {"ovs": package}):
        return importlib.import_module(f"ovs.cost.{module}")


def picture(height: float, *parts: str) -> str:
    """Returns a file with a drawing, in light colors."""
    svg = drawing("svg")
    style = re.sub(r"var\(--(\w+)\)", lambda m: svg.LIGHT[m[1]], svg.STYLE)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{svg.WIDTH}" '
        f'height="{height}"><!-- SPDX-License-Identifier: Apache-2.0 -->'
        f'<style>{style}</style>'
        f'<rect width="{svg.WIDTH}" height="{height}" fill="#fff"/>',
        *parts]) + "\n</svg>\n"


def batches_chart(result: Result) -> str:
    """Returns a picture of when upcalls were done, by size of the batches."""
    svg = drawing("svg")
    boxes = svg.box_plots([(f"batches of {name}", total)
                           for name, total in totals(result)], svg.time_label)
    return picture(svg.TOP + 32 * len(result.values) + svg.BOTTOM, boxes)


def forwarding_chart(results: List[Result], n_out: int) -> str:
    """Returns a picture of the share of a processor by packets a second."""
    series: Dict[str, List[Tuple[float, float]]] = {}
    cases = {(r.case, r.unit): r.values for r in results}
    for (case, unit), values in cases.items():
        if unit == "share" and case.startswith(f"{n_out} out"):
            for name, shares in values.items():
                series.setdefault(name, []).append(
                    (median(cases[case, "pps"][name]), median(shares) * 100))
    svg = drawing("svg")
    points = [point for line in series.values() for point in line]
    width, height = svg.WIDTH, 300
    x = svg.log_axis(min(p[0] for p in points), max(p[0] for p in points),
                     svg.LEFT, width - svg.RIGHT, svg.number_label)
    y = svg.linear_axis(max(100, *(p[1] for p in points)),
                        height - svg.BOTTOM, svg.TOP, lambda v: f"{v:.0f}%")
    parts = svg._frame(x, y, height)
    for i, (name, line) in enumerate(series.items()):
        path = " ".join(f"{x.position(a):.1f},{y.position(b):.1f}"
                        for a, b in sorted(line))
        parts += [f'<g class="{svg.color(i)}"><polyline class="line" '
                  f'points="{path}"/><text x="{svg.LEFT + 12}" '
                  f'y="{svg.TOP + 20 * (i + 1)}" fill="currentColor" '
                  f'font-family="sans-serif">{svg.escape(name)}</text></g>']
    return picture(height, *parts)


def charts() -> Dict[Path, str]:
    """Returns the pictures that documents have."""
    results = load("forwarding")["results"]["forwarding"]
    learning = load("batches")["results"]["batches"]
    return {**{TOP / f"bench/forwarding-{n}.svg": forwarding_chart(results, n)
               for n in (1, 2)},
            **{TOP / f"bench/batches-{r.case.split()[0]}.svg": batches_chart(r)
               for r in learning if r.unit == "total"}}


class Theirs(NamedTuple):
    """A figure of an article, and where ours is: variants of a case of a
    result."""
    article: str
    figure: str
    theirs: str
    result: str
    case: str
    unit: str
    variants: Tuple[str, str] = ("stock", "patched")
    shown_unit: str = ""


PODS = "128+0 pods"
FULL = "out, 0"
THEIRS = [
    Theirs("1", "kernel, total, 10 packets", "93.3 us",
           "ct-kernel", "plain", "total", ("", "patched"), "us"),
    Theirs("1", "kernel, lookup", "29.2 us", "ct-kernel", "plain",
           "translate", ("", "patched"), "us"),
    Theirs("2", "statistics, 1,024 veth", "63.0 ms, 104.2 ms",
           "stats_loop-kernel", "kernel, idle loop", "ms"),
    Theirs("2", "pods: sendmsg, calls", "99,109; 91,052", "pods", PODS,
           "call sendmsg calls", shown_unit="a cycle"),
    Theirs("2", "pods: sendmsg, time", "4,959 ms; 4,461 ms", "pods", PODS,
           "call sendmsg ms", shown_unit="ms a cycle"),
    Theirs("2", "pods: recvmsg, calls", "115,014; 107,575", "pods", PODS,
           "call recvmsg calls", shown_unit="a cycle"),
    Theirs("2", "pods: recvmsg, time", "1,666 ms; 3,308 ms", "pods", PODS,
           "call recvmsg ms", shown_unit="ms a cycle"),
    Theirs("2", "pods: sendto, calls", "915; 932", "pods", PODS,
           "call sendto calls", shown_unit="a cycle"),
    Theirs("2", "pods: sendto, time", "864 ms; 485 ms", "pods", PODS,
           "call sendto ms", shown_unit="ms a cycle"),
    Theirs("2", "pods: all calls but poll", "412,283; 377,964", "pods", PODS,
           "call all calls", shown_unit="a cycle"),
    Theirs("2", "pods: time of these", "8,295 ms; 8,721 ms", "pods", PODS,
           "call all ms", shown_unit="ms a cycle"),
    Theirs("2", "getifaddrs(), 1,024 veth", "3,986 ns; 4,228 ns",
           "addrs", "one device, 1024", "us"),
    Theirs("2", "upcalls with ct(): plain", "to do", "ct", "plain", "total",
           ("", "patched"), "us a packet"),
    Theirs("2", "ct(), new", "to do", "ct", "ct, new", "total",
           ("", "patched"), "us a packet"),
    Theirs("2", "ct(nat), new", "to do", "ct", "nat, new", "total",
           ("", "patched"), "us a packet"),
    Theirs("3", "a packet, no tracer", "-0.20% to 1.64%", "usdt",
           "forwarding", "ns", ("without", "with")),
    Theirs("3", "a packet, tracer", "3.16% to 15.29%", "usdt", "forwarding",
           "ns", ("without", "attached")),
    Theirs("3", "a packet, accounting", "none", "usdt", "forwarding", "ns",
           ("without", "cost")),
    Theirs("4", "OVS, one out, at most", "1.2 M a second",
           "forwarding", f"1 {FULL}", "pps", ("", "af_packet"), "a second"),
    Theirs("4", "OVS, two out, at most", "1.6 M a second", "forwarding",
           f"2 {FULL}", "pps", ("", "af_packet"), "a second"),
    Theirs("4", "XDP, one out, at most", "2 M a second", "forwarding",
           f"1 {FULL}", "pps", ("", "XDP"), "a second"),
    Theirs("4", "XDP, two out, at most", "not reached", "forwarding",
           f"2 {FULL}", "pps", ("", "XDP"), "a second"),
    Theirs("5", "4 flows, interval 0", "not given", "txqueue",
           "rules, 0 us", "Mpps"),
    Theirs("5", "4 flows, interval 50 us", "not given", "txqueue",
           "rules, 50 us", "Mpps"),
]


def make_articles() -> str:
    """Returns what the block "articles" has to be."""
    data = {row.result: load(row.result) for row in THEIRS}
    rows = []
    for row in THEIRS:
        found = [r for r in data[row.result]["results"][
            row.result.partition("-")[0]]
            if (r.case, r.unit) == (row.case, row.unit)]
        cells = []
        for variant in row.variants:
            values = [median(r.values[variant]) for r in found
                      if variant in r.values]
            cells.append(f"{number(values[0], 1)} "
                         f"{row.shown_unit or row.unit}" if values else "")
        rows.append([row.article, row.figure, row.theirs, *cells, row.result])
    return "\n" + Table(["article", "figure", "theirs", "stock", "ours",
                         "result"], rows).rst() + "\n"


def make(name: str, markdown: bool) -> str:
    """Returns what the block 'name' has to be."""
    if name == "alone":
        return make_alone()
    if name == "articles":
        return make_articles()
    if name == "summary":
        return make_summary()
    benchmark = name.partition("-")[0]
    if benchmark not in TABLES:
        raise Failure(f"there are no figures '{name}'; there are alone, "
                      "articles, summary, " + ", ".join(TABLES))
    data = load(name)
    table = TABLES[benchmark](data["results"][benchmark])
    if isinstance(table, Table):
        table = table.narrow()
        table = table.markdown() if markdown else table.rst()
    return "\n" + table + "\n" + provenance(name, data, markdown) + "\n"


def replace(path: Path, text: str) -> str:
    """Returns 'text', which 'path' has, with the present figures."""
    def block(match: re.Match[str]) -> str:
        try:
            body = make(match["name"], path.suffix == ".md")
        except Failure as error:
            raise Failure(f"{path.relative_to(TOP)}: {error}")
        return match["begin"] + body + match["end"]

    return BLOCK_RE.sub(block, text)


def by_hand(name: str, text: str) -> List[str]:
    """Returns the figures in the document 'name', which has 'text', that are
    in no block."""
    text = NO_FIGURE_RE.sub("", BLOCK_RE.sub("", text))
    if name in NO_FIGURES:
        text = NO_FIGURES[name].sub("", text)
    found = RATIO_RE.findall(text)
    if name == "README.md":
        found += SIZE_RE.findall(text)
    return [" ".join(figure.split()) for figure in found]


def documents() -> List[Path]:
    done = subprocess.run(["git", "ls-files", "*.md", "*.rst"], cwd=TOP,
                          stdout=subprocess.PIPE, text=True, check=True)
    return [TOP / name for name in done.stdout.splitlines()
            if (TOP / name).is_file()]


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench/figures.py", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true",
                        help="change nothing")
    args = parser.parse_args(argv)
    n_bad = 0
    pictures = charts()
    for path in [*documents(), *pictures]:
        text = path.read_text() if path.exists() else ""
        try:
            new = pictures.get(path) or replace(path, text)
        except Failure as error:
            print(error)
            n_bad += 1
            continue
        for figure in ([] if path in pictures else
                       by_hand(str(path.relative_to(TOP)), new)):
            print(f"{path.relative_to(TOP)}: {figure} is in no 'figures: NAME'"
                  ", so that it need not be that of bench/results")
            n_bad += args.check
        if new != text:
            print(f"{path.relative_to(TOP)}: "
                  + ("is not what 'make figures' makes of bench/results"
                     if args.check else "updated"))
            n_bad += args.check
            if not args.check:
                path.write_text(new)
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
