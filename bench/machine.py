# SPDX-License-Identifier: Apache-2.0
"""The machine that a benchmark runs on: what it is, and borrowing from it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Set

from tools.switch import Failed, prepare_child

CPUS = Path("/sys/devices/system/cpu")
HUGEPAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
# Debian's packages of programs that have another name.
PACKAGES = {"cc": "gcc", "ip": "iproute2", "nsenter": "util-linux",
            "ss": "iproute2", "vgdb": "valgrind"}


class NotHere(Failed):
    """A benchmark, or a part of it, can't run on this machine or with these
    trees; the text says why."""


def need(*programs: str) -> None:
    """Raises NotHere unless this runs as root, and there are 'programs'."""
    if os.geteuid():
        raise NotHere("it needs root")
    missing = {PACKAGES.get(name, name) for name in programs
               if not shutil.which(name)}
    if missing:
        raise NotHere(f"'apt-get install {' '.join(sorted(missing))}' has "
                      "what is missing here")


def read(path: Path) -> str:
    """Returns what 'path' has, or "" if it can't be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def output(*argv: str, nice: int = 0) -> str:
    """Runs a program, with priority 'nice' if that is allowed, and returns
    what it prints."""
    done = subprocess.run(argv, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True,
                          preexec_fn=lambda: prepare_child(nice))
    if done.returncode:
        raise Failed(f"{' '.join(argv)[:100]}: {done.stdout.strip()}")
    return done.stdout


def ovstest(tree: Path, *args: str) -> str:
    """Returns what ovstest of 'tree' prints, which runs with high priority."""
    program = tree / "tests/ovstest"
    if not os.access(program, os.X_OK):
        raise Failed(f"{program} is missing: build the tree first")
    return output(str(program), *args, nice=-20)


def has_kernel_datapath() -> bool:
    """Loads the kernel's openvswitch module, and returns true if it is
    there."""
    return bool(shutil.which("modprobe")) and not subprocess.run(
        ["modprobe", "openvswitch"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL).returncode


def describe() -> Dict[str, object]:
    """Returns what has an influence on the figures."""
    cpuinfo = read(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.M)
    clock = Path("/sys/devices/system/clocksource/clocksource0")
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)',
                       read(Path("/etc/os-release")), re.M)
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": os.cpu_count(),
        "virtual": bool(re.search(r"^flags.*\bhypervisor\b", cpuinfo, re.M)),
        "kernel": platform.release(),
        "system": system.group(1) if system else "",
        "clock": read(clock / "current_clocksource"),
        "counters": any(Path("/sys/bus/event_source/devices").glob("cpu*")),
        "load": os.getloadavg()[0],
    }


def describe_tree(tree: Path) -> Dict[str, str]:
    """Returns with what Open vSwitch in 'tree' was built."""
    makefile = read(tree / "Makefile")
    facts = {}
    for name in ("CC", "CFLAGS", "PACKAGE_VERSION"):
        match = re.search(rf"^{name} = (.*)$", makefile, re.M)
        facts[name] = match.group(1).strip() if match else ""
    # Open vSwitch has sparse run by what it calls CC.
    real = re.search(r'REAL_CC="([^"]*)"', facts["CC"])
    if real:
        facts["CC"] = real.group(1)
    facts["compiler"] = (subprocess.run(
        facts["CC"].split() + ["--version"], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, check=False).stdout
        .partition("\n")[0] if facts["CC"] else "")
    state = json.loads(read(tree / ".git/ovs-cost.json") or "{}")
    about = state.get("about", {})
    facts["topics"] = about.get("topics", "")
    facts["patches"] = about.get("only", "")
    return facts


def describe_commit() -> str:
    """Returns which commit of this project this is, and whether anything has
    been changed since, or nothing without git."""
    if not shutil.which("git"):
        return ""
    done = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--dirty"],
        cwd=Path(__file__).resolve().parent, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        check=False)
    return done.stdout.strip()


class Cores(NamedTuple):
    """Which CPUs do what."""
    main: int                   # Everything but the PMD thread.
    pmd: int


def choose_cores() -> Cores:
    """Returns two CPUs on the same NUMA node, and if possible not on the same
    core."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise NotHere("two CPUs are needed, one of them for the PMD thread "
                      "alone")

    def node(cpu: int) -> List[str]:
        return [path.name for path in (CPUS / f"cpu{cpu}").glob("node*")]

    def core(cpu: int) -> str:
        return read(CPUS / f"cpu{cpu}/topology/thread_siblings_list") \
            or str(cpu)

    main = cpus[0]
    near = [cpu for cpu in cpus[1:] if node(cpu) == node(main)]
    apart = [cpu for cpu in near if core(cpu) != core(main)]
    return Cores(main, (apart or near or cpus)[-1])


@contextlib.contextmanager
def on_cpus(cpus: Set[int]) -> Iterator[None]:
    """Has this thread, and what it starts meanwhile, run on 'cpus'."""
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
        yield
    finally:
        os.sched_setaffinity(0, allowed)


class HugePages:
    """Reserves 2 MB huge pages, and gives back on exit what it took."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.taken = 0

    def __enter__(self) -> HugePages:
        count = HUGEPAGES / "nr_hugepages"
        if not count.exists():
            raise NotHere("the kernel has no 2 MB huge pages")
        before = int(read(count))
        missing = self.pages - int(read(HUGEPAGES / "free_hugepages"))
        if missing > 0:
            try:
                count.write_text(str(before + missing))
            except OSError as error:
                raise NotHere(f"can't reserve huge pages: {error}")
            self.taken = int(read(count)) - before
            if self.taken < missing:
                got = int(read(HUGEPAGES / "free_hugepages"))
                self.__exit__()
                raise NotHere(f"{self.pages} huge pages of 2 MB are needed, "
                              f"the kernel has {got}: free some memory, or "
                              f"boot with hugepages={self.pages}")
        return self

    def __exit__(self, *args: object) -> None:
        if self.taken:
            # Somebody else may have reserved some meanwhile.
            count = HUGEPAGES / "nr_hugepages"
            count.write_text(str(max(int(read(count)) - self.taken, 0)))
            self.taken = 0


class Threads:
    """The threads of a process, by what the kernel knows of them."""

    def __init__(self, pid: int) -> None:
        self.directory = Path(f"/proc/{pid}/task")

    def find(self, prefix: str, other: bool = False) -> List[Path]:
        """Returns the threads whose name starts with 'prefix', or all
        others."""
        return [task for task in self.directory.iterdir()
                if read(task / "comm").startswith(prefix) != other]

    @classmethod
    def rest(cls, tasks: List[Path], most: float) -> int:
        """Waits until 'tasks' run for less than 'most' ns in 0.2 s.  Returns
        how long they have run."""
        for _ in range(9000):           # Half an hour: callgrind is slow.
            before = cls.schedstat(tasks)[0]
            time.sleep(0.2)
            now = cls.schedstat(tasks)[0]
            if now - before < most:
                return now
        raise Failed("ovs-vswitchd does not come to rest")

    @staticmethod
    def schedstat(tasks: List[Path]) -> List[int]:
        """Returns how long 'tasks' have run and how long they have waited
        for a CPU, in ns."""
        total = [0, 0]
        for task in tasks:
            fields = read(task / "schedstat").split()
            if len(fields) >= 2:
                total[0] += int(fields[0])
                total[1] += int(fields[1])
        return total
