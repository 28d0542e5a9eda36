# SPDX-License-Identifier: Apache-2.0
"""The connection to a running ovs-vswitchd."""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import socket
import time
from typing import Any, List, Optional, Sequence

from ovs.cost import processes

try:
    from ovs.dirs import RUNDIR
except ImportError:             # There is no other part of Open vSwitch's.
    RUNDIR = os.environ.get("OVS_RUNDIR", "/var/run/openvswitch")


class TargetError(Exception):
    """A target that can't be talked to, or not any more."""


class CommandError(Exception):
    """A command that the target refused or does not know."""


def socket_path(target: str) -> str:
    """Returns the path of the socket of 'target', a name or a path."""
    if os.path.isabs(target):
        return target
    directory = RUNDIR
    # The package of PyPI has that of "make install", not a distribution's.
    if not os.path.isdir(directory) and "OVS_RUNDIR" not in os.environ:
        directory = "/var/run/openvswitch"
    pidfile = os.path.join(directory, f"{target}.pid")
    try:
        with open(pidfile) as f:
            pid = int(f.read())
    except (OSError, ValueError) as e:
        raise TargetError(
            f"{target}: is it running? (cannot read {pidfile}: "
            f"{getattr(e, 'strerror', 'it has no number')}; if its directory "
            "is another one, set OVS_RUNDIR)") from e
    path = os.path.join(directory, f"{target}.{pid}.ctl")
    if not os.path.exists(path) and not os.path.exists(f"/proc/{pid}"):
        raise TargetError(f"{target}: it is not running: {pidfile} is stale "
                          f"(no process {pid})")
    return path


def _whose(path: str) -> str:
    """Returns who may use the socket at 'path', as far as can be seen."""
    try:
        st = os.stat(path)
    except OSError:
        return ""
    try:
        user = pwd.getpwuid(st.st_uid).pw_name
    except KeyError:
        user = str(st.st_uid)
    try:
        group = grp.getgrgid(st.st_gid).gr_name
    except KeyError:
        group = str(st.st_gid)
    return f" (it is for user {user} and group {group})"


class Target:
    """One ovs-vswitchd, to which it connects when there is a command.

    Speaks JSON-RPC itself: ovs.unixctl waits for a reply for ever, and its
    JSON parser, where it is in Python, takes longer than a report may."""

    def __init__(self, name: str, timeout: float = 10.0) -> None:
        self.name = name
        self.timeout = timeout
        self._socket: Optional[socket.socket] = None
        self._id = 0
        self._data = bytearray()        # Received, but not read.

    def close(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None
        self._data = bytearray()

    def _connect(self, deadline: float) -> None:
        path = socket_path(self.name)
        self._socket = socket.socket(socket.AF_UNIX,
                                     socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            self._socket.connect(path)
        except OSError as e:
            self.close()
            whose = _whose(path) if e.errno == errno.EACCES else ""
            raise TargetError(f"{path}: {e.strerror or e}{whose}") from e
        # Has to be the first request.  Open vSwitch before 3.4 lacks it.
        try:
            self._transact("set-options", ["--format", "json"], deadline)
        except CommandError as e:
            if "unknown method" in str(e):
                raise TargetError(f"{path}: this is the socket of a database, "
                                  "no control socket") from e
            if not is_unknown(e):
                raise

    def pid(self) -> int:
        """Returns the process at the other end, or 0, as processes.peer()
        does, or if there is no connection."""
        return processes.peer(self._socket) if self._socket else 0

    def command(self, command: str, *args: str) -> Any:
        """Returns what 'command' replies, in JSON.

        Raises TargetError or CommandError."""
        deadline = time.monotonic() + self.timeout
        if not self._socket:
            self._connect(deadline)
        return self._transact(command, list(args), deadline)

    def ask(self, requests: Sequence[Sequence[str]]) -> List[Any]:
        """Returns what each command of 'requests' replies: a CommandError if
        it was refused, None if it has not come in time.  All are sent at
        once, as the main thread executes ten of them in an iteration."""
        deadline = time.monotonic() + self.timeout
        if not self._socket:
            self._connect(deadline)
        return self._exchange(requests, deadline)

    def _exchange(self, requests: Sequence[Sequence[str]],
                  deadline: float) -> List[Any]:
        assert self._socket
        replies: List[Any] = []
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            self._socket.sendall(b"".join(json.dumps({
                "method": method, "params": params, "id": self._id + i
            }).encode() for i, (method, *params) in enumerate(requests, 1)))
            for i, _ in enumerate(requests, self._id + 1):
                reply = self._receive(deadline)
                if not isinstance(reply, dict) or reply.get("id") != i:
                    raise OSError(errno.EPROTO, "a reply that is not "
                                  "understood")
                replies.append(CommandError(str(reply["error"]).strip())
                               if reply.get("error") is not None
                               else reply.get("result"))
            self._id += len(requests)
        except OSError as e:
            self.close()                # A late reply is dropped.
            if not isinstance(e, socket.timeout):
                raise TargetError(f"{self.name}: {e.strerror or e}") from e
        return replies + [None] * (len(requests) - len(replies))

    def _transact(self, method: str, params: List[str],
                  deadline: float) -> Any:
        [reply] = self._exchange([[method, *params]], deadline)
        if not self._socket:
            raise TargetError(f"{self.name}: no reply to {method} in "
                              f"{self.timeout:g} s")
        if isinstance(reply, CommandError):
            if is_unknown(reply) and "cost" in method:
                reply = CommandError(
                    f"\"{method}\" is not a valid command: {self.name} has no "
                    "accounting, or an older version of it (only \"ovs-cost "
                    "doctor\" works without)")
            raise reply
        return reply

    def _receive(self, deadline: float) -> Any:
        """Returns the next JSON value."""
        assert self._socket
        while True:
            # It is complete at some '}' at the end of what has come.
            if self._data.endswith(b"}"):
                text = self._data.decode(errors="replace")
                try:
                    value, end = json.JSONDecoder().raw_decode(text)
                except ValueError:
                    pass
                except RecursionError as e:
                    raise OSError(errno.EPROTO, "a reply that is nested too "
                                  "deeply") from e
                else:
                    self._data = bytearray(text[end:].lstrip().encode())
                    return value
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout
            self._socket.settimeout(left)
            chunk = self._socket.recv(1 << 20)
            if not chunk:
                raise OSError(errno.ECONNRESET, "the connection was closed")
            self._data += chunk.rstrip() if chunk.endswith(b"\n") else chunk


def is_unknown(error: CommandError) -> bool:
    """Returns true if the target does not have the command."""
    return "is not a valid command" in str(error)
