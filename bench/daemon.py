# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch's daemons, run from a build tree, away from the system's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import (Callable, Dict, List, NoReturn, Optional, Sequence,
                    TypeVar)

PR_SET_PDEATHSIG = 1

T = TypeVar("T", bound="Switch")


class BenchError(Exception):
    """A benchmark has failed; the text says why."""


class NotHere(BenchError):
    """A benchmark, or a part of it, can't run on this machine or with these
    trees; the text says why."""


libc = ctypes.CDLL(None)


def exit_on_signals() -> None:
    """Has SIGHUP and SIGTERM end this process as sys.exit() does, so that
    everything is put away."""
    def end(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    for number in signal.SIGHUP, signal.SIGTERM:
        signal.signal(number, end)


def prepare_child(nice: int) -> None:
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
            raise BenchError(f"gave up waiting for {what}")
        time.sleep(interval)


class Process:
    """A child process that ends with this one."""

    def __init__(self, name: str, argv: Sequence[str], env: Dict[str, str],
                 output: Path, nice: int = 0) -> None:
        self.name = name
        self.output = output
        with open(output, "wb") as stream:
            self.popen = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=lambda: prepare_child(nice))
        self.pid = self.popen.pid

    def check(self) -> None:
        """Raises BenchError if the process has ended."""
        if self.popen.poll() is not None:
            raise BenchError(f"{self.name} ended with status "
                             f"{self.popen.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        text = self.output.read_text(errors="replace")
        return "\n".join(text.splitlines()[-10:])

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
                pass
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()


class Switch:
    """ovsdb-server and ovs-vswitchd from the build tree 'tree'.

    Everything that they read and write is below 'directory', and ovs-vswitchd
    has a network namespace of its own, so that several can run at a time and
    none leaves a device behind.  'wrapper' is a command that runs
    ovs-vswitchd, 'nice' its priority."""

    def __init__(self, tree: Path, directory: Path,
                 options: Sequence[str] = (),
                 wrapper: Sequence[str] = (),
                 environment: Optional[Dict[str, str]] = None,
                 nice: int = 0) -> None:
        self.tree = tree
        self.directory = directory
        self.options = list(options)
        self.wrapper = list(wrapper)
        self.nice = nice
        self.timeout = 60
        self.processes: List[Process] = []
        self.database = f"unix:{directory}/db.sock"
        self.control = f"{directory}/vswitchd.ctl"
        self.log = directory / "vswitchd.log"
        self.env = {**os.environ, **(environment or {}), "LC_ALL": "C"}
        for name in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR",
                     "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"):
            self.env[name] = str(directory)
        self.env["OVS_PKGDATADIR"] = str(tree / "vswitchd")
        directory.mkdir(parents=True)

    def program(self, name: str) -> str:
        path = self.tree / name
        if not os.access(path, os.X_OK):
            raise BenchError(f"{path} is missing: build the tree first")
        return str(path)

    def run(self, name: str, *args: str) -> str:
        """Runs one of the tree's programs and returns what it prints."""
        command = subprocess.Popen(
            [self.program(name), *args], env=self.env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        try:
            while True:
                try:
                    output, errors = command.communicate(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    self.check()        # It might wait for a daemon.
        finally:
            command.kill()
            command.wait()
        if command.returncode:
            self.check()
            shown = " ".join(args)
            if len(shown) > 200:
                shown = shown[:200] + "..."
            raise BenchError(f"{os.path.basename(name)} {shown}: "
                             f"{errors.strip()}")
        return output

    def check(self) -> None:
        """Raises BenchError if one of the daemons has ended."""
        for process in self.processes:
            process.check()

    def vsctl(self, *args: str) -> str:
        return self.run("utilities/ovs-vsctl", f"--db={self.database}",
                        f"--timeout={self.timeout}", *args)

    def appctl(self, *args: str) -> str:
        return self.run("utilities/ovs-appctl", "-t", self.control,
                        f"--timeout={self.timeout}", *args)

    def ofctl(self, *args: str) -> str:
        return self.run("utilities/ovs-ofctl", *args)

    def start_database(self) -> None:
        """Starts ovsdb-server, to configure before ovs-vswitchd starts."""
        db = str(self.directory / "conf.db")
        self.run("ovsdb/ovsdb-tool", "create", db,
                 str(self.tree / "vswitchd/vswitch.ovsschema"))
        self.spawn("ovsdb-server", [
            self.program("ovsdb/ovsdb-server"), db,
            f"--remote=p{self.database}",
            f"--unixctl={self.directory}/ovsdb.ctl",
            "-vconsole:warn", "-vsyslog:off"])
        wait_until((self.directory / "db.sock").exists, "ovsdb-server")
        self.vsctl("--no-wait", "init")

    def start(self) -> None:
        """Starts ovs-vswitchd and waits until it is configured."""
        self.vswitchd = self.spawn("ovs-vswitchd", [
            "unshare", "--net", *self.wrapper,
            self.program("vswitchd/ovs-vswitchd"), self.database,
            f"--unixctl={self.control}", f"--log-file={self.log}",
            "-vconsole:off", "-vsyslog:off", *self.options], self.nice)
        # Returns when ovs-vswitchd has taken the configuration over.
        self.vsctl("set", "Open_vSwitch", ".", "external_ids:bench=1")

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
