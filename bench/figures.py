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
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from statistics import median
from typing import (Any, Callable, Dict, List, NamedTuple, Optional, Sequence,
                    Tuple, Union)

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import addrs as addresses                                      # noqa: E402
import memory                                                  # noqa: E402
import scale                                                   # noqa: E402
import stats                                                   # noqa: E402
import txqueue as tx_queues                                    # noqa: E402

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
              "Documentation/topics/revalidator-cost.rst": re.compile("0.95")}


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


def confidence(coverage: float) -> str:
    """Returns how often an interval is right, never rounded up."""
    return f"{int(coverage * 1000) / 10:.1f}%"


def interval(r: Dict[str, float], digits: int = 3) -> List[str]:
    """Returns the cells of a ratio: how large it is, what its median lies in,
    and how often that is right."""
    return [f"{r['median']:.{digits}f}",
            f"{r['low']:.{digits}f} to {r['high']:.{digits}f}",
            confidence(r["coverage"])]


def instructions(result: Dict[str, Dict[str, Dict]]) -> Table:
    rows = []
    for name, counts in result["counts"].items():
        totals = [c["total"] for c in counts]
        rows.append([name, f"{median(totals):,.0f}", f"{min(totals):,.0f}",
                     f"{max(totals):,.0f}",
                     f"{median(c['ours'] for c in counts):,.0f}"])
    return Table(["instructions per upcall", "median", "least", "most",
                  "of accounting"], rows)


def upcalls(result: Dict[str, Dict[str, Dict]]) -> Table:
    stock = result["variants"]["stock"]["ns"]
    rows = [[name, *interval(r), f"{r['difference_ns']:+.0f} ns",
             str(r["n"])] for name, r in result["ratios"].items()]
    return Table([f"time per upcall (stock {stock / 1e3:.2f} us)", "ratio",
                  "interval", "confidence", "difference", "pairs"], rows)


def flood(result: Dict[str, Dict[str, Dict]]) -> Table:
    """Instructions of two trees, or, of one that has accounting, with that off
    and on."""
    rows, with_off = [], []
    for where, cases in result.items():
        kind, _, n_ports = where.partition(" ")
        for case, counts in cases.items():
            cells = []
            for values in counts["stock"], counts["ovs"]:
                middle = median(values)
                spread = (max(values) - min(values)) / 2 / middle
                cells += [f"{middle:,.0f}", f"{spread * 100:.1f}%"]
            middles = {name: median(values)
                       for name, values in counts.items()}
            begin = [case, kind, f"{int(n_ports):,}"]
            rows.append([*begin, *cells,
                         f"{middles['ovs'] / middles['stock']:.3f}"])
            if "off" in counts:
                growth = middles["growth"]
                more = (middles["accounting"] - middles["accounting off"]
                        - growth)
                with_off.append([
                    *begin, *(f"{middles[name] / 1000:,.0f} k"
                              for name in ("stock", "off", "ovs")),
                    f"{middles['off'] / middles['stock']:.3f}",
                    f"{middles['ovs'] / middles['off']:.3f}",
                    f"{more / int(n_ports):.1f}",
                    f"{growth / int(n_ports):.1f}"])
    ports = ["ports", "number", "stock"]
    if with_off:
        return Table(["case", *ports, "off", "on", "off/stock", "on/off",
                      "a port", "growth"], with_off)
    return Table(["instructions", *ports, "+-", "patched", "+-", "ratio"],
                 rows)


def kernel(result: Dict[str, Dict[str, Dict]]) -> Table:
    def instructions_of(variant: str) -> str:
        # The clock counts them, one in a nanosecond.
        return f"{median(result['us'][variant]) * 1000:,.0f}"

    rows = [["stock", instructions_of("stock"), "", "", "", ""]]
    for name, r in result["ratios"].items():
        variant, _, base = name.partition("/")
        rows.append([variant, instructions_of(variant), base,
                     *interval(r, 4)])
    return Table(["variant", "instructions", "against", "ratio", "interval",
                  "confidence"], rows)


def memory_table(result: Dict[str, List[Dict]]) -> Table:
    return Table(memory.HEADER, memory.cells(result["rows"]))


def txqueue(result: Dict[str, Any]) -> Table:
    """What 'txqueue' has of rates, bursts and latency."""
    def both(values: Dict[str, List[Dict[str, float]]], field: str,
             digits: int, scale: float = 1) -> str:
        return ", ".join(
            f"{median(v[field] for v in values[name]) / scale:,.{digits}f}"
            for name in ("stock", "patched"))

    rows = []
    for case, values in result["rates"].items():
        rows.append([case, both(values, "mpps", 3),
                     both(values, "burst", 1), both(values, "cycles", 0),
                     *interval(result[f"{case}: mpps"]),
                     str(len(values["stock"]))])
    for case, ratio in result.items():
        kind, _, percentile = case.partition(": ")
        if percentile and kind in tx_queues.LATENCY_CASES:
            values = result[kind]
            rows.append([case.replace(":", ""),
                         both(values, percentile, 1, 1e3), "", "",
                         *interval(ratio), str(len(values["stock"]))])
    return Table(["stock, patched", "Mpps, or us", "burst", "cycles", "ratio",
                  "interval", "confidence", "pairs"], rows)


def histogram(result: Dict[str, Any]) -> Table:
    return Table(["on its own, in a loop", "median", "least", "most"],
                 [[name, *(f"{value:.1f} ns" for value in
                           (median(ns), min(ns), max(ns)))]
                  for name, ns in result["ns"].items()])


def addrs(result: Dict[str, Any]) -> Table:
    rows = []
    for i, case in enumerate(addresses.CASES):
        for size, times in result["us"].items():
            of = {name: [values[i] for values in times[name]]
                  for name in ("stock", "patched")}
            rows.append([case, f"{int(size):,}",
                         *(f"{median(us):,.1f}" for us in of.values()),
                         *interval(stats.ratio(of["stock"],
                                               of["patched"]).as_dict(), 1),
                         ", ".join(str(result["calls"][size][name][i])
                                   for name in of),
                         str(result["read all"][size][i]),
                         str(len(of["stock"]))])
    version = ".".join(result["kernel"].split(".")[:2])
    return Table([f"Linux {version}", "veths", "us, stock", "patched",
                  "faster", "interval", "confidence", "calls", "read all",
                  "pairs"], rows)


def stats_loop(result: Dict[str, Dict[str, Dict]]) -> Table:
    rows = []
    for kind, found in result.items():
        for what, times in found["ms"].items():
            rows.append([f"{kind}, {what}",
                         *(f"{median(times[name]):.2f} ms"
                           for name in ("stock", "patched")),
                         *interval(found["stock/patched"][what], 2),
                         str(len(times["stock"]))])
    return Table(["1,024 ports", "stock", "patched", "times faster",
                  "interval", "confidence", "pairs"], rows)


def usdt(result: Dict[str, Any]) -> Table:
    rows = []
    for what in "upcalls", "forwarding":
        for name, cycles in result[what]["cycles"].items():
            r = next((r for compared, r in result[what]["ratios"].items()
                      if compared.startswith(name + "/")), None)
            rate = result["tsc_hz"] / median(cycles)
            rows.append([what, name, f"{rate:,.0f}",
                         *(interval(r) if r else [""] * 3), str(len(cycles))])
    return Table(["a second", "variant", "median", "ratio of the time",
                  "interval", "confidence", "pairs"], rows)


def flow_dump(result: Dict[str, Any]) -> Table:
    trees = list(result["trees"])
    rows = []
    for threads in result["threads"]:
        cells = []
        for name in trees:
            times = result["trees"][name][str(threads)]
            low, high, covers = stats.interval(times)
            cells += [f"{median(times):.0f} ms", f"{low:.0f} to {high:.0f}"]
        rows.append([str(threads), *cells, confidence(covers),
                     str(len(times))])
    return Table(["revalidators", *(cell for name in trees
                                    for cell in (name, "interval")),
                  "confidence", "runs"], rows)


class Alone(NamedTuple):
    """A result of one patch alone."""
    name: str                   # In RESULTS, ends with the patch.
    gains: List[str]            # Cases that show what it is worth.
    worst: List[str]            # Those in which it might lose.


ALONE = [
    Alone("txqueue-0100", ["full, 1000 us", "full, 50 us"],
          ["full, 0 us", "split"]),
    Alone("txqueue-0120", ["sparse", "vhost"],
          ["latency, p99", "loaded, p99"]),
    Alone("addrs-0405", ["one device, 1024"],
          ["9 devices, 64", "all devices, 64"]),
    Alone("flood-0410", ["wake-up, veth 100"],
          ["wake-up, tap 100", "stats, tap 100"]),
    Alone("flood-0415", ["stats, tap 100", "stats, veth 100"],
          ["wake-up, tap 100", "wake-up, veth 100"]),
    Alone("stats_loop-0417", ["kernel, idle loop"], ["kernel, busy loop"]),
    Alone("flood-0420", ["stats, dummy 100", "stats, tap 100"],
          ["wake-up, dummy 100", "flood, dummy 100"]),
]


class Pairs(NamedTuple):
    """What was measured of a case, in pairs of processes."""
    stock: List[float]
    patched: List[float]
    unit: str
    digits: int

    def cells(self) -> List[str]:
        ratio = stats.ratio(self.patched, self.stock).as_dict()
        return [*(f"{median(values):,.{self.digits}f} {self.unit}"
                  for values in (self.stock, self.patched)),
                *interval(ratio)[:2]]


def pairs_of(benchmark: str, result: Dict[str, Any]) -> Dict[str, Pairs]:
    """Returns all cases of a result."""
    found: Dict[str, Pairs] = {}
    if benchmark == "txqueue":
        for case, of in result["rates"].items():
            found[case] = Pairs([v["mpps"] for v in of["stock"]],
                                [v["mpps"] for v in of["patched"]], "Mpps", 3)
        for case in set(tx_queues.LATENCY_CASES) & result.keys():
            of = result[case]
            for p in of["stock"][0]:
                found[f"{case}, {p}"] = Pairs(
                    [v[p] / 1e3 for v in of["stock"]],
                    [v[p] / 1e3 for v in of["patched"]], "us", 1)
    elif benchmark == "addrs":
        for size, of in result["us"].items():
            for i, case in enumerate(addresses.CASES):
                found[f"{case}, {size}"] = Pairs(
                    [v[i] for v in of["stock"]],
                    [v[i] for v in of["patched"]], "us", 1)
    elif benchmark == "flood":
        for where, cases in result.items():
            for case, of in cases.items():
                found[f"{case}, {where}"] = Pairs(
                    [n / 1e3 for n in of["stock"]],
                    [n / 1e3 for n in of["ovs"]], "k", 0)
    elif benchmark == "stats_loop":
        for kind, of in result.items():
            for case, ms in of["ms"].items():
                found[f"{kind}, {case}"] = Pairs(ms["stock"], ms["patched"],
                                                 "ms", 2)
    return found


def alone_table(results: Dict[str, Dict[str, Any]]) -> Table:
    """Returns one table of all ALONE."""
    rows = []
    for name, gains, worst in ALONE:
        benchmark, _, patch = name.partition("-")
        found = pairs_of(benchmark, results[name]["results"][benchmark])
        for case in gains + worst:
            rows.append([patch, case, "worst" if case in worst else "",
                         *found[case].cells()])
            patch = ""
    return Table(["patch", "case", "", "stock", "with it alone", "ratio",
                  "interval"], rows)


def fleet(rows: List[List[str]]) -> Table:
    return Table(["one Prometheus", ""], [list(row) for row in rows])


def rules(result: Dict[str, str]) -> str:
    """What 'ovs-cost diff' printed, as it is."""
    return "::\n\n" + "".join(
        f"    {line}".rstrip() + "\n" for line in result["diff"].splitlines())


def reports(result: Dict[str, Any]) -> Table:
    return Table(scale.REPORTS_HEADER, scale.report_rows(result["us"]))


def reload(result: Dict[str, Any]) -> Table:
    stock = median(result["cycles"]["stock"]) / result["ports"]
    return Table([f"cycles for a port (stock {stock:,.0f})", "ratio",
                  "interval", "confidence", "pairs"],
                 [[name, *interval(result[name]), str(result[name]["n"])]
                  for name in ("off/stock", "on/stock", "on/off")])


def recording(rows: List[Dict[str, float]]) -> Table:
    return Table(
        ["ports", "all threads", "main thread", "of one processor",
         "held up, p99", "at most", "size"],
        [[f"{row['ports']:,}", f"{row['us']:,.0f} us",
          f"{row['main_us']:,.0f} us", f"{row['recorded_percent']:.3f}%",
          f"{row['held_up_p99_us']:,.0f} us",
          f"{row['held_up_max_us']:,.0f} us", f"{row['kb']:.1f} kB"]
         for row in rows])


TABLES: Dict[str, Callable[[Any], Union[Table, str]]] = {
    "addrs": addrs,
    "fleet": fleet,
    "flood": flood,
    "flow_dump": flow_dump,
    "histogram": histogram,
    "instructions": instructions,
    "kernel": kernel,
    "learning": upcalls,
    "memory": memory_table,
    "recording": recording,
    "reload": reload,
    "reports": reports,
    "rules": rules,
    "stats_loop": stats_loop,
    "txqueue": txqueue,
    "upcalls": upcalls,
    "usdt": usdt,
}


def provenance(name: str, data: Dict[str, Dict], markdown: bool) -> str:
    """Says with what 'data' was measured."""
    where, tree = data["machine"], data["trees"]["ovs"]
    machine = "virtual machine" if where["virtual"] else "no hypervisor"
    text = (f"Made from ``bench/results/{name}.json``: ``{data['command']}``, "
            f"{data['date']}, commit {data['commit']}; {where['cpu']}, "
            f"{where['cores']} cores, {machine}, Linux {where['kernel']}, "
            f"{tree['compiler']}, ``{tree['CFLAGS']}``; with the topics "
            f"{tree['topics']}")
    if tree.get("patches"):
        text += f", of their patches only {tree['patches']}"
    text += "."
    if markdown:
        return text.replace("``", "`") + "\n"
    return textwrap.fill(text, 79, break_long_words=False,
                         break_on_hyphens=False) + "\n"


def load(name: str) -> Dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise Failure(f"there is no {path.relative_to(TOP)}")
    return dict(json.loads(path.read_text()))


def make_alone() -> str:
    """Returns what the block "alone" has to be."""
    results = {alone.name: load(alone.name) for alone in ALONE}
    return ("\n" + alone_table(results).rst() + "\n"
            + "\n".join(provenance(name, data, False)
                        for name, data in results.items()) + "\n")


def best_and_worst(ratios: List[Tuple[str, str]], of: str) -> str:
    """Returns a sentence's part with 'ratios', each one with its case, of
    which the last one is the worst, to what 'of' is."""
    cases = [f"{ratio} times with {case}" for ratio, case in ratios]
    cases[0] = cases[0].replace(" times", f" times {of}", 1)
    return ", ".join(cases[:-1]) + f", and at worst {cases[-1]}"


def make_summary() -> str:
    """Returns what the block "summary" has to be: the best and the worst of
    what tx-cost.rst has."""
    names = ["txqueue-forward", "flood-all", "flood-10000", "memory"]
    data = {name: load(name) for name in names}
    results = {name: data[name]["results"][name.partition("-")[0]]
               for name in names}
    rates = sorted(
        ((results["txqueue-forward"][f"{case}: mpps"], what)
         for case, what in (("full, 0 us", "full bursts"),
                            ("split", "bursts of 8 to four devices"),
                            ("single", "bursts of one packet"))),
        key=lambda rate: -rate[0]["median"])
    forwarding = best_and_worst([
        (f"{rate['median']:.3f} ({rate['low']:.3f} to {rate['high']:.3f})",
         what) for rate, what in rates], "the packet rate of stock OVS")
    floods = sorted(
        (median(of["flood"]["ovs"]) / median(of["flood"]["stock"]),
         int(where.split()[1]))
        for name in ("flood-all", "flood-10000")
        for where, of in results[name].items())
    flooding = best_and_worst([
        (f"{ratio:.3f}", f"{n:,} ports")
        for ratio, n in (floods[0], floods[-1])],
        "the instructions of stock OVS")
    large = max(results["memory"]["rows"],
                key=lambda row: (row["ports"], row["threads"]))
    before, _, after = large["resident_mb"]
    kernels = ", ".join(dict.fromkeys(of["machine"]["kernel"]
                                      for of in data.values()))
    return (
        f"Forwarding to DPDK devices without a NIC reaches {forwarding}. A "
        f"flood to dummy ports takes {flooding}. Accounting for the bursts of "
        f"{large['threads']} threads to {large['ports']:,} ports takes "
        f"{before:.0f} MB of the process before any traffic, and {after:.0f} "
        "MB once each thread has sent "
        f"{results['memory']['bursts']:,} bursts to each port. "
        "Made from " + ", ".join(f"`{name}.json`" for name in names)
        + f" in `bench/results`, on Linux {kernels}; "
        "[tx-cost.rst](Documentation/topics/tx-cost.rst) has all of it.\n")


def make(name: str, markdown: bool) -> str:
    """Returns what the block 'name' has to be."""
    if name == "alone":
        return make_alone()
    if name == "summary":
        return make_summary()
    benchmark = name.partition("-")[0]
    if benchmark not in TABLES:
        raise Failure(f"there are no figures '{name}'; there are alone, "
                      "summary, " + ", ".join(TABLES))
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
    for path in documents():
        text = path.read_text()
        try:
            new = replace(path, text)
        except Failure as error:
            print(error)
            n_bad += 1
            continue
        for figure in by_hand(str(path.relative_to(TOP)), new):
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
