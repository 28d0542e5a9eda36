# SPDX-License-Identifier: Apache-2.0
"""How long it takes to read the addresses of devices.

A network namespace has 64, 256, and 1,024 pairs of veth devices, all up, one
of each pair with an IPv4 address (and both with the IPv6 address that the
kernel gives them).  A small program, netdev-addrs.c, is linked with the
library of either tree, and calls netdev_get_addrs() when the addresses have to
be read:

one device   after a change on the host, the first call, in which the addresses
             of all devices are read; other threads wait for it
all devices  per device, if the addresses of each device are needed, as when
             all routes have been read, or when a flooded packet is translated
             while there are tunnels

Processes of the two trees take turns.  A pair's figure is the median of its
rounds.  The system calls of each case, without those for memory, are counted
with strace, in processes of their own.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from statistics import median
from typing import List

from bench.machine import describe_tree, need, output
from bench.report import Context
from tools.switch import Process, wait_until

SIZES = (64, 256, 1024)
N_ROUNDS = 10                   # In each process.
CASES = ("one device", "all devices")


def build(tree: Path, program: Path) -> None:
    """Links the program with the library of 'tree'."""
    settings = describe_tree(tree)
    libs = [line.split("=", 1)[1] for line in
            (tree / "Makefile").read_text().splitlines()
            if line.startswith(("LIBS =", "SSL_LIBS ="))]
    output(str(tree / "libtool"), "--quiet", "--tag=CC", "--mode=link",
           *shlex.split(settings["CC"] or "cc"),
           *shlex.split(settings["CFLAGS"]), "-static-libtool-libs",
           "-o", str(program), f"-I{tree}", f"-I{tree}/include",
           f"-I{tree}/lib",
           str(Path(__file__).resolve().parent / "netdev-addrs.c"),
           str(tree / "lib/libopenvswitch.la"), *shlex.split(" ".join(libs)))


class Namespace:
    """A network namespace that ends with this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.holder = Process("unshare", ["unshare", "--net", "sleep", "inf"],
                              dict(os.environ), directory / "unshare.out")
        own = os.readlink("/proc/self/ns/net")

        def has_namespace() -> bool:
            self.holder.check()
            return os.readlink(f"/proc/{self.holder.pid}/ns/net") != own

        wait_until(has_namespace, "a network namespace")
        self.n_pairs = 0

    def run(self, *argv: str) -> str:
        return output("nsenter", "-t", str(self.holder.pid), "-n", *argv)

    def add_pairs(self, n: int) -> None:
        """Adds veth devices until there are 'n' pairs."""
        lines = []
        for i in range(self.n_pairs, n):
            lines += [f"link add v{i} type veth peer name w{i}",
                      f"addr add 10.{i // 256}.{i % 256}.1/24 dev v{i}",
                      f"link set v{i} up",
                      f"link set w{i} up"]
        batch = self.directory / "ip.batch"
        batch.write_text("\n".join(lines) + "\n")
        self.run("ip", "-batch", str(batch))
        self.n_pairs = n
        # Wait until the kernel is done with their IPv6 addresses.
        wait_until(lambda: "tentative" not in self.run("ip", "-6", "addr"),
                   "IPv6 addresses", timeout=120, interval=1)

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *args: object) -> None:
        self.holder.stop()


def measure(namespace: Namespace, program: Path) -> List[float]:
    """Returns what each of CASES takes, in us."""
    devices = [f"v{i}" for i in range(namespace.n_pairs)]
    lines = namespace.run(str(program), str(N_ROUNDS), *devices).splitlines()
    return [round(median(map(float, ns)) / 1e3, 1)
            for ns in zip(*map(str.split, lines))]


def count_calls(namespace: Namespace, program: Path) -> List[int]:
    """Returns how many system calls each of CASES takes."""
    devices = [f"v{i}" for i in range(namespace.n_pairs)]
    trace = namespace.directory / "strace.out"

    def calls(n_rounds: int, names: List[str]) -> int:
        namespace.run("strace", "-o", str(trace), "-e", "trace=!memory",
                      str(program), str(n_rounds), *names)
        return len(trace.read_text().splitlines())

    def in_round(names: List[str]) -> int:
        return calls(3, names) - calls(2, names)

    # With one device, both halves of a round are the same.
    one = in_round(devices[:1]) // 2
    return [one, in_round(devices) - one]


def run(context: Context) -> None:
    need("strace")
    programs = {}
    for name, tree in context.trees.items():
        programs[name] = context.directory / name
        build(tree, programs[name])
    with Namespace(context.directory) as namespace:
        for size in SIZES:
            context.progress(f"{size} pairs of devices")
            namespace.add_pairs(size)
            for name, program in programs.items():
                for case, n in zip(CASES, count_calls(namespace, program)):
                    context.add(f"{case}, {size}", "calls", name, n)
            for _, name in context.turns(programs, 9, 2):
                for case, us in zip(CASES, measure(namespace,
                                                   programs[name])):
                    context.add(f"{case}, {size}", "us", name, us)
