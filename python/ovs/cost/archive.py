# SPDX-License-Identifier: Apache-2.0
"""Reads what stock Open vSwitch's commands have printed from the files of a
report of a host, such as sosreport or must-gather make it.

A file is found by its name, "ovs-appctl_coverage.show" for instance: "/" of
the command is some other character, and what is before the command does not
matter.  Files of one directory are of one switch, at one moment.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Tuple

from ovs.cost import processes, stocktext
from ovs.cost.database import READ, read_file
from ovs.cost.stock import PARSERS, Stock

MAX_SIZE = 1 << 24
MAX_DATABASE = 1 << 28
MAPS = {"bfd_status", "options", "other_config", "statistics", "status"}
MATTER = "coverage/show", "upcall/show"     # Most rules are about these.
TABLES = {table.lower(): table for table in READ}

# Other names of commands, and what may follow those of datapaths.
_NAMES = {"tnl/neigh/show": "tnl/(?:neigh|arp)/show",
          "dpctl/show": "dpctl/(?:-s/)?show(?:/.*)?"}
_COMMANDS = {
    name: re.compile(r"(?:.*[^a-z])?" + re.sub(
        "[/ ]", "[^a-z0-9]", _NAMES.get(
            name, re.escape(name.partition(" ")[0])))
        + (r"[ _](?P<argument>.+?)" if " " in name else "")
        + r"(?:\.txt|\.log|\.out)?")
    for name in (*PARSERS, "ovs-ofctl_dump-tables BR")}
_LIST = re.compile(r".*[ _]list[ _](\w+)(?:\.txt)?")
_LOG = re.compile(r"(?:.*[^a-z])?ovs-vswitchd\.log(?:\.txt)?")


def _rows(text: str) -> List[Dict[str, Any]]:
    """Returns the rows that "ovs-vsctl list" prints."""
    rows: List[Dict[str, Any]] = [{}]
    for line in text.split("\n"):
        match = re.fullmatch(r"(\w+)\s*: (.*)", line.rstrip())
        if match:
            rows[-1][match[1]] = _value(match[2])
        elif not line.strip() and rows[-1]:
            rows.append({})
    return [row for row in rows if row]


def _usable(table: str, rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Returns rows that rules can use: parts of a report may be missing."""
    for row in rows:
        for column in MAPS & row.keys():
            if not isinstance(row[column], dict):
                row[column] = {}
    return [row for row in rows if isinstance(row.get("name"), str)
            or table not in ("Bridge", "Interface", "Port")]


def _value(text: str) -> Any:
    if text[:1] == "{":
        return {key.strip('"'): _atom(value) for key, value in re.findall(
            r'("[^"]*"|[\w.-]+)=("(?:[^"\\]|\\.)*"|[^,}]*)', text)}
    if text[:1] == "[":
        return [_atom(value) for value in re.findall(
            r'"(?:[^"\\]|\\.)*"|[^][", ]+', text)]
    return _atom(text)


def _atom(text: str) -> Any:
    if text[:1] == '"' == text[-1:]:
        return text[1:-1]
    return (int(text) if re.fullmatch(r"-?\d{1,18}", text) else
            {"true": True, "false": False}.get(text, text))


def _read(path: str) -> str:
    return processes.end_of(path, MAX_SIZE)


def _command(name: str) -> Tuple[str, str]:
    """Returns the command that a file has the text of, and its argument."""
    for command, pattern in _COMMANDS.items():
        match = pattern.fullmatch(name)
        if match:
            return command, match.groupdict().get("argument") or ""
    return "", ""


def load(top: str) -> Dict[str, Stock]:
    """Returns the switches of all directories below 'top', by name."""
    found: Dict[str, Stock] = {}
    log, database, wrong = "", {}, ""
    for directory, _, names in sorted(os.walk(top)):
        stock = Stock()
        tables: Dict[str, Any] = {table: [] for table in READ}
        for name in sorted(names):
            path = os.path.join(directory, name)
            command, argument = _command(name)
            table = _LIST.fullmatch(name)
            if not os.path.isfile(path) or os.path.islink(path):
                continue
            if _LOG.fullmatch(name):
                log = _read(path)
            elif name == "conf.db":
                database, wrong = read_file(
                    processes.end_of(path, MAX_DATABASE)) if (
                        os.path.getsize(path) <= MAX_DATABASE) else (
                            {}, "it is too large to be read")
            elif table and table[1].lower() in TABLES:
                name = TABLES[table[1].lower()]
                tables[name] = _usable(name, _rows(_read(path)))
            elif command.startswith("ovs-ofctl"):
                stock.more[f"dump-tables {argument}"] = stocktext.tables(
                    _read(path))
            elif command:
                text = _read(path)
                failed = re.match(r"(ovs-\w+: |.*is not a valid command)",
                                  text)
                stock.add(stock.last, command.replace(" BR", f" {argument}"),
                          None if failed else text)
        # Other files are named "version", too: /proc has one.
        if stock.last.keys() - {"version"}:
            stock.tables = [tables]
            absent = [command for command in MATTER
                      if not stock.last.get(command)]
            if absent:
                stock.notes.append(
                    f"there is no output of {' or of '.join(absent)}, so "
                    "most rules find nothing")
            name = os.path.relpath(directory, top)
            found["" if name == "." else name] = stock
    if len(found) == 1:                 # Then log and database are its own.
        for stock in found.values():
            stock.log = log
            stock.tables = [{
                table: rows or _usable(table, database.get(table, []))
                for table, rows in stock.tables[0].items()}]
            if wrong:
                stock.notes.append(f"conf.db: {wrong}")
        return {os.path.basename(os.path.abspath(top)): stock}
    return found
