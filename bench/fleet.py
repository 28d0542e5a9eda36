# SPDX-License-Identifier: Apache-2.0
"""One Prometheus that scrapes many hosts.

Switches with different flow tables are recorded while they handle new flows;
a program serves these recordings as the metrics of many hosts, which one
Prometheus scrapes each 15 seconds.  What all of it takes is measured, and
checked: the histogram of all hosts, and its p99, have to be those of the
recordings merged.  'make bench-fleet' runs it; it needs Go and Prometheus.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from bench.machine import NotHere
from bench.packets import make_packet
from bench.report import Context
from tools.exporter import GO, find_prometheus, go_version
from tools.project import TOP
from tools.switch import Failed, Process, Switch, wait_until

NODES = 1000                    # Hosts.
STEP = 15                       # Seconds between scrapes, and between replies.
REPLIES = 5                     # Of each recording.
AT_ONCE = 50                    # What netdev-dummy queues is limited.
SERIES = "ovs_cost_upcall_duration_seconds"
SELECT = '{datapath_type="netdev"}'

# The flows of the switches.
SHAPES: Dict[str, List[str]] = {
    "simple": ["actions=2"],
    # A pipeline of 60 tables.
    "resubmit": ["table=60,actions=2", *(
        f"table={n},actions=resubmit(,{n + 1})" for n in range(60))],
    # A table with 500 rules and 30 masks.
    "rules": ["priority=0,actions=2", *(
        f"priority={100 + n % 30},udp,nw_src=10.{n % 200}.{n % 7}.0/"
        f"{2 + n % 30},tp_dst={n},actions=drop" for n in range(500))],
    "flood": ["actions=flood"],
}


def record(tree: Path, directory: Path, shape: str, number: int) -> Path:
    """Records a switch that handles new flows."""
    path = directory / f"{shape}.jsonl"
    with Switch(tree, directory / shape,
                ["--enable-dummy", "--disable-system"]) as switch:
        switch.start_with_bridge("dummy")
        n_ports = 102 if shape == "flood" else 2
        switch.add_ports((f"p{n}" for n in range(n_ports)), "type=dummy")
        switch.add_flows(*SHAPES[shape])
        switch.appctl("upcall/disable-megaflows")
        recorder = switch.record(path, "-i", "1", "-d", str(REPLIES - 1))
        flow = 0
        while recorder.popen.poll() is None:
            # Hosts do not get the same number of new flows.
            for _ in range(number + 1):
                switch.appctl("netdev-dummy/receive", "p0", *(
                    make_packet(n).hex() for n in range(flow,
                                                        flow + AT_ONCE)))
                flow += AT_ONCE
            time.sleep(0.05)
        switch.wait_for(recorder)
    write_in_full(path)
    return path


def write_in_full(path: Path) -> None:
    """Makes replies in a recording, which are brief, what an exporter gets."""
    from ovs.cost import model
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line.get("reply", {}).get("command") == "cost-show":
            line["reply"] = model.Reply.from_json(line["reply"]).to_json()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class Prometheus:
    """One that scrapes 'nodes' hosts of a fleet that is at 'address'."""

    def __init__(self, program: Path, directory: Path, address: str,
                 nodes: int) -> None:
        self.directory = directory
        version = subprocess.run([str(program), "--version"], text=True,
                                 stdout=subprocess.PIPE, check=True).stdout
        match = re.search(r"version (\d+)\.(\d+)", version)
        self.version = match.group(0)[8:] if match else "?"
        old = match is not None and match.group(1) == "2"
        groups = [{"targets": [address], "labels": {
            "instance": f"node{n}", "rack": f"rack{n // 40}",
            "__metrics_path__": f"/node/{n}/metrics"}} for n in range(nodes)]
        with socket_address() as own:
            self.url = f"http://{own}"
            # JSON is YAML.
            (directory / "prometheus.yml").write_text(json.dumps({
                "global": dict(
                    {"scrape_interval": f"{STEP}s"},
                    **({} if old else {"scrape_native_histograms": True})),
                "scrape_configs": [
                    {"job_name": "fleet", "static_configs": groups},
                    {"job_name": "prometheus", "scrape_interval": "5s",
                     "static_configs": [{"targets": [own]}]}]}))
        options = ["--enable-feature=native-histograms"] if old else []
        self.process = Process("prometheus", [
            str(program), *options, f"--web.listen-address={own}",
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data"], dict(os.environ),
            directory / "prometheus.out")
        wait_until(self.ready, "Prometheus", 60, 0.2)

    def ready(self) -> bool:
        self.process.check()
        try:
            with urllib.request.urlopen(self.url + "/-/ready") as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def query(self, query: str) -> List[Any]:
        with urllib.request.urlopen(
                self.url + "/api/v1/query?query="
                + urllib.parse.quote(query)) as reply:
            result: List[Any] = json.load(reply)["data"]["result"]
            return result

    def one(self, query: str) -> float:
        result = self.query(query)
        return float(result[0]["value"][1]) if result else math.nan

    def time(self, query: str) -> float:
        """Returns how many seconds a query takes, the median of nine."""
        took = []
        for _ in range(9):
            start = time.monotonic()
            if not self.query(query):
                raise Failed(f"nothing from {query}")
            took.append(time.monotonic() - start)
        return statistics.median(took)


@contextlib.contextmanager
def socket_address() -> Iterator[str]:
    """Yields an address that nobody listens on."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{sock.getsockname()[1]}"


def start_fleet(directory: Path, nodes: int,
                recordings: List[Path]) -> Tuple[Process, str]:
    program = directory / "fleet"
    done = subprocess.run(
        ["go", "build", "-o", str(program), "./internal/fleet"],
        cwd=TOP / "exporter", env=dict(os.environ, GOTOOLCHAIN="local"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Failed(f"go build: {done.stdout}")
    output = directory / "fleet.out"
    process = Process("fleet", [str(program), str(nodes), f"{STEP}s",
                                *map(str, recordings)], dict(os.environ),
                      output)

    def address() -> str:
        process.check()
        match = re.search(r"address=(\S+)", output.read_text())
        return match.group(1) if match else ""

    wait_until(lambda: bool(address()), "the fleet")
    return process, address()


def merged(recordings: List[Path], nodes: int) -> Any:
    """Returns the distribution of all upcalls of all nodes, at the end."""
    from ovs.cost import model, recording
    from ovs.cost.distribution import Distribution
    everything = Distribution()
    for i, path in enumerate(recordings):
        loaded = recording.load([str(path)], print)
        replies = [r for (_, name), r in loaded.replies.items()
                   if name == "upcall"][0]
        total = replies[-1].totals[model.Key("upcall", "", "")].total
        for _ in range(i, nodes, len(recordings)):
            everything.merge(total.whole)
    return everything


def check(prometheus: Prometheus, expected: Any) -> Tuple[float, float]:
    """Returns the p99 of all hosts, and that of the recordings."""
    from ovs.cost.distribution import MIN_EXP, OVERFLOW, SCALE
    result = prometheus.query(f"sum({SERIES}{SELECT})")
    found: Dict[int, int] = {}
    for _, _, right, count in result[0]["histogram"][1]["buckets"]:
        edge = float(right)
        bucket = (OVERFLOW if math.isinf(edge) else
                  round(math.log2(edge) * 8) - (MIN_EXP << SCALE))
        found[bucket] = int(float(count))
    wanted = {b: n for b, n in expected.buckets.items() if n}
    if found != wanted:
        raise Failed(f"the histogram of all hosts is {found}, that of "
                     f"the recordings {wanted}")
    p99 = prometheus.one(f"histogram_quantile(0.99, sum({SERIES}{SELECT}))")
    want = expected.percentile(99) / 1e9
    if abs(math.log2(p99 / want)) * 8 > 1:
        raise Failed(f"p99 is {p99}, not {want}")
    return p99, want


def run(context: Context) -> None:
    if go_version() < GO:
        raise NotHere(f"there is no Go {GO[0]}.{GO[1]}")
    program, why = find_prometheus(context.ovs.parent / "cache")
    if not program:
        raise NotHere(why)
    sys.path.append(str(TOP / "python"))        # For ovs.cost.
    ovs, nodes, work = context.ovs, NODES, context.directory
    context.progress(f"recording {len(SHAPES)} switches")
    recordings = [record(ovs, work, shape, n)
                  for n, shape in enumerate(SHAPES)]
    fleet, address = start_fleet(work, nodes, recordings)
    with contextlib.ExitStack() as stack:
        stack.callback(fleet.stop)
        start = time.monotonic()
        prometheus = Prometheus(program, work, address, nodes)
        stack.callback(prometheus.process.stop)
        context.progress(f"scraping {nodes:,} hosts")
        # Until all replies have been scraped, twice, and are not cached.
        while time.monotonic() < start + (REPLIES + 2) * STEP + 5:
            fleet.check()
            prometheus.process.check()
            time.sleep(1)
        up = prometheus.one('sum(up{job="fleet"})')
        if up != nodes:
            raise Failed(f"only {up:.0f} of {nodes} hosts were scraped")
        p99, want = check(prometheus, merged(recordings, nodes))

        scrape = 'scrape_duration_seconds{job="fleet"}'
        one = prometheus.one
        disk = sum(f.stat().st_size for f in (work / "data").rglob("*")
                   if f.is_file())
        series = one('scrape_samples_scraped{instance="node0"}')
        rate = f"histogram_quantile(0.99, sum(rate({SERIES}{SELECT}[2m])))"
        for name, value in (
            ("version", prometheus.version),
            ("hosts, each scraped every 15 s", f"{nodes:,}"),
            ("series of a host", f"{series:,.0f}"),
            ("series of all",
             f"{one('prometheus_tsdb_head_series'):,.0f}"),
            ("memory of Prometheus",
             f"{one('process_resident_memory_bytes') / 1e6:,.0f} MB"),
            ("processor time of Prometheus, a second",
             f"{one('rate(process_cpu_seconds_total[1m])') * 1e3:,.0f} ms"),
            ("written to disk, a scrape of a host",
             f"{disk / nodes / (REPLIES + 2) / 1e3:,.1f} kB"),
            ("a scrape, mean", f"{one(f'avg({scrape})') * 1e3:,.1f} ms"),
            ("a scrape, p99",
             f"{one(f'quantile(0.99, {scrape})') * 1e3:,.1f} ms"),
            ("p99 of all upcalls of all hosts", f"{p99 * 1e6:,.2f} us"),
            ("that of the recordings, merged", f"{want * 1e6:,.2f} us"),
            ("time of this query, of the last two minutes",
             f"{prometheus.time(rate) * 1e3:,.0f} ms")):
            context.add(name, "text", "prometheus", value)
