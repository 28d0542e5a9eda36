#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that everybody agrees which USDT probes there are.

Compares the probes in the source, those in built binaries, those that
Documentation/topics/usdt-probes.rst describes, and those that the scripts in
utilities/usdt-scripts attach to: they have to be the same, with the same
number of arguments.  Prints each difference, and exits with status 1 if there
is any.

A probe is written as PROVIDER:NAME.  readelf, of GNU binutils, lists those of
a binary.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple, Set, Tuple

# Probes and the number of their arguments.
Probes = Dict[str, int]
# Who attaches to a probe: (script, highest number of an argument or -1).
Uses = Dict[str, List[Tuple[str, int]]]

DOC = "Documentation/topics/usdt-probes.rst"
SCRIPTS = "utilities/usdt-scripts"
# Attaches to the probes that its user names.
ANY_PROBE = ("kernel_delay.py",)

problems: List[str] = []
problem = problems.append


# The source.


def balanced(text: str, start: int, brackets: str = "()") -> str:
    """Returns what is between the bracket at 'start' and its partner."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == brackets[0]) - (text[i] == brackets[1])
        if not depth:
            return text[start + 1:i]
    raise ValueError(f"no partner of '{text[start:start + 40]}'")


def n_commas(text: str) -> int:
    """Returns the number of commas in 'text' that are in no brackets."""
    n = depth = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        n += c == "," and not depth
    return n


def source_probes(top: Path) -> Probes:
    probes: Probes = {}
    for path in sorted(p for d in ("lib", "ofproto", "ovsdb", "utilities",
                                   "vswitchd", "vtep")
                       for p in (top / d).glob("*.[ch]")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for m in re.finditer(r"\bOVS_USDT_PROBE(\()", text):
            args = balanced(text, m.start(1))
            provider, name = [a.strip() for a in args.split(",")[:2]]
            probe = f"{provider}:{name}"
            n = n_commas(args) - 1
            if probes.setdefault(probe, n) != n:
                problem(f"{probe}: {n} arguments in {path.name}, "
                        f"{probes[probe]} elsewhere")
    return probes


# Binaries.


def binary_probes(binaries: List[Path]) -> Probes:
    probes: Probes = {}
    for binary in binaries:
        out = subprocess.run(["readelf", "--notes", str(binary)], check=True,
                             stdout=subprocess.PIPE).stdout.decode()
        for m in re.finditer(r"\n *Provider: (.*)\n *Name: (.*)\n"
                             r" *Location: .*\n *Arguments:(.*)", out):
            probe = f"{m.group(1)}:{m.group(2)}"
            # Each argument is SIZE@OPERAND.  An operand may contain spaces.
            n = len(re.findall(r"(?:^|\s)-?\d+f?@", m.group(3)))
            if probes.setdefault(probe, n) != n:
                problem(f"{probe}: has {n} arguments at one location in "
                        f"{binary.name}, {probes[probe]} at another")
    return probes


# The documentation.


class Documented(NamedTuple):
    probes: Probes
    scripts: Dict[str, Set[str]]    # Names of scripts that use a probe.
    dpdk: Set[str]                  # Probes that only DPDK builds have.


def documented(top: Path) -> Documented:
    text = (top / DOC).read_text(encoding="utf-8").replace("\\_", "_")
    text = text[text.index("Available probes\n---"):
                text.index("Adding your own probes\n---")]

    # The lists of probes.
    lists: Dict[bool, List[str]] = {False: [], True: []}
    for m in re.finditer(r"\nAvailable probes in ``ovs_vswitchd``"
                         r"( built with DPDK)?:\n\n((?:- .*\n)+)", text):
        names = [line[2:] for line in m.group(2).splitlines()]
        if names != sorted(names):
            problem(f"{DOC}: the list of probes is not sorted")
        lists[bool(m.group(1))] += names
    listed = lists[False] + lists[True]
    for probe in sorted({p for p in listed if listed.count(p) > 1}):
        problem(f"{probe}: listed twice")

    # A section for each probe.
    probes: Probes = {}
    scripts: Dict[str, Set[str]] = {}
    parts = re.split(r"\n(?:probe )?(\w+:\w+)\n~+\n", text)
    for probe, body in zip(parts[1::2], parts[2::2]):
        fields = dict(re.findall(r"\*\*(.+)\*\*:\n+((?:(?!\*\*).*\n)+)",
                                 body + "\n"))
        for field in ("Description", "Arguments", "Script references"):
            if not fields.get(field, "").strip():
                problem(f"{probe}: no **{field}** in its section")
                fields[field] = "*None*"
        args = re.findall(r"^- \*(.*?)\*:", fields["Arguments"], re.M)
        if args != [f"arg{i}" for i in range(len(args))] or (
                not args and fields["Arguments"].strip() != "*None*"):
            problem(f"{probe}: arguments are not described as arg0, arg1...")
        if probe in probes:
            problem(f"{probe}: has two sections")
        probes[probe] = len(args)
        scripts[probe] = set(re.findall(rf"``{SCRIPTS}/(.*)``",
                                        fields["Script references"]))
    for probe in sorted(set(listed) - set(probes)):
        problem(f"{probe}: listed, but has no section")
    for probe in sorted(set(probes) - set(listed)):
        problem(f"{probe}: has a section, but is not listed")
    return Documented(probes, scripts, set(lists[True]))


# Scripts.


def bpftrace_uses(name: str, text: str, uses: Uses) -> None:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for m in re.finditer(r"^((?:usdt:[^{}/]*?))(/[^{}]*/)?\s*(\{)", text,
                         re.M):
        code = (m.group(2) or "") + balanced(text, m.start(3), "{}")
        highest = max(map(int, re.findall(r"\barg(\d+)\b", code)), default=-1)
        for spec in m.group(1).split(","):
            probe = ":".join(spec.strip().split(":")[-2:])
            uses.setdefault(probe, []).append((name, highest))


def bcc_uses(name: str, text: str, known: Set[str], uses: Uses) -> None:
    for m in re.finditer(r"\benable_probe(\()", text):
        args = balanced(text, m.start(1))
        found = re.search(r'\bprobe="([\w:]+)"', args)
        function = re.search(r'\bfn_name="(\w+)"', args)
        if not found or not function:
            problem(f"{name}: cannot tell what 'enable_probe({args})' is")
            continue
        # bcc finds a probe by name alone if there is only one of that name.
        probe = found.group(1)
        same = [p for p in known if p.split(":")[1] == probe]
        if len(same) > 1:
            problem(f"{name}: '{probe}' could be any of " + " ".join(same))
        if len(same) == 1:
            probe = same[0]
        # The first argument is number 1 there.
        code = re.search(rf"\b{function.group(1)}\(.*?^}}", text,
                         re.M | re.S)
        highest = max((int(n) - 1 for n in
                       re.findall(r"\bbpf_usdt_readarg(?:_p)?\((\d+)",
                                  code.group() if code else "")), default=-1)
        uses.setdefault(probe, []).append((name, highest))


def script_uses(top: Path, known: Set[str]) -> Uses:
    uses: Uses = {}
    for path in sorted((top / SCRIPTS).iterdir()):
        if path.name in ANY_PROBE or path.suffix not in (".bt", ".py"):
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".bt":
            bpftrace_uses(path.name, text, uses)
        else:
            bcc_uses(path.name, text, known, uses)
    return uses


# Comparing.


def compare(a: Probes, a_name: str, b: Probes, b_name: str) -> None:
    for probe in sorted(set(a) | set(b)):
        if probe not in b:
            problem(f"{probe}: in {a_name}, not in {b_name}")
        elif probe not in a:
            problem(f"{probe}: in {b_name}, not in {a_name}")
        elif a[probe] != b[probe]:
            problem(f"{probe}: {a[probe]} arguments in {a_name}, "
                    f"{b[probe]} in {b_name}")


def check_scripts(doc: Documented, uses: Uses) -> None:
    for probe, used_by in sorted(uses.items()):
        for script, highest in used_by:
            if probe not in doc.probes:
                problem(f"{probe}: {script} attaches to it, there is none")
            elif highest >= doc.probes[probe]:
                problem(f"{probe}: {script} uses arg{highest}, there are "
                        f"{doc.probes[probe]} arguments")
    for probe, documented_for in sorted(doc.scripts.items()):
        actual = {script for script, _ in uses.get(probe, [])}
        for script in sorted(documented_for - actual):
            problem(f"{probe}: documented as used by {script}, which does "
                    "not attach to it")
        for script in sorted(actual - documented_for):
            problem(f"{probe}: {script} attaches to it, which is not "
                    "documented")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="usdt-probes.py", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("top", type=Path, metavar="SRCDIR",
                        help="source tree of Open vSwitch")
    parser.add_argument("binaries", type=Path, nargs="*", metavar="BINARY",
                        help="programs and libraries that, together, have "
                        "all the probes")
    parser.add_argument("--without-dpdk", action="store_true",
                        help="they were built without DPDK")
    args = parser.parse_args()

    source = source_probes(args.top)
    doc = documented(args.top)
    compare(source, "the source", doc.probes, "the documentation")
    if args.binaries:
        built = binary_probes(args.binaries)
        compare({p: n for p, n in source.items()
                 if not (args.without_dpdk and p in doc.dpdk)},
                "the source", built, "the binary")
    uses = script_uses(args.top, set(doc.probes))
    check_scripts(doc, uses)

    for message in problems:
        print(message)
    if problems:
        return 1
    n_scripts = len({script for used_by in uses.values()
                     for script, _ in used_by})
    print(f"{len(source)} probes, {n_scripts} scripts: all agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
