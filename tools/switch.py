#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch's daemons, run from a built tree, out of the system's sight:
for the demo, the benchmarks, and the tests of the exporter.

As a program, it runs a switch until standard input ends, and prints the
process ID of ovs-vswitchd when that has its configuration.  A database that is
in DIRECTORY is kept."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import (Callable, Dict, Iterable, Iterator, List, NoReturn,
                    Optional, Sequence, TypeVar)

PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000

T = TypeVar("T", bound="Switch")

libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """What runs a switch can't go on; the text says why."""


def exit_on_signals(*signals: signal.Signals) -> None:
    """Has 'signals', or SIGHUP and SIGTERM, end this process as sys.exit()
    does, so that everything is put away."""
    def end(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    for number in signals or (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, end)


def prepare_child(nice: int = 0) -> None:
    """For a child process, before it executes a program: have it killed when
    the parent is gone, however that went, and run with priority 'nice'."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if nice:
        # Not everybody may do so.
        with contextlib.suppress(OSError):
            os.nice(nice)
            # Sessions compete as a whole where the kernel groups them.
            Path("/proc/self/autogroup").write_text(str(nice))


def wait_until(condition: Callable[[], bool], what: str,
               timeout: float = 30, interval: float = 0.02) -> None:
    """Returns as soon as 'condition' is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"gave up waiting for {what}")
        time.sleep(interval)


# Network namespaces.

@contextlib.contextmanager
def in_netns(path: str) -> Iterator[None]:
    """Has this thread in the network namespace of 'path'."""
    with open("/proc/thread-self/ns/net", "rb") as own, \
            open(path, "rb") as other:
        if libc.setns(other.fileno(), CLONE_NEWNET):
            raise Failed(f"setns: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            libc.setns(own.fileno(), CLONE_NEWNET)


def new_netns() -> int:
    """Makes a network namespace, and returns a file descriptor for it.  The
    thread stays in its own."""
    with in_netns("/proc/thread-self/ns/net"):
        if libc.unshare(CLONE_NEWNET):
            raise Failed(f"unshare: {os.strerror(ctypes.get_errno())}")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def disable_ipv6() -> None:
    """Keeps the devices that are added to this network namespace from sending
    packets on their own."""
    for which in "all", "default":
        path = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
        if path.exists():
            with contextlib.suppress(OSError):
                path.write_text("1")


# Processes.

class Process:
    """A child process that ends with this one.  What it prints goes to the
    file 'output'."""

    def __init__(self, name: str, argv: Sequence[str], env: Dict[str, str],
                 output: Path, nice: int = 0) -> None:
        self.name = name
        self.output = output
        # Not in the terminal's process group: Ctrl-C is for the parent, which
        # ends its children in order.
        with open(output, "wb") as stream:
            self.popen = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=lambda: prepare_child(nice))
        self.pid = self.popen.pid

    def check(self) -> None:
        """Raises Failed if the process has ended."""
        if self.popen.poll() is not None:
            raise Failed(f"{self.name} ended with status "
                         f"{self.popen.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        """Returns the last lines of what the process has printed and
        logged."""
        return "\n".join(
            line for path in (self.output, self.output.with_suffix(".log"))
            if path.exists()
            for line in path.read_text(errors="replace").splitlines()[-10:])

    def pause(self) -> None:
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def stop(self, timeout: float = 10) -> None:
        """Ends the process, one way or the other."""
        if self.popen.poll() is None:
            self.resume()
            self.popen.terminate()
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self.popen.wait()


class Switch:
    """ovsdb-server and ovs-vswitchd of the built tree 'tree'.

    All that they read and write is in 'directory'.  In the environment 'env',
    the tree's programs come first, and talk to this switch.  'options' are
    those of ovs-vswitchd, 'wrapper' is a command that runs it, 'nice' its
    priority.  Unless 'own_netns' is false, it has a network namespace of its
    own, so that several can run at a time and none leaves a device behind."""

    def __init__(self, tree: Path, directory: Path,
                 options: Sequence[str] = (),
                 wrapper: Sequence[str] = (),
                 environment: Optional[Dict[str, str]] = None,
                 nice: int = 0, own_netns: bool = True) -> None:
        self.tree = tree
        self.directory = directory
        self.options = list(options)
        self.wrapper = [*(["unshare", "--net"] if own_netns else []), *wrapper]
        self.nice = nice
        self.timeout = 60
        self.processes: List[Process] = []
        self.log = directory / "ovs-vswitchd.log"
        self.env = {**os.environ, **(environment or {})}
        for name in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR",
                     "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"):
            self.env[name] = str(directory)
        self.env["OVS_PKGDATADIR"] = str(tree / "vswitchd")
        self.env["PATH"] = ":".join(
            [str(tree / name) for name in ("utilities", "vswitchd", "ovsdb")]
            + [os.environ.get("PATH", os.defpath)])
        self.env["PYTHONPATH"] = str(tree / "python")
        self.env["PYTHONDONTWRITEBYTECODE"] = "1"
        directory.mkdir(parents=True, exist_ok=True)

    def run(self, *command: str) -> str:
        """Runs a command and returns what it prints."""
        process = subprocess.Popen(
            command, env=self.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            while True:
                try:
                    output, errors = process.communicate(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    self.check()        # It might wait for a daemon.
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            self.check()
            shown = " ".join(command)
            if len(shown) > 200:
                shown = shown[:200] + "..."
            raise Failed(f"{shown}: {errors.strip()}")
        return output

    def check(self) -> None:
        """Raises Failed if one of the daemons has ended."""
        for process in self.processes:
            process.check()

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Returns as soon as 'condition' is true, unless a daemon ends."""
        def is_true() -> bool:
            self.check()
            return condition()

        wait_until(is_true, what)

    def vsctl(self, *args: str) -> str:
        return self.run("ovs-vsctl", f"--timeout={self.timeout}", *args)

    def appctl(self, *args: str) -> str:
        return self.run("ovs-appctl", f"--timeout={self.timeout}", *args)

    @property
    def control(self) -> str:
        """The control socket of ovs-vswitchd."""
        return f"{self.directory}/ovs-vswitchd.{self.vswitchd.pid}.ctl"

    def add_ports(self, names: Iterable[str], *settings: str) -> None:
        """Adds ports to the bridge br0, with 'settings' of their
        interfaces."""
        words: List[str] = []
        for name in names:
            words += ["--", "add-port", "br0", name]
            if settings:
                words += ["--", "set", "Interface", name, *settings]
        self.vsctl(*words[1:])
        errors = self.vsctl("--bare", "--columns=name,error", "find",
                            "Interface", "error!=[]", 'error!=""').split()
        if errors:
            raise Failed(f"port {' '.join(errors)}")

    def add_flows(self, *flows: str) -> None:
        """Adds OpenFlow flows to the bridge br0."""
        path = self.directory / "flows"
        path.write_text("".join(f"{flow}\n" for flow in flows))
        self.run("ovs-ofctl", "add-flows", "br0", str(path))

    def in_netns(self) -> contextlib.AbstractContextManager[None]:
        """Has this thread in the network namespace of ovs-vswitchd."""
        return in_netns(f"/proc/{self.vswitchd.pid}/ns/net")

    def ip(self, *lines: str) -> None:
        """Has ip(8) execute 'lines' in the network namespace of ovs-vswitchd,
        where devices have no IPv6."""
        with self.in_netns():
            disable_ipv6()
            done = subprocess.run(
                ["ip", "-batch", "-"], input="\n".join(lines) + "\n",
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Failed(f"ip: {done.stdout.strip()}")

    def start_database(self) -> None:
        """Starts ovsdb-server, to configure before ovs-vswitchd starts."""
        database, sock = (self.directory / name
                          for name in ("conf.db", "db.sock"))
        if not database.exists():
            self.run("ovsdb-tool", "create", str(database),
                     str(self.tree / "vswitchd/vswitch.ovsschema"))
        sock.unlink(missing_ok=True)
        self.start_daemon("ovsdb/ovsdb-server", str(database),
                          f"--remote=punix:{sock}")
        self.wait_until(sock.exists, "ovsdb-server")
        self.vsctl("--no-wait", "init")

    def start(self) -> None:
        """Starts ovs-vswitchd and waits until it is configured."""
        self.vswitchd = self.start_daemon(
            "vswitchd/ovs-vswitchd", *self.options, wrapper=self.wrapper,
            nice=self.nice)
        # Returns when ovs-vswitchd has taken this change over.
        self.vsctl("set", "Open_vSwitch", ".",
                   f"external_ids:started={self.vswitchd.pid}")

    def start_daemon(self, name: str, *args: str,
                     wrapper: Sequence[str] = (), nice: int = 0) -> Process:
        program = self.tree / name
        if not os.access(program, os.X_OK):
            raise Failed(f"{program} is missing: build the tree first")
        return self.spawn(program.name, [
            *wrapper, str(program), "--pidfile", "--log-file",
            "-vconsole:off", "-vsyslog:off", *args], nice)

    def record(self, path: Path, *options: str) -> Process:
        """Starts 'ovs-cost record'."""
        return self.spawn("ovs-cost", ["ovs-cost", "record", *options, "-o",
                                       str(path)])

    def wait_for(self, process: Process) -> None:
        """Waits until 'process' has ended.  Raises Failed if it has failed."""
        self.processes.remove(process)
        if process.popen.wait():
            raise Failed(f"{process.name}: {process.tail()}")

    def spawn(self, name: str, argv: Sequence[str],
              nice: int = 0) -> Process:
        process = Process(name, argv, self.env,
                          self.directory / f"{name}.out", nice)
        self.processes.append(process)
        return process

    def stop(self) -> None:
        while self.processes:
            self.processes.pop().stop()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *args: object) -> None:
        self.stop()


def main() -> int:
    if len(sys.argv) < 3:
        print("usage: switch.py TREE DIRECTORY [OPTION...]", file=sys.stderr)
        return 2
    exit_on_signals()
    try:
        with Switch(Path(sys.argv[1]).resolve(), Path(sys.argv[2]),
                    sys.argv[3:], own_netns=False) as switch:
            switch.start_database()
            switch.start()
            print(switch.vswitchd.pid, flush=True)
            sys.stdin.read()
    except (Failed, OSError) as e:
        print(f"switch: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
