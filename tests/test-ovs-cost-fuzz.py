#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzz tests: whatever ovs-cost reads, it fails as it should, if at all.

Examples are the same in each run; OVS_COST_FUZZ=N has N others."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import socket
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, List, Tuple

from ovs.cost import archive, doctor, model, processes, recording, stocktext
from ovs.cost.database import READ, Database
from ovs.cost.record import Poller
from ovs.cost.target import Target

try:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
except ImportError:
    print("python3-hypothesis is not installed")
    sys.exit(77)                        # For Autotest: skipped.

base = importlib.import_module("test-ovs-cost")
any_switch = importlib.import_module("test-ovs-cost-stock")
N = int(os.environ.get("OVS_COST_FUZZ", "0"))
fuzz = settings(max_examples=N or 25, derandomize=not N, database=None,
                deadline=None, suppress_health_check=[HealthCheck.too_slow])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda one: st.lists(one) | st.dictionaries(st.text(), one), max_leaves=4)
# A path, and the value that is there then, none if it is "...".
CHANGES = st.lists(st.tuples(
    st.lists(st.integers(0, 99), min_size=5, max_size=12),
    st.integers(0, 1 << 63) | st.sampled_from(["p1", "total", 0, 1, ...])
    | JSON), max_size=3)
# Where, how and what is inserted.
EDITS = st.lists(st.tuples(
    st.integers(0, 1 << 30), st.sampled_from(("cut", "line", "number", "add")),
    st.text() | st.integers().map(str) | st.sampled_from([
        "9" * 5000, "[" * 20000, "{a=" * 2000, '["set", [["map", 1]], 0]',
        "1e999", "\u0663", "\ud800", "\0", " " * 2000, "\n" * 2000])),
    max_size=6)

# Tables of the database, as "ovs-vsctl list" prints them.
LISTS = st.dictionaries(st.sampled_from(sorted(READ)), st.lists(
    st.dictionaries(
        st.sampled_from(sorted({
            *READ["Interface"], *READ["Port"], *archive.MAPS, "ports", "role",
            "controller", "fail_mode", "target", "is_connected"})),
        st.sampled_from(["u1", "[u1, 2]", "[]", "{a=b}", "7", "true", "false",
                         '"{0} x"', "up", "active", "secure", "system",
                         '{rx_packets="9", remote_ip="10.9.0.7", key=1}']))))


def damaged(text: str, *edits: Tuple[int, str, str]) -> str:
    for where, how, new in edits:
        at = where % (len(text) + 1)
        start, end = text.rfind("\n", 0, at) + 1, f"{text}\n".index("\n", at)
        text = (text[:at] if how == "cut" else
                text[:start] + text[end + 1:] if how == "line" else
                text[:at] + re.sub(r"\d+", lambda _: new, text[at:], 1)
                if how == "number" else text[:at] + new + text[at:])
    return text


def changed(value: Any, path: List[int], new: Any) -> Any:
    if not path or not value or not isinstance(value, (dict, list)):
        return new
    value = value.copy()
    i = path[0] % len(value)
    key = list(value)[i] if isinstance(value, dict) else i
    value[key] = changed(value[key], path[1:], new)
    if value[key] is ...:
        del value[key]
    return value


def dump(values: List[Any], changes: List[Tuple[List[int], Any]]) -> str:
    for path, new in changes:
        values = values and changed(values, path, new)
    return "\n".join(map(json.dumps, values))


@contextlib.contextmanager
def peer(sent: str) -> Iterator[socket.socket]:
    """Has a socket from which 'sent' comes, as far as there is room."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        theirs.send(sent.encode(errors="surrogatepass"))
        theirs.shutdown(socket.SHUT_WR)
        yield ours


TEXTS = [{
    **{"ovs-appctl_" + re.sub("[/ ]", "_", command): text
       for command, text in texts.items()},
    "ovs-vswitchd.log": "2026-01-01T00:00:00Z|1|timeval|WARN|Unreasonably "
    "long 2345ms poll interval\n2026-01-01T00:00:00Z|2|tunnel|WARN|receive "
    "tunnel port not found (udp,tun_id=0xc8,tun_src=10.9.0.7,in_port=1)\n",
    "conf.db": "".join(f"OVSDB JSON 9 0\n{line}\n" for line
                       in map(json.dumps, any_switch.DATABASE))}
    for texts in any_switch.RECORDED.values()]
switch = base.fake.Switch(base.START)
LINES: List[Any] = [recording.header(["t"], 1.0)]
for _ in range(2):
    switch.run(1, 20)
    switch.tops = {"upcall port": [{"name": "p1", "events": switch.now_us,
                                    "samples": 9, "error": 0, "mean_ns": 9}]}
    LINES += [{"target": "t", "reply": reply} for reply in (
        *(switch.show(report, True) for report in model.REPORTS),
        switch.cost_limit(), switch.cost_threads())]
ANSWER = {"id": 1, "error": None, "result": {
    "replies": [line["reply"] for line in LINES[1:8]]}}
MESSAGES = [
    {"method": "update", "id": None, "params": [0, {"Interface": {
        "u": {"new": {"name": "p1"}, "old": {"other_config": ["map", []]}}}}]},
    {"id": 1, "error": None, "result": [{"rows": [
        {"name": "br0", "ports": ["set", [["uuid", "a"]]],
         "other_config": ["map", [["a", "b"]]]}]}]}]


class TestFuzz(base.InTemporary):           # type: ignore
    @fuzz
    @given(st.sampled_from(range(len(TEXTS))), LISTS, EDITS)
    def test_text(self, version: int, lists: Any, edits: Any) -> None:
        """A report of a host, and texts of commands."""
        texts = {**TEXTS[version], **{f"ovs-vsctl_list_{table}": "\n\n".join(
            "\n".join(map(": ".join, {"name": "p1", **row}.items()))
            for row in rows) for table, rows in lists.items()}}
        for edit in edits:
            name = sorted(texts)[edit[0] % len(texts)]
            texts[name] = damaged(texts[name], edit)
        with tempfile.TemporaryDirectory() as top:
            for name, text in texts.items():
                (Path(top) / name).write_text(text, "utf-8", "surrogatepass")
                for parse in ("zones", "groups", "flows", "meters", "warning",
                              "last_rule", "resubmitting_rule", "next_hop"):
                    getattr(stocktext, parse)(text)
                stocktext.fdb(text, [])
            got = recording.Recording()
            got.stock = archive.load(top)
        well = any_switch.healthy()
        for stock in got.stock.values():
            doctor.findings(got)
            # The same after a window.
            stock.first, stock.threads = well.first, well.threads
            stock.seconds, stock.since = 10, any_switch.START
            stock.tables *= 2
            doctor.findings(got)

    @fuzz
    @given(CHANGES, st.just([]) | EDITS)
    def test_recording(self, changes: Any, edits: Any) -> None:
        path = "recording"
        Path(path).write_text(damaged(dump(LINES, changes), *edits), "utf-8",
                              "surrogatepass")
        try:
            doctor.findings(recording.load([path], base.silent))
        except recording.BadRecording as e:
            self.assertIn(f"{path}:", str(e))
        for command in (["show", "--hist", "--slowest"], ["report"]):
            self.assertIn(self.run_main(*command, path)[0], (0, 2))

    @fuzz
    @given(CHANGES, st.just([]) | EDITS)
    def test_answer(self, changes: Any, edits: Any) -> None:
        """What comes from a control socket."""
        with peer(damaged(dump([ANSWER], changes), *edits)) as sock:
            target = Target("t")
            target._socket = sock
            with contextlib.suppress(model.BadReply):
                for line in Poller(target, model.REPORTS, 9).round(False):
                    if "reply" in line:
                        recording.Recording().add("", line["reply"])

    @fuzz
    @given(CHANGES, st.just([]) | EDITS)
    def test_database(self, changes: Any, edits: Any) -> None:
        """What comes from ovsdb-server."""
        with peer(damaged(dump(MESSAGES, changes), *edits)) as sock:
            database = Database.__new__(Database)
            database.__dict__.update(timeout=5, server=0, _socket=sock, _id=0,
                                     _buffer="", changes=Counter())
            with contextlib.suppress(OSError, ValueError):
                database.read()
                database.look()

    @fuzz
    @given(st.binary(max_size=200))
    def test_netlink(self, data: bytes) -> None:
        for _, _, body in processes.messages(data):
            list(processes.attributes(body))


if __name__ == "__main__":
    unittest.main()
