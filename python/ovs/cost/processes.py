# SPDX-License-Identifier: Apache-2.0
"""What the kernel knows of a process: its threads, and who talks to it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_UDIAG_SHOW_NAME_PEER = 5
_UNIX_DIAG_NAME, _UNIX_DIAG_PEER = 0, 2


def _text(path: str) -> str:
    """Returns what a file of /proc has, or "" if it is not to be had."""
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def threads(pid: int) -> Dict[str, Any]:
    """Returns how much of a CPU each thread of a process has had, as
    cost/threads does, or {} if it can't be seen."""
    found = []
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task") if pid else ():
            fields = _text(f"/proc/{pid}/task/{tid}/schedstat").split()
            name = _text(f"/proc/{pid}/task/{tid}/comm").strip()
            if len(fields) > 1 and name:
                found.append({"tid": int(tid), "name": name,
                              "cpu_ns": int(fields[0]),
                              "run_delay_ns": int(fields[1])})
    return {"pid": pid, "now_us": int(time.monotonic() * 1e6),
            "threads": found} if found else {}


def age() -> float:
    """Returns for how many seconds this process runs."""
    fields = _text("/proc/self/stat").rpartition(")")[2].split()
    return (time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19])
            / os.sysconf("SC_CLK_TCK")) if fields else 0.0


def peer(sock: socket.socket) -> int:
    """Returns the process at the other end of a unix socket, as this process
    sees it, or 0 if it doesn't, in a container for instance."""
    return int(struct.unpack("3i", sock.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def halted(pid: int) -> str:
    """Returns why a process does not run, or ""."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return {"T": "it is stopped (SIGSTOP)", "t": "a debugger has stopped it",
            "D": "it waits in the kernel"}.get(fields[0], "") if fields else ""


def root(pid: int) -> str:
    """Returns where the root directory of a process is, "" if it is this
    process's or can't be seen."""
    path = f"/proc/{pid}/root"
    with contextlib.suppress(OSError):
        if not os.path.samefile(path, "/"):
            return path
    return ""


def database(pid: int) -> str:
    """Returns where the database of an ovs-vswitchd is, such as
    "unix:db.sock", or "" if the process is none."""
    if not _text(f"/proc/{pid}/comm").startswith("ovs-vswitchd"):
        return ""
    words = _text(f"/proc/{pid}/cmdline").split("\0")[1:]
    return next((word.split(",")[0] for word in words
                 if re.match(r"(unix|tcp|ssl|p\w+):", word)), "unix:db.sock")


def memory(pid: int) -> int:
    """Returns the bytes that a process has in memory, or 0."""
    fields = _text(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def files_left(pid: int) -> Tuple[int, int]:
    """Returns how many files a process has open, and may have, or 0."""
    limit = re.search(r"^Max open files +(\d+)", _text(f"/proc/{pid}/limits"),
                      re.MULTILINE)
    with contextlib.suppress(OSError):
        if limit:
            return len(os.listdir(f"/proc/{pid}/fd")), int(limit[1])
    return 0, 0


def full_disk(pid: int) -> str:
    """Returns a database that a process has open, and has no room for, or
    ""."""
    found: List[str] = []

    def look() -> None:
        root = re.search(r"^Uid:\s+\d+\s+0\s", _text(f"/proc/{pid}/status"),
                         re.MULTILINE)
        for path in files(pid, r".*\.db"):
            with contextlib.suppress(OSError):
                disk = os.statvfs(f"/proc/{pid}/root{path}")
                # Some is for root only, and in memory there is no limit.
                if disk.f_blocks and not (
                        disk.f_bfree if root else disk.f_bavail):
                    found.append(path)

    # A server of files may not answer.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(1)
    return found[0] if found else ""


def running() -> Dict[int, Tuple[int, int]]:
    """Returns the ticks of CPU that each process with one thread has used, and
    the CPU that it was on last."""
    found = {}
    for pid in os.listdir("/proc"):
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split() if (
            pid.isdigit()) else []
        if len(fields) > 36 and fields[17] == "1":
            found[int(pid)] = int(fields[11]) + int(fields[12]), int(
                fields[36])
    return found


def busiest(first: Dict[int, Tuple[int, int]], seconds: float, but: int
            ) -> Dict[int, Tuple[float, str]]:
    """Returns, by CPU, which process has used most of it since 'first', not
    'but' or this one, and how much of a CPU."""
    found: Dict[int, Tuple[float, int]] = {}
    for pid, (ticks, cpu) in running().items():
        share = (ticks - first.get(pid, (0, 0))[0]) / os.sysconf(
            "SC_CLK_TCK") / seconds
        if pid not in (but, os.getpid()):
            found[cpu] = max(found.get(cpu, (0.0, 0)), (share, pid))
    return {cpu: (share, label(pid)) for cpu, (share, pid) in found.items()
            if share > 0.3}


def cgroups(pid: int, controller: str) -> Iterator[Tuple[str, str]]:
    """Yields the cgroups of a process, and their directories."""
    for line in _text(f"/proc/{pid}/cgroup").split("\n"):
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        top = "/sys/fs/cgroup" + (f"/{controller}" if controllers else "")
        if controllers and controller not in controllers.split(","):
            continue
        while path:
            yield path, f"{top}{path}"
            path = path.rpartition("/")[0]


def quota(pid: int) -> Dict[str, Tuple[int, int]]:
    """Returns, by cgroup of a process, how many periods it has had, and in how
    many its CPU quota was used up."""
    found = {}
    for path, directory in cgroups(pid, "cpu"):
        numbers = re.findall(r"^nr_(?:periods|throttled) (\d+)$", _text(
            f"{directory}/cpu.stat"), re.MULTILINE)
        if len(numbers) == 2:
            found[path] = int(numbers[0]), int(numbers[1])
    return found


def memory_limit(pid: int) -> int:
    """Returns the bytes that a process may have in memory: the least of the
    limits of its cgroups and the host's memory."""
    texts = [_text(f"{directory}/memory.{name}").strip()
             for _, directory in cgroups(pid, "memory")
             for name in ("max", "limit_in_bytes")]
    return min([int(text) for text in texts if text.isdigit()] + [
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")])


def conntrack(what: str) -> int:
    """Returns "count" or "max" of the kernel's connections here, or -1."""
    text = _text(f"/proc/sys/net/netfilter/nf_conntrack_{what}").strip()
    return int(text) if text.isdigit() else -1


def end_of(path: str, size: int) -> str:
    """Returns the end of a file, which has what is newest."""
    with open(path, "rb") as f:
        f.seek(max(os.fstat(f.fileno()).st_size - size, 0))
        return f.read(size).decode(errors="replace")


def log(pid: int) -> Tuple[str, int]:
    """Returns the end of the log file of a process, and its size."""
    for path in files(pid, r".*\.log"):
        path = f"/proc/{pid}/root{path}"
        with contextlib.suppress(OSError):
            return end_of(path, 1 << 16), os.path.getsize(path)
    return "", 0


def files(pid: int, pattern: str) -> Iterator[str]:
    """Yields the names of the open files of a process that match."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                name = os.readlink(f"/proc/{pid}/fd/{fd}")
                if re.fullmatch(pattern, name):
                    yield name


def messages(data: bytes) -> Iterator[Tuple[int, int, bytes]]:
    """Yields type, sender's port and body of each Netlink message."""
    while len(data) >= 16:
        size, kind, _, _, port = struct.unpack_from("=IHHII", data)
        yield kind, port, data[16:max(size, 16)]
        data = data[max(size + 3 & ~3, 16):]


def attributes(data: bytes) -> Iterator[Tuple[int, bytes]]:
    """Yields type and value of each Netlink attribute."""
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:size]
        data = data[max(size + 3 & ~3, 4):]


def _unix_sockets() -> Iterator[Tuple[str, int]]:
    """Yields the path of each unix socket of a server that is connected, and
    the inode of the client's."""
    request = struct.pack("=IHHII", 40, _SOCK_DIAG_BY_FAMILY,
                          _NLM_F_REQUEST_DUMP, 1, 0) + struct.pack(
        "=BBHIIIII", socket.AF_UNIX, 0, 0, 0xffffffff, 0,
        _UDIAG_SHOW_NAME_PEER, 0, 0)
    # NETLINK_SOCK_DIAG is 4.
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as sock:
        sock.settimeout(1)
        sock.send(request)
        while True:
            for kind, _, body in messages(sock.recv(1 << 17)):
                if kind in (_NLMSG_DONE, _NLMSG_ERROR):
                    return
                name, peer = "", 0
                for what, value in attributes(body[16:]):
                    if what == _UNIX_DIAG_NAME:
                        name = value.rstrip(b"\0").decode(errors="replace")
                    elif what == _UNIX_DIAG_PEER:
                        peer = struct.unpack_from("=I", value)[0]
                if peer and name.startswith("/"):
                    yield name, peer


def _stat(pid: int) -> Tuple[int, int]:
    """Returns the parent of a process, and the ticks of CPU it has used."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[1]), int(fields[11]) + int(fields[12])) if fields else (
        0, 0)


def _command(pid: int) -> str:
    """Returns what a process is, such as "python3 churn.py"."""
    words = _text(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
    words = [os.path.basename(word) for word in words if word and
             not word.startswith("-")][:2]
    comm = _text(f"/proc/{pid}/comm").strip()
    interpreted = re.match(r"python|perl|ruby|(ba|da)?sh$", comm)
    return " ".join(words)[:60] if interpreted else comm


def owners(inodes: Set[int]) -> Iterator[Tuple[int, int]]:
    """Yields sockets, and the processes that have them, new ones first: they
    may be gone in a moment."""
    names = {f"socket:[{inode}]": inode for inode in inodes}
    pids = sorted((int(pid) for pid in os.listdir("/proc")
                   if pid.isdigit()), reverse=True) if names else []
    for pid in pids:
        for name in files(pid, r"socket:.*"):
            if name in names:
                yield names.pop(name), pid
        if not names:
            return


def label(pid: int) -> str:
    """Returns a process as people know it."""
    command, parent = _command(pid), _stat(pid)[0]
    if re.match(r"ovs-(of|vs|app|dp)ctl$|ovsdb-client$", command):
        # It is gone in a moment, what runs it is not.
        return f"{command}, run by {_command(parent)} (pid {parent})"
    return f"{command} (pid {pid})"


def owner(table: str, wanted: Callable[[List[str]], bool]) -> str:
    """Returns the process that has a socket in a table of /proc/net, in a
    'wanted' row, or ""."""
    rows = (line.split() for line in _text(table).split("\n"))
    inodes = {int(row[9]) for row in rows if len(row) > 9 and wanted(row)}
    for _, pid in owners(inodes - {0}):
        return label(pid)
    return ""


def listener(target: str) -> str:
    """Returns the process of this host that listens at 'target', such as
    "tcp:127.0.0.1:6653", or ""."""
    match = re.match(r"(?:tcp|ssl):(\d+\.\d+\.\d+\.\d+):(\d{1,5})$", target)
    if not match or int(match[2]) > 65535:
        return ""
    with contextlib.suppress(OSError), socket.socket() as sock:
        sock.bind((match[1], 0))        # Fails unless the address is here.
        port = f":{int(match[2]):04X}"
        return owner("/proc/net/tcp", lambda row: row[3] == "0A"
                     and row[1].endswith(port))
    return ""


class Clients:
    """Who talks to sockets in a directory, seen by looking often."""

    def __init__(self, directory: str, itself: int) -> None:
        self.directory = os.path.realpath(directory)
        self.itself = itself
        self.can = True
        # By socket and process: how often, ticks of CPU, what it is.
        self.seen: Dict[str, Dict[str, List[float]]] = {}
        self._known: Dict[int, Tuple[int, str, int]] = {}
        self._ours = {os.getpid()}

    def look(self) -> None:
        """Looks once more, which takes a millisecond."""
        if not self.can:
            return
        try:
            # A socket may have a path with a link in it.
            found = [(os.path.basename(path), peer)
                     for path, peer in _unix_sockets()
                     if os.path.realpath(os.path.dirname(path))
                     == self.directory]
        except OSError:
            self.can = False
            return
        self._resolve({peer for _, peer in found} - self._known.keys())
        for name, peer in found:
            pid, what, before = self._known.get(peer, (0, "", 0))
            if pid and pid not in self._ours and pid != self.itself:
                entry = self.seen.setdefault(name, {}).setdefault(what, [0, 0])
                entry[0] += 1
                entry[1] = max(entry[1], _stat(pid)[1] - before)

    def _resolve(self, inodes: Set[int]) -> None:
        for inode, pid in owners(inodes):
            self._known[inode] = pid, label(pid), _stat(pid)[1]

    def of(self, name: str) -> List[str]:
        """Returns who talks to a socket, who has used most of a CPU first."""
        seen = self.seen.get(name, {})
        return sorted(seen, key=lambda one: (-seen[one][1], -seen[one][0],
                                             one))
