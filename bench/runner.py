# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks of two trees: the common part of bench/run and
bench/cures."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import machine
from report import Context, Result, write_json
from switch import Failed, exit_on_signals

Benchmarks = Dict[str, Callable[[Context], List[Result]]]


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def make_parser(program: str, doc: str,
                benchmarks: Benchmarks) -> argparse.ArgumentParser:
    """Returns a parser of the arguments that both programs have."""
    parser = argparse.ArgumentParser(
        prog=program, description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stock", type=Path, metavar="STOCKDIR",
                        help="built tree of stock Open vSwitch")
    parser.add_argument("ovs", type=Path, metavar="OVSDIR",
                        help="built tree with the series")
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK",
                        help=f"{', '.join(benchmarks)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="also write everything measured to FILE")
    parser.add_argument("--quiet", action="store_true",
                        help="print results only")
    return parser


def print_machine(facts: Dict[str, object],
                  trees: Dict[str, Dict[str, str]]) -> None:
    where = "virtual machine" if facts["virtual"] else "no hypervisor"
    print(f"machine  {facts['cpu']}, {facts['cores']} cores, {where}\n"
          f"         {facts['system']}, Linux {facts['kernel']}, clock "
          f"{facts['clock']}, load {facts['load']:.1f}")
    if not facts["counters"]:
        print("         no hardware counters: cycles are those of the time "
              "stamp counter,\n"
              "         instructions are counted by callgrind")
    for name, tree in trees.items():
        print(f"{name:<8} Open vSwitch {tree['PACKAGE_VERSION']}, "
              f"{tree['CC']} {tree['CFLAGS']}")
    if len({str({**tree, "topics": "", "patches": ""})
            for tree in trees.values()}) > 1:
        print("The trees were built in different ways: comparing stock with "
              "the others means little.")


def run_all(parser: argparse.ArgumentParser, args: argparse.Namespace,
            benchmarks: Benchmarks) -> int:
    """Runs the benchmarks that 'args' has, or all."""
    for name in args.benchmarks:
        if name not in benchmarks:
            parser.error(f"no benchmark \"{name}\"; there are "
                         + ", ".join(benchmarks))
    for tree in args.stock, args.ovs:
        if not (tree / "vswitchd/ovs-vswitchd").is_file():
            parser.error(f"{tree} is not a built tree of Open vSwitch")
    if args.json and not args.json.resolve().parent.is_dir():
        parser.error(f"there is no directory for {args.json}")
    trees = {"stock": args.stock, "ovs": args.ovs}
    facts = machine.describe()
    print_machine(facts, {name: machine.describe_tree(tree)
                          for name, tree in trees.items()})

    results: Dict[str, List[Result]] = {}
    left_out: Dict[str, str] = {}
    failed: Dict[str, str] = {}
    for name in args.benchmarks or benchmarks:
        print(f"\n{name}", flush=True)
        directory = Path(tempfile.mkdtemp(prefix="ovs-cost-bench-"))
        try:
            results[name] = benchmarks[name](Context(
                args.stock.resolve(), args.ovs.resolve(), directory, args,
                time.monotonic()))
        except machine.NotHere as error:
            left_out[name] = str(error)
            print(f"  left out: {error}")
        except Failed as error:
            failed[name] = str(error)
            print(f"  failed: {error}")
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    if args.json and results:
        write_json(args.json, f"{parser.prog} STOCKDIR OVSDIR", sys.argv[3:],
                   trees, results,
                   machine=facts, left_out=left_out, failed=failed)
    return 1 if failed else 0


def take_turns(context: Context, what: str, create: Callable[..., Any],
               measure: Callable[[str, Any], None],
               finish: Callable[[Any], None] = lambda _switch: None) -> None:
    """Has 'create' make a switch of each tree in a directory, sets all up,
    and calls 'measure' with the tree's name and the switch, for each pair, in
    turns; then 'finish' with each switch."""
    trees = {"stock": context.stock, "patched": context.ovs}
    with contextlib.ExitStack() as stack:
        switches = {}
        for name, tree in trees.items():
            context.progress(f"{what}, {name}")
            where = context.directory / f"{what.split()[-1]}-{name}"
            stack.callback(shutil.rmtree, where, ignore_errors=True)
            switches[name] = stack.enter_context(create(tree, where))
            switches[name].set_up()
        for k in range(context.args.pairs):
            context.progress(f"{what}, pair {k + 1} of {context.args.pairs}")
            names = list(switches)
            for name in reversed(names) if k % 2 else names:
                measure(name, switches[name])
        for switch in switches.values():
            finish(switch)


def run_main(main: Callable[[], int]) -> None:
    exit_on_signals()
    sys.exit(main())
