#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch's daemons, run from a built tree, out of the system's sight:
for the demo, the benchmarks, and the tests of the exporter.

Usage: switch.py TREE DIRECTORY [OPTION...].  Runs a switch until standard
input ends, and prints the process ID of ovs-vswitchd when that has its
configuration.  A database that is in DIRECTORY is kept."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import (Any, Callable, Iterable, Iterator, List, Mapping, NoReturn,
                    Sequence)

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools import autotest
from tools.project import Failure, run_main

PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000

DAEMON = "--pidfile", "--log-file", "-vconsole:off", "-vsyslog:off"

libc = ctypes.CDLL(None, use_errno=True)


class Failed(Failure):
    """What runs a switch can't go on; the text says why."""


def exit_on_signals() -> None:
    """Has the first signal end this process as sys.exit() does, so that
    everything is put away, and later ones not disturb that."""
    def end(number: int, _frame: object) -> NoReturn:
        autotest.on_signals(signal.SIG_IGN)
        sys.exit(128 + number)

    autotest.on_signals(end)


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


class Process:
    """A child process that ends with this one.  What it prints goes to the
    file 'output'."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str],
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
        """Returns the last lines that the process has printed and logged."""
        paths = self.output, self.output.with_suffix(".log")
        return "\n".join(
            line for path in paths if path.exists()
            for line in path.read_text(errors="replace").splitlines()[-10:])

    def pause(self) -> None:
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends the process, one way or the other."""
        self.resume()
        self.popen.terminate()
        try:
            self.popen.wait(10)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def check_built(tree: Path) -> None:
    if not os.access(tree / "vswitchd/ovs-vswitchd", os.X_OK):
        raise Failed(f"{tree} is not built")


class Switch(contextlib.ExitStack):
    """ovsdb-server and ovs-vswitchd of the built tree 'tree'.

    All that they read and write is in 'directory'.  In the environment 'env',
    the tree's programs come first, and talk to this switch.  'options' are
    those of ovs-vswitchd, 'wrapper' is a command that runs it, 'nice' its
    priority.  By default, it has a network namespace of its own, so that
    several can run at a time and none leaves a device behind."""

    nice = 0
    timeout = 60                # Of ovs-vsctl and ovs-appctl.

    def __init__(self, tree: Path, directory: Path,
                 options: Sequence[str] = (),
                 wrapper: Sequence[str] = ("unshare", "--net")) -> None:
        super().__init__()
        self.tree = tree
        self.directory = directory
        self.options = options
        self.wrapper = wrapper
        self.processes: List[Process] = []
        self.env = {
            **os.environ,
            **dict.fromkeys(("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR",
                             "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"),
                            str(directory)),
            "OVS_PKGDATADIR": str(tree / "vswitchd"),
            "PATH": f"{tree}/utilities:{tree}/vswitchd:{tree}/ovsdb:"
            + os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(tree / "python"),
            "PYTHONDONTWRITEBYTECODE": "1"}
        directory.mkdir(parents=True, exist_ok=True)

    def run(self, *command: str) -> str:
        """Runs a command and returns what it prints."""
        done = subprocess.run(
            command, env=self.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            self.check()
            raise Failed(f"{' '.join(command)[:200]}: {done.stderr.strip()}")
        return done.stdout

    def check(self) -> bool:
        """Raises Failed if one of the processes has ended."""
        for process in self.processes:
            process.check()
        return True

    def vsctl(self, *args: str) -> str:
        return self.run("ovs-vsctl", f"--timeout={self.timeout}", *args)

    def appctl(self, *args: str) -> str:
        return self.run("ovs-appctl", f"--timeout={self.timeout}", *args)

    def accounts(self, report: str, *args: str) -> List[Any]:
        """Returns the accounts of 'report', such as "upcall"."""
        accounts: List[Any] = json.loads(self.appctl(
            "--format", "json", f"{report}/cost-show", *args))["accounts"]
        return accounts

    def add_ports(self, names: Iterable[str], *settings: str) -> None:
        """Adds ports to the bridge br0, with 'settings' of their
        interfaces."""
        words: List[str] = []
        for name in names:
            words += ["--", "add-port", "br0", name,
                      "--", "set", "Interface", name, *settings]
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

    @contextlib.contextmanager
    def in_netns(self, pid: int = 0) -> Iterator[None]:
        """Has this thread in the network namespace of process 'pid', by
        default ovs-vswitchd."""
        with open("/proc/thread-self/ns/net", "rb") as own, \
                open(f"/proc/{pid or self.vswitchd.pid}/ns/net",
                     "rb") as other:
            if libc.setns(other.fileno(), CLONE_NEWNET):
                raise Failed(f"setns: {os.strerror(ctypes.get_errno())}")
            try:
                yield
            finally:
                libc.setns(own.fileno(), CLONE_NEWNET)

    def ip(self, *lines: str) -> None:
        """Has ip(8) execute 'lines' in the network namespace of ovs-vswitchd,
        where devices have no IPv6, and send nothing on their own."""
        with self.in_netns():
            for which in "all", "default":
                path = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
                with contextlib.suppress(OSError):
                    path.write_text("1")
            done = subprocess.run(
                ["ip", "-batch", "-"], input="\n".join(lines) + "\n",
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Failed(f"ip: {done.stdout.strip()}")

    def add_veths(self, *names: str) -> None:
        """Adds pairs of devices, which are up."""
        self.ip(*(line for pair in zip(names[::2], names[1::2]) for line in (
            "link add {} type veth peer name {}".format(*pair),
            *(f"link set {name} up" for name in pair))))

    def start_database(self) -> None:
        """Starts ovsdb-server, to configure before ovs-vswitchd starts."""
        check_built(self.tree)
        database = self.directory / "conf.db"
        sock = self.directory / "db.sock"
        if not database.exists():
            self.run("ovsdb-tool", "create", str(database),
                     str(self.tree / "vswitchd/vswitch.ovsschema"))
        sock.unlink(missing_ok=True)
        self.spawn("ovsdb-server", ["ovsdb-server", *DAEMON, str(database),
                                    f"--remote=punix:{sock}"])
        wait_until(lambda: self.check() and sock.exists(), "ovsdb-server")
        # The socket exists somewhat before the server listens.
        self.vsctl("--retry", "--no-wait", "init")

    def start(self) -> None:
        """Starts ovs-vswitchd and waits until it is configured."""
        self.vswitchd = self.spawn("ovs-vswitchd", [
            *self.wrapper, "ovs-vswitchd", *DAEMON, *self.options], self.nice)
        self.control = f"{self.directory}/ovs-vswitchd.{self.vswitchd.pid}.ctl"
        # Returns when ovs-vswitchd has taken this change over.
        self.vsctl("set", "Open_vSwitch", ".",
                   f"external_ids:started={self.vswitchd.pid}")

    def start_with_bridge(self, datapath_type: str, *settings: str) -> None:
        """Starts all, with 'settings' of the table Open_vSwitch, and a bridge
        br0 that has no flows."""
        self.start_database()
        words = ["set", "Open_vSwitch", ".", *settings, "--"]
        self.vsctl("--no-wait", *(words if settings else []), "add-br", "br0",
                   "--", "set", "Bridge", "br0", "fail-mode=secure",
                   f"datapath_type={datapath_type}")
        self.start()

    def record(self, path: Path, *options: str) -> Process:
        """Starts 'ovs-cost record'."""
        return self.spawn("ovs-cost", ["ovs-cost", "record", *options, "-o",
                                       str(path)])

    def wait_for(self, process: Process) -> None:
        """Waits until 'process' has ended.  Raises Failed if it has failed."""
        self.processes.remove(process)
        if process.popen.wait():
            raise Failed(f"{process.name}: {process.tail()}")

    def spawn(self, name: str, argv: Sequence[str], nice: int = 0) -> Process:
        """Starts a process that ends with the switch."""
        process = Process(name, argv, self.env,
                          self.directory / f"{name}.out", nice)
        self.processes.append(process)
        self.callback(process.stop)
        return process


def main() -> None:
    tree, directory, *options = sys.argv[1:]
    exit_on_signals()
    with Switch(Path(tree).resolve(), Path(directory), options,
                wrapper=()) as switch:
        switch.start_database()
        switch.start()
        print(switch.vswitchd.pid, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    run_main(main)
