# SPDX-License-Identifier: Apache-2.0
"""The lists of Open vSwitch that a new file has an entry in: automake's,
those of test suites, of manual pages and documents; and NEWS."""

from __future__ import annotations

import re
from fnmatch import fnmatch
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


def order(value: str) -> str:
    """The key that values are sorted by: a.c, a.h, a-b.c."""
    return value.replace("-", "~")


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


def conditions_at(text: str) -> List[str]:
    """Returns the conditions of automake that are open at the end of
    'text'."""
    conditions: List[str] = []
    for word, condition in re.findall(r"^(if|else|endif)\b *(\S*)", text,
                                      re.M):
        if word != "if":
            last = conditions.pop()
        if word != "endif":
            conditions.append(condition if word == "if" else f"!{last}")
    return conditions


def add_to_list(text: str, variable: str, value: str,
                conditions: List[str]) -> str:
    """Adds 'value' to the list of 'variable' in 'text' that has most files of
    the same directory; or to a list of its own, under 'conditions' if there
    are any."""
    folder = PurePath(value).parent
    if re.search(rf"^{variable}[ \t]*\+?=[ \t]*\\\n(?:.*\\\n)*?"
                 rf"[ \t]*{re.escape(value)}\s", text, re.M):
        return text
    best, most = None, -1
    for match in re.finditer(rf"^{variable}[ \t]*\+?=[ \t]*\\\n"
                             r"((?:.*\\\n)*.*\n)", text, re.M):
        if conditions_at(text[:match.start()]) != conditions:
            continue
        values = match.group(1).replace("\\", " ").split()
        n = sum(PurePath(v).parent == folder for v in values)
        if n > most:
            best, most = match, n
    if not best:
        block = f"{variable} += \\\n\t{value}\n"
        for condition in conditions:
            block = f"if {condition}\n{block}endif\n"
        return text.rstrip("\n") + "\n\n" + block
    lines = best.group(1).splitlines(keepends=True)
    at = next((n for n, line in enumerate(lines)
               for words in [line.replace("\\", " ").split()]
               if words and PurePath(words[0]).parent == folder
               and order(words[0]) > order(value)), len(lines))
    if at == len(lines):
        lines[-1] = lines[-1].rstrip("\n") + " \\\n"
        lines.append(f"\t{value}\n")
    else:
        lines.insert(at, f"\t{value} \\\n")
    return text[:best.start(1)] + "".join(lines) + text[best.end(1):]


def add_include(text: str, file: str, spread: bool) -> str:
    """Adds 'file' to the files that a suite of tests includes, at the end, as
    it may use macros of files before it; with 'spread', macros after other
    macros, and tests where the alphabet has them, so that commits do not meet
    at the end."""
    line = f"m4_include([{file}])\n"
    if line in text:
        return text
    if not spread:
        return text.rstrip("\n") + "\n" + line
    macros = file.endswith("-macros.at")
    others = [(macros or match.group(1), match.end()) for match in
              re.finditer(r"^m4_include\(\[(.*)\]\)\n", text, re.M)
              if match.group(1).endswith("-macros.at") == macros
              and (macros or match.group(1) < file)]
    end = max(others)[1] if others else len(text)
    return text[:end] + line + text[end:]


def add_line_after(text: str, pattern: str, line: str) -> str:
    """Adds 'line' after the last match of 'pattern' in 'text'."""
    if f"\n{line}\n" in text:
        return text
    end = max((m.end() for m in re.finditer(pattern, text, re.M)),
              default=len(text))
    return text[:end] + line + "\n" + text[end:]


def entries(file: str, words: List[str], spread: bool) -> List[Entry]:
    """Returns the entries of the new file 'file'; for 'spread', see
    add_include()."""
    conditions = [word for word in words if word.isupper()]
    suites = [word for word in words if not word.isupper()]
    variables = next(v for pattern, v in VARIABLES
                     if fnmatch(file, pattern)).split()
    folder, name = file.partition("/")[0], PurePath(file).name
    found: List[Entry] = []
    if fnmatch(file, "tests/system-*.at"):
        variables = [f"SYSTEM_{s.upper()}_TESTSUITE_AT" for s in suites]
        tests = [f"tests/system-{s}-testsuite.at" for s in suites]
    else:
        tests = ["tests/testsuite.at"]
    for variable in variables:
        value = {"RST_MANPAGES": name, "bin_SCRIPTS": file[:-3],
                 "CLEANFILES": file[:-3]}.get(variable, file)
        found.append((f"{folder}/automake.mk", [value],
                      lambda text, variable=variable, value=value:
                      add_to_list(text, variable, value, conditions)))
    if file.endswith(".at"):
        for suite in tests:
            found.append((suite, [f"m4_include([{file}])"], lambda text:
                          add_include(text, file, spread)))
    elif file.endswith("-unixctl.man"):
        found.append(("vswitchd/ovs-vswitchd.8.in", [".so", file], lambda text:
                      add_line_after(text, r"^\.so .*-unixctl\.man\n",
                                     f".so {file}")))
    elif fnmatch(file, "Documentation/*.rst"):
        found.append((f"{PurePath(file).parent}/index.rst",
                      [PurePath(file).stem], lambda text:
                      add_line_after(text, r"^\.\. toctree::\n(   :.*\n)*\n"
                                     r"(   .*\n)*",
                                     f"   {PurePath(file).stem}")))
    return found


def read_news(path: Path) -> Dict[str, str]:
    """Returns the text for NEWS of each commit: under "[NNNN]" in 'path'."""
    parts = re.split(r"^\[(\S+)\]\n", path.read_text(), flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def add_news(text: str, version: str, news: str) -> str:
    """Adds 'news' to the section of NEWS for what comes after 'version'."""
    if not text.startswith("Post-"):
        title = f"Post-v{version}"
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
