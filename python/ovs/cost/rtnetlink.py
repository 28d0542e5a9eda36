# SPDX-License-Identifier: Apache-2.0
"""What changes in the kernel: links, addresses and routes, and who does it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import time
from collections import Counter
from typing import Counter as Counts, Dict, Iterator, Optional, Tuple

from ovs.cost import processes

_GROUPS = 0x551                 # Links, addresses, routes; IPv4 and IPv6.
_LINKS, _ADDRESSES, _ROUTES = (16, 17), (20, 21), (24, 25)
_RTA_TABLE = 15
_TABLES = {253: "default", 254: "main", 255: "local"}
_SIOCGIFNAME = 0x8910
_CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def _network_of(pid: int) -> Iterator[None]:
    """Has this process in the network namespace of another.  Raises OSError if
    it may not."""
    path = "/proc/{}/ns/net"
    if os.readlink(path.format(pid)) == os.readlink(path.format("self")):
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path.format("self")) as own, open(path.format(pid)) as other:
        if libc.setns(other.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            libc.setns(own.fileno(), _CLONE_NEWNET)


class Changes:
    """Counts changes in the network namespace of a process.  Raises
    OSError."""

    _socket: Optional[socket.socket] = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.counts: Counts[Tuple[str, int]] = Counter()    # What, and port.
        self.names: Dict[int, str] = {0: ""}    # Of senders, by Netlink port.
        with _network_of(pid):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW,
                                         socket.NETLINK_ROUTE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((0, _GROUPS))
        self._socket.setblocking(False)

    def close(self) -> None:
        if self._socket:
            self._socket.close()

    __del__ = close                     # Whatever ends the window.

    def look(self) -> None:
        """Counts what has changed so far, for 50 ms at most.  More than there
        is room for is lost."""
        end = time.monotonic() + 0.05
        while self._socket and time.monotonic() < end:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:                     # Some were lost.
                continue
            for kind, port, body in processes.messages(data):
                what = self._what(kind, body)
                if what:
                    self.counts[what, port] += 1
        # Who is gone in a moment can't be known later.
        for port in {port for _, port in self.counts} - self.names.keys():
            self.names[port] = self._sender(port) if (
                len(self.names) < 100) else ""

    def _what(self, kind: int, body: bytes) -> str:
        if kind in _ROUTES and len(body) >= 12:
            table = body[4]
            for attr, value in processes.attributes(body[12:]):
                if attr == _RTA_TABLE and len(value) >= 4:
                    table = struct.unpack_from("=I", value)[0]
            return f"routes of table {_TABLES.get(table, table)}"
        if kind in _LINKS + _ADDRESSES and len(body) >= 8:
            index = struct.unpack_from("=I", body, 4)[0]
            name = f"device {index}"
            with contextlib.suppress(OSError):
                name = fcntl.ioctl(self._socket, _SIOCGIFNAME, struct.pack(
                    "=16sI20x", b"", index))[:16].rstrip(b"\0").decode(
                        errors="replace")
            return ("the link " if kind in _LINKS else "addresses of ") + name
        return ""

    def _sender(self, port: int) -> str:
        """Returns the process that has a Netlink port, or ""."""
        return processes.owner(f"/proc/{self.pid}/net/netlink",
                               lambda row: row[1:3] == ["0", str(port)])

    def most(self, kinds: Tuple[str, ...]) -> Tuple[str, int, str]:
        """Returns what changes most, of what begins with one of 'kinds' if
        there are any, how often, and who changes it.  What the kernel changes
        by itself follows from other changes."""
        found: Counts[str] = Counter()
        others: Counts[str] = Counter()
        senders: Counts[Tuple[str, str]] = Counter()
        for (what, port), n in self.counts.items():
            if not kinds or what.startswith(kinds):
                found[what] += n
                others[what] += n * (port != 0)
                senders[what, self.names.get(port, "")] += n
        for what, n in sorted(found.items(), reverse=True,
                              key=lambda one: (others[one[0]], one[1])):
            return what, n, max(((senders[key], key[1]) for key in senders
                                 if key[0] == what and key[1]),
                                default=(0, ""))[1]
        return "", 0, ""
