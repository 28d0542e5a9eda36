# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch's database: what is in it, and what changes."""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from typing import Any, Counter as Counts, Dict, List, Tuple

from ovs.cost import processes
from ovs.cost.model import BadReply, understood

# What is read, and columns that people or programs change.
READ = {"Open_vSwitch": (), "Bridge": (), "Controller": (),
        "Port": ("_uuid", "name", "lacp", "interfaces", "other_config", "qos"),
        "QoS": ("_uuid", "type", "other_config"),
        "Interface": ("_uuid", "name", "type", "ofport", "options",
                      "bfd_status", "statistics", "error", "link_resets",
                      "ifindex", "admin_state", "link_state", "lacp_current",
                      "cfm_fault", "cfm_fault_status")}
WATCHED = {
    "Open_vSwitch": ("other_config", "external_ids", "bridges"),
    "Bridge": ("name", "other_config", "external_ids", "ports", "controller"),
    "Port": ("name", "other_config", "external_ids", "interfaces", "tag",
             "trunks"),
    "Interface": ("name", "other_config", "external_ids", "options", "type",
                  "bfd")}


def _plain(value: Any) -> Any:
    """Returns a map as a dictionary, and a set as a list."""
    if isinstance(value, list) and len(value) == 2:
        kind, what = value
        if kind == "map":
            return {str(k): _plain(v) for k, v in what}
        if kind == "set":
            return [_plain(v) for v in what]
        if kind in ("uuid", "named-uuid"):
            return what
    return value


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, list) and value[:1] == [kind]


def _items(value: Any) -> List[Any]:
    """Returns the elements of a set: a list, or its only one."""
    return list(value[1]) if _is("set", value) else [value]


def _apply(old: Any, diff: Any) -> Any:
    """Returns a map or set after a difference, as files of databases have
    it."""
    if _is("map", diff):
        pairs = {str(k): [k, v] for k, v in old[1]} if old else {}
        for key, value in diff[1]:
            if pairs.get(str(key)) == [key, value]:
                del pairs[str(key)]
            else:
                pairs[str(key)] = [key, value]
        return ["map", list(pairs.values())]
    before, change = _items(old or ["set", []]), _items(diff)
    return ["set", [v for v in before if v not in change]
            + [v for v in change if v not in before]]


def _several(schema: Dict[str, Any], table: str, column: str) -> bool:
    """Returns true if a column has a map, or a set of any size."""
    kind = schema[table]["columns"].get(column, {}).get("type")
    return isinstance(kind, dict) and kind.get("max", 1) != 1


def read_file(text: str) -> Tuple[Dict[str, List[Dict[str, Any]]], str]:
    """Returns the rows of some tables in a file of ovsdb-server, and what is
    wrong with it, or "".  The file has a schema and transactions, each after a
    line about it; what follows a damaged one is not read."""
    lines = text.split("\n")
    tables: Dict[str, Dict[str, Dict[str, Any]]] = {name: {} for name in READ}
    n = 1
    try:
        if not lines[0].startswith("OVSDB JSON "):
            raise ValueError
        schema = json.loads(lines[1])["tables"]
        # After the last one, there is an empty line.
        for n in range(3, len(lines), 2):
            transaction = json.loads(lines[n])
            for table, uuid, row in [
                    (table, uuid, row) for table in READ
                    for uuid, row in transaction.get(table, {}).items()]:
                if row is None:
                    tables[table].pop(uuid, None)
                    continue
                new = tables[table].setdefault(uuid, {"_uuid": uuid})
                for column, value in row.items():
                    _plain(value)           # Fails if it is damaged.
                    new[column] = _apply(new.get(column), value) if (
                        transaction.get("_is_diff")
                        and _several(schema, table, column)) else value
        wrong = ""
    except (ValueError, LookupError, TypeError, AttributeError,
            RecursionError):
        wrong = ("it is not a database of ovsdb-server" if n == 1 else
                 f"it is damaged or cut off, and read to line {n - 1} only")
    return {table: [{column: _plain(value) for column, value in row.items()}
                    for row in rows.values()]
            for table, rows in tables.items()}, wrong


class Database:
    """A connection to ovsdb-server.  Raises OSError or ValueError."""

    def __init__(self, remote: str, timeout: float) -> None:
        self.timeout = timeout
        self.changes: Counts[Tuple[str, str, str]] = Counter()
        self._buffer = ""
        self._id = 0
        kind, _, where = remote.partition(":")
        if kind == "tcp":
            match = re.fullmatch(r"(\[.*\]|[^:]*)(?::(\d{1,5}))?", where)
            if not match:
                raise ValueError(f"{remote} is not tcp:HOST[:PORT]")
            self._socket = socket.create_connection(
                (match[1].strip("[]"), int(match[2] or 6640)), timeout)
        elif kind == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
        else:
            raise ValueError("only unix: and tcp: are supported")
        self._socket.settimeout(timeout)
        try:
            if kind == "unix":
                self._socket.connect(where)
            self.server = processes.peer(self._socket)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def _send(self, **message: Any) -> None:
        self._socket.settimeout(self.timeout)
        self._socket.sendall(json.dumps(message).encode())

    def _messages(self, seconds: float) -> List[Dict[str, Any]]:
        """Returns what comes within 'seconds', until there is something."""
        self._socket.settimeout(max(seconds, 0.001))
        try:
            data = self._socket.recv(1 << 20)
        except (BlockingIOError, socket.timeout):
            return []
        if not data:
            raise ConnectionResetError("it has closed the connection")
        self._buffer += data.decode(errors="replace")
        found = []
        while self._buffer.endswith("}"):
            try:
                value, end = json.JSONDecoder().raw_decode(self._buffer)
            except ValueError:
                break
            self._buffer = self._buffer[end:].lstrip()
            found.append(value)
        return found

    def _handle(self, message: Dict[str, Any]) -> None:
        if message.get("method") == "echo":
            self._send(result=message.get("params"), error=None,
                       id=message.get("id"))
        elif message.get("method") == "update":
            for table, rows in message["params"][1].items():
                for row in rows.values():
                    new = row.get("new") or row.get("old") or {}
                    name = str(new.get("name", ""))
                    columns = (list(row["old"]) if "new" in row
                               and "old" in row else
                               ["new row"] if "new" in row else ["deleted"])
                    for column in columns:
                        self.changes[table, name, column] += 1

    @understood()
    def _call(self, method: str, params: List[Any]) -> Any:
        self._id += 1
        self._send(method=method, params=params, id=self._id)
        deadline = time.monotonic() + self.timeout
        while time.monotonic() < deadline:
            for message in self._messages(deadline - time.monotonic()):
                if message.get("id") == self._id and "method" not in message:
                    if message.get("error"):
                        raise BadReply(str(message["error"]))
                    return message["result"]
                self._handle(message)
        raise socket.timeout(processes.halted(self.server)
                             or "it does not answer in time")

    def echo(self) -> None:
        """Waits for an answer."""
        self._call("echo", [])

    @understood()
    def read(self) -> Dict[str, List[Dict[str, Any]]]:
        """Returns the rows of some tables."""
        tables = list(READ)
        replies = self._call("transact", ["Open_vSwitch", *({
            "op": "select", "table": table, "where": [],
            **({"columns": list(READ[table])} if READ[table] else {})}
            for table in tables)])
        for reply in replies:
            if reply and "error" in reply:
                raise BadReply(f"{reply['error']}: {reply.get('details', '')}")
        return {table: [{column: _plain(value)
                         for column, value in row.items()}
                        for row in reply.get("rows", ())]
                for table, reply in zip(tables, replies)}

    def watch(self) -> None:
        """Counts changes from now on."""
        self._call("monitor", ["Open_vSwitch", 0, {
            table: {"columns": columns, "select": {"initial": False}}
            for table, columns in WATCHED.items()}])

    @understood()
    def look(self) -> None:
        """Counts what has changed so far, for 50 ms at most."""
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            messages = self._messages(0.001)
            for message in messages:
                self._handle(message)
            if not messages:
                return
