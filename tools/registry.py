# SPDX-License-Identifier: Apache-2.0
"""The lists of Open vSwitch that a new file has an entry in: automake's,
those of test suites, of manual pages and documents; and NEWS."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePath
from typing import Callable, Dict, List, Tuple

Edit = Callable[[str], str]
# A file of Open vSwitch, the words of the line that is an entry there, and the
# edit that adds it.
Entry = Tuple[str, List[str], Edit]

# The first pattern that a new file matches has its automake variables.  Suites
# of system tests come from patches/topics.
VARIABLES: List[Tuple[str, str]] = [
    ("lib/*.[ch]", "lib_libopenvswitch_la_SOURCES"),
    ("ofproto/*.[ch]", "ofproto_libofproto_la_SOURCES"),
    ("vswitchd/*.[ch]", "vswitchd_ovs_vswitchd_SOURCES"),
    ("*.man", "MAN_FRAGMENTS"),
    ("tests/*.[ch]", "tests_ovstest_SOURCES"),
    ("tests/system-*.at", ""),
    ("tests/*.at", "TESTSUITE_AT"),
    ("tests/*.py", "EXTRA_DIST FLAKE8_PYFILES"),
    ("Documentation/ref/*.rst", "RST_MANPAGES EXTRA_DIST"),
    ("Documentation/*.rst", "DOC_SOURCE"),
    ("python/ovs/*.py", "ovs_pyfiles"),
    ("utilities/usdt-scripts/*", "usdt_SCRIPTS EXTRA_DIST"),
    ("utilities/*-bashcomp.bash", "completion_SCRIPTS EXTRA_DIST"),
    ("utilities/*.in", "bin_SCRIPTS CLEANFILES EXTRA_DIST FLAKE8_PYFILES"),
    ("*", "EXTRA_DIST"),
]


def without_line(text: str, words: List[str]) -> str:
    """Returns 'text' without lines that are 'words', apart from the backslash
    that continues a list."""
    out: List[str] = []
    for line in text.splitlines(keepends=True):
        if line.replace("\\", " ").split() != words:
            out.append(line)
        elif out and not line.endswith("\\\n"):
            out[-1] = re.sub(r"\s*\\\n$", "\n", out[-1])
    return "".join(out)


def add_to_list(text: str, variable: str, value: str,
                conditions: List[str]) -> str:
    """Adds 'value' to the list of 'variable' in 'text' that has most files of
    the same directory; or to a list of its own.  With 'conditions', these come
    right before the list."""
    folder = PurePath(value).parent
    ifs = "".join(f"if {condition}\n" for condition in conditions)
    lists = [*re.finditer(rf"^{ifs}{variable}[ \t]*\+?=[ \t]*\\\n"
                          r"((?:.*\\\n)*.*)\n", text, re.M)]
    if not lists:
        return (text.rstrip("\n") + f"\n\n{ifs}{variable} += \\\n\t{value}\n"
                + "endif\n" * len(conditions))
    best = max(lists, key=lambda match: sum(
        PurePath(word).parent == folder for word in match.group(1).split()))
    lines = best.group(1).split("\n")
    for n, line in enumerate(lines):
        other = line.strip(" \t\\")
        # a.c, a.h, a-b.c.
        if PurePath(other).parent == folder \
                and other.replace("-", "~") > value.replace("-", "~"):
            lines.insert(n, f"\t{value} \\")
            break
    else:
        lines[-1:] = [lines[-1] + " \\", f"\t{value}"]
    return text[:best.start(1)] + "\n".join(lines) + text[best.end(1):]


def add_include(text: str, file: str) -> str:
    """Adds 'file' to the files that a suite of tests includes, where the
    alphabet has it."""
    others = [(match.group(1), match.end()) for match in re.finditer(
        r"^m4_include\(\[(.*)\]\)\n", text, re.M) if match.group(1) < file]
    end = max(others)[1] if others else len(text)
    return f"{text[:end]}m4_include([{file}])\n{text[end:]}"


def add_line_after(text: str, pattern: str, line: str) -> str:
    """Adds 'line' after the last match of 'pattern' in 'text', or at the
    end."""
    end = max((m.end() for m in re.finditer(pattern, text, re.M)),
              default=len(text))
    return f"{text[:end]}{line}\n{text[end:]}"


def entries(file: str, words: List[str], spread: bool) -> List[Entry]:
    """Returns the entries of the new file 'file'.  A suite of tests includes
    it at the end, as it may use macros of files before it; with 'spread',
    where the alphabet has it, so that commits do not meet at the end."""
    name, stem = PurePath(file).name, PurePath(file).stem
    conditions = [word for word in words if word.isupper()]
    variables = next(v for pattern, v in VARIABLES
                     if fnmatch(file, pattern)).split()
    suites = ["tests/testsuite.at"]
    if fnmatch(file, "tests/system-*.at"):
        kinds = [word for word in words if not word.isupper()]
        variables = [f"SYSTEM_{kind.upper()}_TESTSUITE_AT" for kind in kinds]
        suites = [f"tests/system-{kind}-testsuite.at" for kind in kinds]
    found: List[Entry] = []
    for variable in variables:
        value = {"RST_MANPAGES": name, "bin_SCRIPTS": file[:-3],
                 "CLEANFILES": file[:-3]}.get(variable, file)
        found.append((file.partition("/")[0] + "/automake.mk", [value],
                      partial(add_to_list, variable=variable, value=value,
                              conditions=conditions)))
    # Lists of whole lines.
    lines: List[Tuple[str, str, str]] = []
    if file.endswith(".at"):
        lines = [(suite, f"m4_include([{file}])", r"\Z") for suite in suites]
    elif file.endswith("-unixctl.man"):
        lines = [("vswitchd/ovs-vswitchd.8.in", f".so {file}",
                  r"^\.so .*-unixctl\.man\n")]
    elif fnmatch(file, "Documentation/*.rst"):
        lines = [(f"{PurePath(file).parent}/index.rst", f"   {stem}",
                  r"^\.\. toctree::\n(   :.*\n)*\n(   .*\n)*")]
    for target, line, pattern in lines:
        found.append((target, line.split(), partial(
            add_include, file=file) if spread and file.endswith(".at")
            else partial(add_line_after, pattern=pattern, line=line)))
    return found


def read_news(path: Path) -> Dict[str, str]:
    """Returns the text for NEWS of each commit: under "[NNNN]" in 'path'."""
    parts = re.split(r"^\[(\S+)\]\n", path.read_text(), flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def add_news(text: str, news: str) -> str:
    """Adds 'news' to the section of NEWS for what comes after the newest
    version."""
    if not text.startswith("Post-"):
        title = f"Post-{text.split()[0]}"
        text = f"{title}\n{'-' * len(title)}\n\n\n{text}"
    section, gap, rest = text.partition("\n\n\n")
    for block in re.split(r"^(?=   - )", news.strip("\n"), flags=re.M)[1:]:
        heading, _, items = block.rstrip("\n").partition("\n")
        at = section.find(f"\n{heading}\n")
        if heading.endswith(":") and at >= 0:
            end = section.find("\n   - ", at + 1)
            end = len(section) if end < 0 else end
            section = f"{section[:end]}\n{items}{section[end:]}"
        else:
            section += "\n" + block.rstrip("\n")
    return section + gap + rest
