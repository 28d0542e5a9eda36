# SPDX-License-Identifier: Apache-2.0
"""Recordings: files of replies over time.

A recording is a file of lines, each a JSON object, maybe compressed with gzip.
The first one is the header, whose member "ovs_cost_recording" is the version
of this form.  Each of the others has the name of a "target" and either a
"reply" of one of its cost commands, as it came, or an "error".

What was cut off, in the middle of a line or of compressed data, is readable up
to the last whole line.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import time
import zlib
from typing import (IO, Any, Callable, Dict, Iterator, List, NamedTuple,
                    Optional, Set, Tuple)

from ovs.cost import model

FORMAT = 1
_CHUNK = 1 << 18


class BadRecording(Exception):
    """A file that is no recording."""


def header(targets: List[str], interval: float) -> Dict[str, Any]:
    """Returns the header of a new recording."""
    uname = os.uname()
    return {"ovs_cost_recording": FORMAT, "host": socket.gethostname(),
            "system": f"{uname.sysname} {uname.release} {uname.machine}",
            "processors": os.cpu_count(), "started_us": int(time.time() * 1e6),
            "interval_s": interval, "targets": targets}


class Writer:
    """Writes a recording.

    Every call of flush() makes what was written before it readable, whatever
    happens afterwards."""

    def __init__(self, path: str, head: Dict[str, Any], rotate: int = 0,
                 keep: int = 0) -> None:
        self.path = path
        self.head = head
        self.rotate = rotate            # Bytes of a file, or 0.
        self.keep = keep                # How many full files.
        self.size = 0
        self._file: Optional[IO[bytes]] = None
        self._gzip: Any = None
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self.path, flags, 0o644), "wb", 0)
        self._gzip = (zlib.compressobj(6, zlib.DEFLATED, 31)
                      if self.path.endswith(".gz") else None)
        self.size = 0
        self.write(self.head)
        self.flush()

    def _put(self, data: bytes) -> None:
        assert self._file
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) or 0:]
        except OSError as e:
            raise OSError(e.errno, e.strerror, self.path) from e
        self.size += len(data)

    def write(self, line: Dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self._put(self._gzip.compress(data) if self._gzip else data)

    def flush(self) -> None:
        if self._gzip:
            self._put(self._gzip.flush(zlib.Z_SYNC_FLUSH))
        if self.rotate and self.size >= self.rotate:
            self.close()
            for i in range(self.keep, 0, -1):
                older = self.path if i == 1 else f"{self.path}.{i - 1}"
                if os.path.exists(older):
                    os.replace(older, f"{self.path}.{i}")
            if not self.keep:
                os.unlink(self.path)
            self._open()

    def close(self) -> None:
        if self._file:
            if self._gzip:
                self._put(self._gzip.flush())
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def _chunks(path: str) -> Iterator[bytes]:
    """Yields what is in a file, maybe compressed, as far as it goes."""
    with (sys.stdin.buffer if path == "-" else open(path, "rb")) as f:
        chunk = f.read(_CHUNK)
        unzip = None
        if chunk[:2] == b"\x1f\x8b":
            unzip = zlib.decompressobj(31)
        while chunk:
            if unzip is None:
                yield chunk
            else:
                try:
                    yield unzip.decompress(chunk)
                    while unzip.eof and unzip.unused_data:
                        rest = unzip.unused_data
                        unzip = zlib.decompressobj(31)
                        yield unzip.decompress(rest)
                except zlib.error:
                    return
            chunk = f.read(_CHUNK)


def _values(path: str, note: Callable[[str], None]) -> Iterator[Any]:
    """Yields the JSON values in a file, each on a line or a file of one."""
    pending: List[bytes] = []
    n_lines = 0
    for chunk in _chunks(path):
        lines = chunk.split(b"\n")
        pending.append(lines[0])
        for line in lines[1:]:
            whole = b"".join(pending)
            pending = [line]
            n_lines += 1
            if n_lines == 1 and not whole.rstrip().endswith(b"}"):
                # No line of a recording, but maybe JSON for people.
                yield from _one_value(path)
                return
            if whole.strip():
                try:
                    yield json.loads(whole)
                except (ValueError, RecursionError) as e:
                    raise BadRecording(f"{path}:{n_lines}: not JSON "
                                       f"({e})") from e
    rest = b"".join(pending)
    if rest.strip():
        try:
            yield json.loads(rest)
        except (ValueError, RecursionError):
            if not n_lines:
                raise BadRecording(f"{path}: no recording") from None
            note(f"{path}: the last line was cut off, and is left out")


def _one_value(path: str) -> Iterator[Any]:
    try:
        yield json.loads(b"".join(_chunks(path)))
    except (ValueError, RecursionError) as e:
        raise BadRecording(f"{path}: no recording" + (
            "" if isinstance(e, UnicodeError) else f" ({e})")) from e


class Line(NamedTuple):
    """A line of a recording."""

    source: str                         # Where it is from: host and target.
    reply: Optional[Dict[str, Any]]
    error: str


def read(path: str, note: Callable[[str], None]
         ) -> Tuple[Dict[str, Any], Iterator[Line]]:
    """Returns the header of a recording, and an iterator over its lines.

    Replies that are in no recording, such as "ovs-appctl --format json" prints
    them, do as well.  Raises BadRecording, or OSError."""
    values = _values(path, note)
    try:
        first = next(values)
    except StopIteration:
        raise BadRecording(f"{path}: empty") from None
    if isinstance(first, dict) and "ovs_cost_recording" in first:
        if first["ovs_cost_recording"] != FORMAT:
            raise BadRecording(
                f"{path}: a recording of version "
                f"{first['ovs_cost_recording']}, of which this program knows "
                f"{FORMAT} only: a newer one is needed")
        return first, _lines(path, str(first.get("host", "")), values)
    return {}, (Line("", value or {}, "")
                for value in itertools.chain([first], values))


def _lines(path: str, host: str, values: Iterator[Any]) -> Iterator[Line]:
    for value in values:
        if not isinstance(value, dict):
            raise BadRecording(f"{path}: a line that is no JSON object")
        reply = value.get("reply")
        if reply is not None or "error" in value:   # Or something new.
            yield Line(f"{host}/{value.get('target', '')}", reply,
                       str(value.get("error", "")))


def _continues(early: model.Reply, late: model.Reply) -> bool:
    """Returns true if 'late' is what 'early' has become: nothing began to
    count again in between."""
    if (early.pid, early.start_us) != (late.pid, late.start_us):
        return False
    if (early.accounts.keys() != late.accounts.keys()
            and not early.omitted and not late.omitted):
        return False
    return all(after[key].since_us == account.since_us
               for before, after in ((early.accounts, late.accounts),
                                     (early.totals, late.totals))
               for key, account in before.items() if key in after)


def _thinned(replies: List[model.Reply]) -> List[model.Reply]:
    """Returns 'replies', in order, without every second one of those without
    which the differences add up to the same."""
    kept = replies[:1]
    i = 1
    while i < len(replies):
        if (i + 1 < len(replies) and _continues(kept[-1], replies[i])
                and _continues(replies[i], replies[i + 1])):
            i += 1
        kept.append(replies[i])
        i += 1
    return kept


class Recording:
    """All of one or several files, in the order of time.

    Of a long recording, not every reply is kept: what happened in neighboring
    intervals is then known as a whole."""

    MAX_REPLIES = 1000          # Of each report, unless none can be spared.

    def __init__(self) -> None:
        self.headers: List[Dict[str, Any]] = []
        self.sums: Set[str] = set()     # Sources of sums, not of replies.
        self.replies: Dict[Tuple[str, str], List[model.Reply]] = {}
        # Accounts of the latest reply that has them.
        self.slowest: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
        self.limits: Dict[str, List[Dict[str, Any]]] = {}
        # First and last one.
        self.threads: Dict[str, List[Dict[str, Any]]] = {}
        # The same of who events are for, by source, and report and list.
        self.tops: Dict[Tuple[str, str], List[Dict[str, Any]]] = {}
        self.errors: List[Line] = []
        self.stock: Dict[str, Any] = {}     # By source: what stock.py reads.
        self._room: Dict[Tuple[str, str], int] = {}

    def _add(self, key: Tuple[str, str], reply: model.Reply) -> None:
        replies = self.replies.setdefault(key, [])
        replies.append(reply)
        if len(replies) > self._room.get(key, self.MAX_REPLIES):
            replies.sort(key=lambda r: r.now_us)
            replies[:] = _thinned(replies)
            self._room[key] = (
                self.MAX_REPLIES if len(replies) <= self.MAX_REPLIES * 3 // 4
                else 2 * len(replies))

    def load(self, path: str, note: Callable[[str], None]) -> None:
        """Reads a file."""
        head, lines = read(path, note)
        self.headers.append(head)
        try:
            for line in lines:
                if head.get("merged"):
                    line = line._replace(source=path)
                    self.sums.add(path)
                if line.reply is not None:
                    self.add(line.source, line.reply)
                else:
                    self.errors.append(line)
        except model.BadReply as e:
            raise BadRecording(f"{path}: {e}") from e

    @model.understood()
    def add(self, source: str, json: Dict[str, Any]) -> None:
        """Adds a reply.  Raises BadReply."""
        model.check_version(json)
        report, command = json["report"], json.get("command")
        if command == "cost-show":
            self._add((source, report), model.Reply.from_json(json))
            slowest = [account for account in json.get("accounts", ())
                       if "slowest" in account]
            if slowest:
                self.slowest[source, report] = slowest
            self._add_tops(source, json)
        elif command == "cost-limit":
            self.limits.setdefault(source, []).append(json)
        elif command == "threads":
            self.threads[source] = self.threads.get(source, [])[:1] + [json]

    def _add_tops(self, source: str, json: Dict[str, Any]) -> None:
        """Adds who events are for.  Two kinds of a report have the same."""
        tops: Dict[str, List[Dict[str, Any]]] = {}
        for total in json.get("total", ()):
            for top in total.get("top", ()):
                rows = tops.setdefault(f"{json['report']} {top['what']}", [])
                for row in top["rows"]:
                    rows.append(row if top["what"] == "port" else dict(
                        row, name=f"{row['name']} "
                        f"{row.get('group', '')}".strip()))
        for what, rows in tops.items():
            key = source, what
            self.tops[key] = self.tops.get(key, [])[:1] + [
                {"pid": json["pid"], "rows": rows}]

    def after(self, early: Recording) -> Recording:
        """Returns what is of both 'early' and this one, each of which has one
        reply of each kind."""
        both = Recording()
        both.headers, both.limits = self.headers, self.limits
        for name in "replies", "threads", "tops":
            old = getattr(early, name)
            setattr(both, name, {key: old[key] + replies for key, replies
                                 in getattr(self, name).items() if key in old})
        return both

    def finish(self) -> None:
        for replies in self.replies.values():
            replies.sort(key=lambda r: r.now_us)
        for limits in self.limits.values():
            limits.sort(key=lambda r: r["now_us"])

    def reports(self) -> List[str]:
        """Returns the names of the reports that there are, in order."""
        there = {report for _, report in self.replies}
        return ([r for r in model.REPORTS if r in there]
                + sorted(there - set(model.REPORTS)))

    def windows(self, source: str, report: str) -> List[model.Window]:
        """Returns what happened between each two replies of a 'source', or
        all that there is if there is only one."""
        replies = self.replies.get((source, report), [])
        if len(replies) == 1 or source in self.sums:
            return [model.everything(r) for r in replies]
        return [model.between(a, b) for a, b in zip(replies, replies[1:])
                if b.now_us > a.now_us]

    def sources(self) -> List[str]:
        return sorted({source for source, _ in self.replies})


def load(paths: List[str], note: Callable[[str], None]) -> Recording:
    """Reads files as one recording."""
    recording = Recording()
    for path in paths:
        recording.load(path, note)
    recording.finish()
    return recording
