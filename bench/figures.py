#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the figures in documents, covers and commit messages from results.

Between the lines "figures: NAME SPEC" and "end of figures", as comments of
reStructuredText or Markdown, a document has the table of
bench/results/NAME.json that SPEC describes (bench/report.py), by default the
one of its benchmark; several names, with commas, have one table.
"figures: results" has the list of all results.

bench/figures.txt has the source of each other figure.  Figures of results are
renewed, too.  With --check, says what would change, which figures have no
source, and which results no document uses, and changes nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import (Any, Dict, Iterator, List, NamedTuple, Optional, Sequence,
                    Set)

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.report import (Result, Table, differences, make_table, read_json)

TOP = Path(__file__).resolve().parent.parent
RESULTS = TOP / "bench/results"
SOURCES = TOP / "bench/figures.txt"
TEXTS = ("*.md", "*.rst", "patches/*/0000-cover.txt", "patches/*/*.patch")

BLOCK_RE = re.compile(
    r"^(?P<begin>(?:\.\. |<!-- )figures: (?P<name>\S+)(?P<spec>.*?)"
    r"(?: -->)?\n)(?P<body>.*?)"
    r"^(?P<end>(?:\.\. |<!-- )end of figures(?: -->)?)$", re.M | re.S)

NUMBER = r"\d[\d,]*(?:\.\d+)?"
FIGURE_RE = re.compile(
    # A number with a unit, or several.
    rf"(?<![\w.,:/^#-])[-+]?{NUMBER}(?:(?:,|,? to|,? and|,? or)\s+{NUMBER})*"
    r"(?:\s*%|[\s-]+(?:[num]?s|cycles|instructions|[kMG]i?B|times|Mpps"
    r"|seconds|minutes)(?!\w))"
    # A ratio, which has no unit.
    r"|(?<![\w.])(?:0\.[5-9]\d{1,2}|1\.\d{2,3})(?![\w.])"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|\d+)\s+"
    r"(?:cases|switches)\b")
# Literal text, and what other programs write.
LITERAL_RE = re.compile(r"``[^`]*``|`[^`]*`|<!-- (\w+)\b.*?<!-- end of \1 -->"
                        r"|<!--.*?-->|^Date: [^\n]*", re.M | re.S)


class Failure(Exception):
    """Why a figure can't be made."""


def load(name: str) -> Dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise Failure(f"there is no {path.relative_to(TOP)}")
    return read_json(path)


def results_of(name: str) -> List[Result]:
    found: List[Result] = load(name)["results"][name.partition("-")[0]]
    return found


# Tables.


def list_results() -> Table:
    """Returns which results there are, and what they were measured with."""
    rows = []
    for name in sorted(path.stem for path in RESULTS.glob("*.json")):
        data = load(name)
        where = data["machine"]
        command = re.sub(r" (--json \S+|--quiet)", "", data["command"])
        rows.append([name, data["date"], data["commit"],
                     f"{where['cpu']}, {where['cores']}, {where['kernel']}",
                     f"``{command}``"])
    return Table(["result", "date", "commit", "processor, cores, Linux",
                  "command"], rows)


def make(name: str, spec: str, markdown: bool) -> str:
    """Returns what a block has to have."""
    names = name.split(",")
    try:
        if name == "results":
            table = list_results()
        else:
            table = make_table(names[0].partition("-")[0], [
                r._replace(case=f"{one.partition('-')[2]}: {r.case}")
                if len(names) > 1 else r
                for one in names for r in results_of(one)], spec)
    except (KeyError, TypeError, ValueError) as error:
        raise Failure(f"no figures '{name} {spec}': {error}")
    text = "\n" + (table.markdown() if markdown else table.rst()) + "\n"
    if name != "results":
        quote = "`" if markdown else "``"
        text += "From " + ", ".join(
            f"{quote}bench/results/{one}.json{quote}" for one in names
        ) + ".\n\n"
    return text


# Figures in sentences.


class Source(NamedTuple):
    """Where figures of a file are from: a phrase that has them, or figures
    that it may have in any phrase."""
    file: str
    section: str
    text: str

    @property
    def measured(self) -> bool:
        return not re.match(NOT_MEASURED, self.section)

    def pattern(self) -> str:
        """Returns a pattern that matches the phrase, with the figures as its
        groups."""
        parts = FIELD_RE.split(self.text)[::2]
        return r"(?<![\w.,])" + rf"({NUMBER})".join(
            r"\s+".join(map(re.escape, re.split(r"\s+", part)))
            for part in parts)


# Sections of figures that are no results: whose they are, or what.
NOT_MEASURED = "limit$|computed$|theirs: "
FIELD_RE = re.compile(r"\{(.*?)\}")
WORD_RE = re.compile(r" (?=(?:low|high|min|max|-?%|k|~\d)(?: |$))")


def read_sources() -> List[Source]:
    found: List[Source] = []
    file = section = ""
    for line in SOURCES.read_text().splitlines():
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if not text or text.startswith("#"):
            continue
        if depth == 0:
            file = text
        elif depth == 2:
            section = text.strip("[]")
        elif depth == 4:
            found.append(Source(file, section, text))
        else:
            found[-1] = found[-1]._replace(text=f"{found[-1].text} {text}")
    return [one._replace(text=text.strip()) for one in found for text
            in ([one.text] if one.measured else one.text.split(";"))]


def evaluate(expression: str, default: str) -> float:
    """Returns the value of 'expression', "[RESULT | CASE | UNIT:] TERM WORD":
    a median "VARIANT", a ratio "A/B" or a difference "A - B"; "low" or "high"
    for the end of a ratio's interval, "min" or "max"; "%" for how much more a
    ratio is than 1, "-%" for less, "k" for thousands, "~N" for N digits."""
    where, colon, term = expression.rpartition(": ")
    name, case, unit = ((where if colon else default).split(" | ")
                        + ["", ""])[:3]
    found = [r for r in results_of(name) if r.case == case
             and r.unit == unit] if unit else results_of(name)
    if len(found) != 1:
        raise Failure(f"{name} has {len(found)} results '{case}' in '{unit}'")
    term, *words = WORD_RE.split(term)
    result = found[0]
    if "/" in term:
        ratio = result.ratio(*term.split("/"))
        value = (ratio.low if "low" in words else
                 ratio.high if "high" in words else ratio.median)
    elif " - " in term:
        value = median(differences(result, *term.split(" - ")))
    else:
        values = result.values[term]
        if isinstance(values[0], str):
            return float(values[0].split()[0].replace(",", ""))
        value = (min if "min" in words else max if "max" in words
                 else median)(values)
    for word in words:
        if word in ("%", "-%"):
            value = (value - 1) * (100 if word == "%" else -100)
            if value < 0:
                raise Failure("it is the other way round now")
        elif word == "k":
            value /= 1000
        elif word[0] == "~":
            value = float(f"{value:.{word[1:]}g}")
    return value


def masked(name: str, text: str) -> str:
    """Returns 'text' with blanks for what has no figures of sentences: tables
    that are made, and literal text."""
    def blank(match: re.Match[str]) -> str:
        return re.sub(r"\S", " ", match[0])

    text = BLOCK_RE.sub(blank, text)
    if name.startswith("patches/"):
        return LITERAL_RE.sub(blank, text)
    lines: List[str] = []
    previous, literal, gap = "", -1, True
    for line in text.splitlines(keepends=True):
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            gap = True
        elif literal < 0 or indent <= literal:
            literal = -1
            before = len(previous) - len(previous.lstrip())
            if gap and previous.endswith("::\n") and indent > before:
                literal = before
            elif gap and name.endswith(".md") and indent >= 4:
                literal = 3
            else:
                previous = line
            gap = False
        lines.append(re.sub(r"\S", " ", line) if literal >= 0 else line)
    return LITERAL_RE.sub(blank, "".join(lines))


def renew(name: str, text: str, sources: List[Source], said: List[str]) -> str:
    """Returns 'text', of the file 'name', with the present figures in its
    tables and phrases, and adds what is wrong to 'said'."""
    def block(match: re.Match[str]) -> str:
        return match["begin"] + make(
            match["name"], match["spec"].strip(),
            name.endswith(".md")) + match["end"]

    try:
        new = BLOCK_RE.sub(block, text)
    except Failure as error:
        said.append(str(error))
        return text
    anywhere = {one.text for one in sources if one.file == "*"}
    sources = [one for one in sources if one.file == name]
    known: Set[int] = set()             # Places of figures with a source.
    for source in [one for one in sources if one.measured]:
        found = [*re.finditer(source.pattern(), new)]
        if len(found) != 1:
            said.append(f"it says {len(found)} times: {source.text}")
        for match in found[:1]:
            known.update(range(*match.span()))
            for i, field in reversed([*enumerate(
                    FIELD_RE.findall(source.text), 1)]):
                digits = len(match[i].partition(".")[2])
                try:
                    value = f"{evaluate(field, source.section):,.{digits}f}"
                except (Failure, KeyError, ValueError) as error:
                    said.append(f"{{{field}}}: {error}")
                    continue
                if value != match[i]:
                    said.append(f"{match[i]} is {value}: {source.text}")
                    new = (new[:match.start(i)] + value + new[match.end(i):])
    others = {one.text: 0 for one in sources if not one.measured}
    for match in FIGURE_RE.finditer(masked(name, new)):
        figure = " ".join(match[0].split())
        if figure in others:
            others[figure] += 1
        elif match.start() not in known and figure not in anywhere:
            said.append(f"{figure} has no source in bench/figures.txt")
    said += [f"it has no {figure}" for figure, n in others.items() if not n]
    return new


# Results.


def check_results(machines: Set[str], used: Set[str]) -> Iterator[str]:
    """Results are those of a commit of the history, without edits, on one of
    'machines', and documents use them."""
    def git(*args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["git", *args], cwd=TOP, capture_output=True,
                              text=True, check=False)

    names = {path.stem for path in RESULTS.glob("*.json")}
    known = git("rev-parse", "--is-shallow-repository").stdout == "false\n"
    for name in sorted(names):
        commit, cpu = load(name)["commit"], load(name)["machine"]["cpu"]
        if (commit.endswith("-dirty") or cpu not in machines or known and
                git("merge-base", "--is-ancestor", commit, "HEAD").returncode):
            yield f"{name} was measured of {commit} on {cpu}: measure it again"
    for name in sorted(names - used):
        yield f"no document uses {name}"


def texts() -> List[str]:
    done = subprocess.run(["git", "ls-files", *TEXTS], cwd=TOP, check=True,
                          stdout=subprocess.PIPE, text=True)
    return [name for name in done.stdout.splitlines()
            if (TOP / name).is_file()]


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench/figures.py", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true",
                        help="change nothing")
    args = parser.parse_args(argv)
    sources = read_sources()
    n_bad = 0
    used = {one.section.partition(" | ")[0] for one in sources}
    used |= {match.partition(" | ")[0] for one in sources
             for match in FIELD_RE.findall(one.text)}
    for name in texts():
        text = (TOP / name).read_text()
        used |= {one for match in BLOCK_RE.finditer(text)
                 for one in match["name"].split(",")}
        said: List[str] = []
        # The message of a patch.
        head, gap, diff = text.partition("\ndiff --git") \
            if name.endswith(".patch") else (text, "", "")
        new = renew(name, head, sources, said) + gap + diff
        if new != text and not args.check:
            (TOP / name).write_text(new)
            print(f"{name}: updated")
            said = [one for one in said if " is " not in one]
        elif new != text:
            said.append("it is not what 'make figures' makes")
        for one in said:
            print(f"{name}: {one}")
        n_bad += len(said)
    machines = {one.text for one in sources if one.file == "machines"}
    for one in check_results(machines, used):
        print(f"bench/results: {one}")
        n_bad += 1
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
