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
from typing import Any, List, Optional

import ovs.dirs


class TargetError(Exception):
    """A target that can't be talked to, or not any more."""


class CommandError(Exception):
    """A command that the target refused or does not know."""


def socket_path(target: str) -> str:
    """Returns the path of the socket of 'target', a name or a path."""
    if os.path.isabs(target):
        return target
    pidfile = os.path.join(ovs.dirs.RUNDIR, f"{target}.pid")
    try:
        with open(pidfile) as f:
            pid = int(f.read())
    except (OSError, ValueError) as e:
        raise TargetError(f"{target}: is it running? (cannot read {pidfile}: "
                          f"{getattr(e, 'strerror', None) or e})") from e
    return os.path.join(ovs.dirs.RUNDIR, f"{target}.{pid}.ctl")


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

    def close(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None

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
        # Has to be the first request.
        self._transact("set-options", ["--format", "json"], deadline)

    def command(self, command: str, *args: str) -> Any:
        """Returns what 'command' replies, in JSON.

        Raises TargetError or CommandError."""
        deadline = time.monotonic() + self.timeout
        if not self._socket:
            self._connect(deadline)
        return self._transact(command, list(args), deadline)

    def _transact(self, method: str, params: List[str],
                  deadline: float) -> Any:
        assert self._socket
        self._id += 1
        request = json.dumps({"method": method, "params": params,
                              "id": self._id}).encode()
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            self._socket.sendall(request)
            reply = self._receive(deadline)
        except socket.timeout:
            self.close()
            raise TargetError(f"{self.name}: no reply to {method} in "
                              f"{self.timeout:g} s") from None
        except OSError as e:
            self.close()
            raise TargetError(f"{self.name}: {e.strerror or e}") from e
        if not isinstance(reply, dict) or reply.get("id") != self._id:
            self.close()
            raise TargetError(f"{self.name}: a reply that is not understood")
        if reply.get("error") is not None:
            raise CommandError(str(reply["error"]).strip())
        return reply.get("result")

    def _receive(self, deadline: float) -> Any:
        """Returns the next JSON value."""
        assert self._socket
        data = bytearray()
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout
            self._socket.settimeout(left)
            chunk = self._socket.recv(1 << 20)
            if not chunk:
                raise OSError(errno.ECONNRESET, "the connection was closed")
            data += chunk
            # It is complete at some '}' at the end of what has come.
            if data.rstrip().endswith(b"}"):
                try:
                    return json.loads(data.decode(errors="replace"))
                except ValueError:
                    continue


def is_unknown(error: CommandError) -> bool:
    """Returns true if the target does not have the command."""
    return "is not a valid command" in str(error)
