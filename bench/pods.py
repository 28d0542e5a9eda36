# SPDX-License-Identifier: Apache-2.0
"""What it costs ovs-vswitchd's main thread when pods come and go.

OVN, of Debian 13, has a logical switch with PORTS ports, each of which is a
veth device in the userspace datapath.  In each cycle of 1.3 s, ten pods are
added and deleted.  All daemons are in a network namespace of their own, and
both trees are measured in one run, in turns.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Dict, List

from bench.machine import NotHere, Threads, need, read
from bench.packets import make_packet
from bench.report import Context
from bench.tracer import Tracer
from tools.project import TOP
from tools.switch import Failed, Switch, wait_until

SUITE = "trixie"
TRACEFS = Path("/sys/kernel/tracing")
N_PODS = 10                     # That come and go in a cycle.
CYCLE = 1.3                     # Seconds.
BURST = 0.1                     # From one packet of each pod to the next.
CASES = ("rest", "pods", "traffic")
# The options of bench/run.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "--idle": dict(type=int, nargs="+", default=[0, 1024], metavar="N",
                   help="pods: idle ports beside those of pods, in another "
                   "bridge"),
    "--cycles": dict(type=int, default=5, metavar="N", help="pods: in a "
                     "measurement"),
}

# Numbers of system calls; all but poll() are added up.
CALLS = {
    "x86_64": {"46": "sendmsg", "47": "recvmsg", "44": "sendto", "3": "close",
               "41": "socket", "16": "ioctl", "299": "recvmmsg", "7": "poll"},
    "aarch64": {"211": "sendmsg", "212": "recvmsg", "206": "sendto",
                "57": "close", "198": "socket", "29": "ioctl",
                "243": "recvmmsg", "73": "poll"}}
TRACER = """
tracepoint:raw_syscalls:sys_enter /tid == {0}/ {{
    @start = nsecs;
    @n[args->id] = count();
}}
tracepoint:raw_syscalls:sys_exit /tid == {0} && @start/ {{
    @done[args->id] = count();
    @ns[args->id] = sum(nsecs - @start);
    @start = (uint64) 0;
}}
"""

Figures = Dict[str, float]


def get_ovn(where: Path) -> None:
    """Unpacks the packages of OVN, and those they depend on, into 'where'; the
    system stays as it is."""
    if (where / "usr/bin/ovn-controller").exists():
        return
    new = where.with_name(where.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["sh", "-c", ". tools/base.sh; mmdebstrap --quiet --variant=extract "
         f'--include=ovn-central,ovn-host {SUITE} "$0" "$(debian_mirror)"',
         str(new)], cwd=TOP, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise Failed("no OVN (DEBIAN_MIRROR=URL names a mirror):\n"
                     + done.stdout[-2000:])
    new.rename(where)


class Pods(Switch):
    """A switch that OVN controls."""

    def __init__(self, tree: Path, directory: Path, ovn: Path) -> None:
        super().__init__(tree, directory)
        self.env["OVN_RUNDIR"] = str(directory)
        self.nice = -20
        self.timeout = 300
        self.root = ovn

    def ovn(self, program: str, *args: str) -> List[str]:
        """Returns a command that runs 'program' of OVN, with the libraries of
        its own distribution."""
        lib, = (self.root / "usr/lib").glob(f"{platform.machine()}-linux-gnu*")
        loader, = lib.glob("ld-linux*.so.*")
        return [str(loader), "--library-path", str(lib),
                str(self.root / "usr/bin" / program), *args]

    def nbctl(self, *args: str) -> None:
        self.run(*self.ovn("ovn-nbctl", f"--db=unix:{self.directory}/ovn.sock",
                           *args))

    def ip(self, *lines: str, pid: int = 0) -> None:
        """Has ip(8) execute 'lines' in the network namespace of 'pid', by
        default ovs-vswitchd.  Unlike the method of Switch, leaves IPv6 on: the
        kernel adds routes for each device, as on a host with pods."""
        path = self.directory / "ip"
        path.write_text("\n".join(lines) + "\n")
        self.run("nsenter", "--net", f"--target={pid or self.vswitchd.pid}",
                 "ip", "-batch", str(path))

    def set_up(self, n_ports: int) -> None:
        """Starts everything, with 'n_ports' pods."""
        self.start_database()
        self.start()
        pid = self.vswitchd.pid
        self.main = Threads(pid).directory / str(pid)
        # The other ends of devices.  Pods send nothing on their own.
        self.pods = self.spawn("pods", [
            "unshare", "--net", "sh", "-c",
            "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; "
            "exec sleep infinity"])
        wait_until(lambda: read(Path(f"/proc/{self.pods.pid}/comm"))
                   == "sleep", "a network namespace")
        self.ip("link set lo up", "addr add 192.0.2.1/24 dev lo")

        databases = []
        for name in "nb", "sb":
            databases.append(str(self.directory / f"{name}.db"))
            self.run("ovsdb-tool", "create", databases[-1],
                     str(self.root / f"usr/share/ovn/ovn-{name}.ovsschema"))
        sock = self.directory / "ovn.sock"
        remote = f"unix:{sock}"
        log = "-vconsole:off", "-vsyslog:off", "--log-file"
        self.spawn("ovn-databases", ["ovsdb-server", *log[:2], *databases,
                                     f"--remote=p{remote}"])
        wait_until(sock.exists, "the databases")
        self.nbctl("ls-add", "pods")
        self.spawn("ovn-northd", self.ovn(
            "ovn-northd", *log, f"--ovnnb-db={remote}",
            f"--ovnsb-db={remote}"))
        self.vsctl("set", "Open_vSwitch", ".", *(
            f"external_ids:{name}={value}" for name, value in (
                ("system-id", "host"), ("ovn-remote", f'"{remote}"'),
                ("ovn-encap-type", "geneve"), ("ovn-encap-ip", "192.0.2.1"),
                ("ovn-bridge-datapath-type", "netdev"))))
        with self.in_netns():
            self.spawn("ovn-controller", self.ovn(
                "ovn-controller", *log, f"unix:{self.directory}/db.sock"))
        self.ports = [f"p{i}" for i in range(n_ports)]
        self.add(*self.ports)
        self.wait_for_ports(*self.ports)
        self.sending = False
        self.start_traffic()

    def links(self, *names: str) -> None:
        """Adds devices, whose other ends have the same names."""
        pods = self.pods.pid
        self.ip(*(f"link add {name} type veth peer name {name} netns {pods}"
                  for name in names))
        self.ip(*(f"link set {name} up" for name in names), pid=pods)
        self.ip(*(f"link set {name} up" for name in names))

    def add(self, *names: str) -> None:
        """Adds pods, as the plugin of a container runtime does it."""
        self.nbctl(*(word for name in names for word in (
            "--", "lsp-add", "pods", name, "--", "lsp-set-addresses", name,
            mac(name).hex(":"))))
        self.links(*names)
        self.vsctl(*(word for name in names for word in (
            "--", "add-port", "br-int", name, "--", "set", "Interface", name,
            f"external_ids:iface-id={name}")))

    def delete(self, name: str) -> None:
        self.vsctl("del-port", "br-int", name)
        self.ip(f"link del {name}")
        self.nbctl("lsp-del", name)

    def wait_for_ports(self, *names: str) -> Dict[str, float]:
        """Waits until OVN has installed the flows of ports; returns when it
        had, in ms."""
        return {name: float(self.vsctl(
            "wait-until", "Interface", name, "external_ids:ovn-installed=true",
            "--", "get", "Interface", name,
            "external_ids:ovn-installed-ts").strip().strip('"'))
            for name in names}

    def add_idle(self, *names: str) -> None:
        """Adds ports to another bridge, which have no packets."""
        self.links(*names)
        self.vsctl("--may-exist", "add-br", "br-idle", "--", "set", "Bridge",
                   "br-idle", "datapath_type=netdev", "fail-mode=secure", *(
                       word for name in names
                       for word in ("--", "add-port", "br-idle", name)))

    def start_traffic(self) -> None:
        """Has each pod send packets to the next one, while 'sending' is
        true."""
        with self.in_netns(self.pods.pid):
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        frames = [(name, mac(self.ports[i - 1]) + mac(name)
                   + make_packet(i)[12:]) for i, name in enumerate(self.ports)]

        def send() -> None:
            with contextlib.suppress(OSError):  # Once devices are gone.
                while True:
                    for name, frame in frames if self.sending else ():
                        sock.sendto(frame, (name, 0))
                    time.sleep(BURST)

        threading.Thread(target=send, daemon=True).start()

    def cycle(self) -> List[float]:
        """Adds and deletes pods; returns how long each took to be up, in
        ms."""
        start = time.monotonic()
        steps = iter(range(2 * N_PODS + 1))

        def pace() -> None:
            due = start + next(steps) * CYCLE / (2 * N_PODS)
            time.sleep(max(due - time.monotonic(), 0))

        added = {}
        for i in range(N_PODS):
            pace()
            name = f"n{i}"
            added[name] = time.time() * 1e3
            self.add(name)
        up = self.wait_for_ports(*added)
        for name in added:
            pace()
            self.delete(name)
        pace()
        return [up[name] - at for name, at in added.items()]

    def report(self, name: str) -> Any:
        return json.loads(self.appctl("--format", "json", f"{name}/cost-show"))

    def cycles(self, case: str, n: int) -> Figures:
        """Returns the figures of 'n' cycles, for one."""
        patched = "bridge/cost-show" in self.appctl("list-commands")
        if patched:
            self.appctl("bridge/cost-clear")
        up = []
        before = Threads.schedstat([self.main])
        start = time.monotonic()
        for _ in range(n):
            if case == "rest":
                time.sleep(CYCLE)
            else:
                up += self.cycle()
        figures = {"cycle s": (time.monotonic() - start) / n}
        cpu = Threads.schedstat([self.main])[0] - before[0]
        figures["cpu ms"] = cpu / n / 1e6
        if up:
            figures.update({"up ms": median(up), "up max ms": max(up)})
        if patched:
            report = self.report("bridge")
            account, = (a for a in report["accounts"]
                        if a["name"] == "main-loop")
            figures["stage elapsed ms"] = (report["now_us"]
                                           - account["since_us"]) / n / 1e3
            for stage, numbers in account["stages"].items():
                figures[f"stage {stage} ms"] = numbers["sum"] / n / 1e6
        return figures

    def traced(self, n: int) -> Figures:
        """Returns the system calls of 'n' cycles, for one."""
        tracer = Tracer(self, TRACER.format(self.vswitchd.pid), "-B", "line",
                        "-f", "json")
        for _ in range(n):
            self.cycle()
        found: Dict[str, Dict[str, int]] = {}
        for line in tracer.finish().splitlines():
            if line.startswith('{"type": "map"'):
                found.update(json.loads(line)["data"])
        # Other programs' calls at the same time have it miss a few.
        n_calls, n_done = (sum(found[name].values())
                           for name in ("@n", "@done"))
        if not 0.999 < n_done / n_calls < 1.001:
            raise Failed(f"bpftrace saw {n_done} of {n_calls} calls return")
        names = CALLS.get(platform.machine(), {})
        figures: Figures = {}
        for what, unit, scale in ("n", "calls", 1), ("ns", "ms", 10 ** 6):
            for number, value in reversed(found[f"@{what}"].items()):
                name = names.get(number, "others")
                for key in (f"call all {unit}", f"call {name} {unit}"):
                    if name != "poll":
                        figures[key] = figures.get(key, 0) + value / n / scale
        return figures


def mac(name: str) -> bytes:
    """Returns the address of the pod 'name'."""
    return bytes((2, 0, 0, ord(name[0]))) + int(name[1:]).to_bytes(2, "big")


def measure(context: Context, switch: Pods,
            n_ports: int) -> Dict[str, Figures]:
    """Returns the figures of each case in one process."""
    args, found, n_idle = context.args, {}, 0
    switch.set_up(n_ports)
    for idle in sorted(args.idle):
        switch.add_idle(*(f"i{i}" for i in range(n_idle, idle)))
        n_idle = idle
        switch.cycle()          # Memory is new here.
        for case in CASES:
            key = f"{n_ports}+{idle} {case}"
            context.progress(f"{switch.directory.name}: {key}")
            switch.sending = case == "traffic"
            found[key] = switch.cycles(case, args.cycles)
            if case == "pods":
                found[key].update(switch.traced(args.cycles))
    return found


def run(context: Context) -> None:
    need("ip", "mmdebstrap", "bpftrace", "nsenter")
    if not (TRACEFS / "events").exists():
        raise NotHere("the kernel's tracepoints are not there: 'mount -t "
                      f"tracefs tracefs {TRACEFS}'")
    ovn = context.ovs.parent / f"cache/ovn-{SUITE}"
    get_ovn(ovn)
    for n_ports in context.args.ports or [128]:
        for k, name in context.turns(context.trees, 5, 1):
            where = context.directory / f"{name}{k}"
            with Pods(context.trees[name], where, ovn) as switch:
                found = measure(context, switch, n_ports)
            for case, figures in found.items():
                for what, value in figures.items():
                    context.add(case, what, name, value)
            shutil.rmtree(where)
