# SPDX-License-Identifier: Apache-2.0
"""What any ovs-vswitchd, without this project's patches, has to say.

A Watch asks it twice, at the beginning and the end of a window, and looks at
its threads, its database and its clients in between.  The result is a Stock,
which may also come from the files of a report of a host.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
from collections import Counter
from typing import (Any, Callable, Counter as Counts, Dict, Iterator, List,
                    Optional, Sequence, Set, Tuple)

from ovs.cost import processes, rtnetlink, stocktext
from ovs.cost.database import Database
from ovs.cost.target import CommandError, Target, TargetError, socket_path

# How the commands that are asked are read.  Those of a bridge end with " BR".
PARSERS: Dict[str, Callable[[str, List[str]], Any]] = {
    "version": lambda text, _: text,
    "coverage/show": stocktext.coverage,
    "memory/show": stocktext.memory,
    "fdb/stats-show BR": stocktext.fdb_stats,
    "upcall/show": stocktext.upcalls,
    "dpctl/show": stocktext.datapaths,
    "dpif-netdev/pmd-rxq-show": stocktext.pmds,
    "tnl/neigh/show": stocktext.neighbours,
    "dpctl/ct-get-maxconns": stocktext.number,
    "dpctl/ct-get-nconns": stocktext.number,
    "dpctl/ipf-get-status": stocktext.fragments,
}
FIRST = ("version", "coverage/show", "memory/show", "fdb/stats-show BR")
# Before 3.1, pmd-rxq-show has no option, and shows a minute.
ONCE = (*(command for command in PARSERS
          if command not in (*FIRST, "dpctl/show")),
        "dpif-netdev/pmd-rxq-show -secs 10")
REASONS = ("reconfigure", "stp", "rstp", "bond", "port_toggled", "flow_table",
           "mac_learning", "mcast_snooping")        # Counters rev_*.
MISSES = "drop_action_tunnel_neigh_cache_miss"
MISS = "neighbor cache miss for "       # In ofproto/trace.
MANY = 1000                     # Ports: dpctl/show takes long.
MAX_FLOWS = 5000                # More of the datapath are not read.
N_TRACES = 6                    # At most, of flows that drop packets.
# Seconds between lines of the log with a message that comes all the time.
OFTEN, SELDOM = 13, 61
MAX_BRIDGES = 20
UNREGISTERED = "mcast-snooping-disable-flood-unregistered"
MUCH = 50000                    # Bytes that are logged in a second.


def plain(reply: Any) -> Any:
    """Returns the text of a reply, which may be in JSON."""
    if isinstance(reply, dict) and reply.get("reply-format") == "plain":
        return reply.get("reply")
    return reply


def number(value: Any) -> int:
    """Returns a number of the database, which may be in a text, or 0."""
    return int(value) if re.fullmatch(r"-?\d{1,20}", str(value)) else 0


def gain(rows: List[Dict[str, Any]], column: str, key: str) -> int:
    """Returns by how much a number in a map of a row has grown, or how far it
    is if there is one reading only."""
    first, last = (number(row.get(column, {}).get(key))
                   for row in (rows[0], rows[-1]))
    return last - first if rows[1:] else last


class Stock:
    """What is known of a window, or of one moment if 'seconds' is 0.

    'first' and 'last' have, by command, what PARSERS make of its text; "more"
    has what was asked because of that."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.first: Dict[str, Any] = {}
        self.last: Dict[str, Any] = {}
        self.threads: List[Dict[str, Any]] = []     # First and last.
        self.samples: List[Dict[str, int]] = []     # Of memory/show.
        self.resident, self.room = 0, 0     # Bytes of memory, and the limit.
        self.follower = 0               # The process that came in the window.
        self.running: Dict[int, Any] = {}           # Processes, at first.
        self.hogs: Dict[int, Any] = {}  # By CPU, who else uses it.
        self.quotas: List[Dict[str, Any]] = []      # First and last.
        self.server: List[Dict[str, Any]] = []      # Threads of ovsdb-server.
        self.full_disk = ""             # A database without room.
        self.files = 0, 0               # That are open, and may be.
        self.tables: List[Dict[str, Any]] = []      # Database, first and last.
        self.changes: Dict[Any, int] = {}           # In the database.
        self.clients: Optional[processes.Clients] = None
        self.kernel: Optional[rtnetlink.Changes] = None
        self.no_database = ""           # Why ovsdb-server is not there.
        self.unread = False             # The database can't be read.
        self.log = ""
        self.logs = 0                   # Bytes that were logged.
        self.since = 0.0                # When it began.
        self.more: Dict[str, Any] = {}
        self.notes: List[str] = []      # What could not be had or read.

    def count(self, name: str) -> int:
        """Returns by how much a coverage counter has grown, or how far it is
        if there is one reading only."""
        last = self.last.get("coverage/show", {}).get(name)
        first = self.first.get("coverage/show", {}).get(name)
        if not last or not self.seconds or self.cleared():
            return last.total if last else 0
        return max(int(last.total - (first.total if first else 0)), 0)

    def rate(self, name: str) -> float:
        """Returns how often an event of coverage/show happens in a second."""
        last = self.last.get("coverage/show", {}).get(name)
        if not last:
            return 0.0
        if not self.seconds:
            return float(last.minute)
        return (last.recent if self.cleared()
                else self.count(name) / self.seconds)

    def cleared(self) -> bool:
        """Returns true if counters have begun again in the window."""
        last = self.last.get("coverage/show", {})
        return any(name not in last or last[name].total < count.total
                   for name, count
                   in self.first.get("coverage/show", {}).items())

    def grown(self, bridge: str, key: str) -> int:
        """Returns by how much a number of a bridge's MAC table has grown."""
        first, last = (reading.get(f"fdb/stats-show {bridge}", {}).get(key, 0)
                       for reading in (self.first, self.last))
        return max(last - first, 0)

    def lookups(self) -> Iterator[Tuple[str, Counts[str]]]:
        """Yields each datapath that is there all the time, and by how much its
        numbers in dpctl/show have grown."""
        first, last = (reading.get("dpctl/show", {})
                       for reading in (self.first, self.last))
        for name in first:
            if name in last:
                found = Counter(last[name])
                found.subtract(first[name])
                yield name, found

    def of(self, command: str) -> Iterator[Any]:
        """Yields name and numbers of each bridge for a command of bridges."""
        for key, value in (*self.last.items(), *self.more.items()):
            if key.startswith(f"{command} "):
                yield key[len(command) + 1:], value

    def shares(self, pattern: str) -> Dict[str, float]:
        """Returns how much of a CPU each thread whose name matches has had."""
        return {name: share for name, share in shares(self.threads).items()
                if re.fullmatch(pattern, name)}

    def revalidators(self) -> float:
        """Returns how much of a CPU the busiest revalidator needs."""
        return max(self.shares(r"revalidator\d+").values(), default=0.0)

    def repeated(self, reason: str) -> float:
        """Returns how often all flows are to be translated again for a
        reason, in a second: 0 if that is seldom, and does not keep the
        revalidators translating, either."""
        rate = self.rate(f"rev_{reason}")
        translations = self.rate("xlate_actions") - self.missed()
        busy = any(self.lookups()) and translations >= 100
        return rate if rate >= (0.1 if busy else 1) else 0.0

    def missed(self) -> float:
        """Returns how many packets a second find no flow."""
        return sum(n["missed"] for _, n in self.lookups()) / max(
            self.seconds, 1)

    def logged(self, pattern: str, before: float = 0) -> List[Any]:
        """Returns the groups of 'pattern', which begins with a module, of each
        line of the log in the window, or so many seconds before."""
        since = time.strftime("%Y-%m-%dT%H:%M:%S",
                              time.gmtime(self.since - before))
        return re.findall(rf"^\S+?\|\d+\|{pattern}", "\n".join(
            line for line in self.log.split("\n")
            if self.since and line >= since), re.MULTILINE)

    def longest_poll(self) -> int:
        """Returns the longest iteration of the main loop that the log has in
        the window, in ms, or 0."""
        return max(map(int, self.logged(
            r"timeval\|WARN\|Unreasonably long (\d{1,9})ms poll")), default=0)

    def awaited(self) -> str:
        """Returns the thread that others waited for (RCU) in the window, as
        the log has it, or ""."""
        found = self.logged(r"ovs_rcu\|WARN\|blocked \d+ ms waiting for "
                            r"(\S+) to quiesce")
        return found[-1] if found else ""

    def unsent(self, error: str, before: float = OFTEN) -> List[str]:
        """Returns the ports that could not send packets, for that reason."""
        return self.logged(r"netdev_linux(?:\(\S+\))?\|WARN\|error sending "
                           rf"Ethernet packet on (.*): {error}", before)

    def suppressed(self, module: str) -> float:
        """Returns how many messages of a module are not logged in a second,
        since there are too many."""
        found = self.logged(rf"{module}(?:\(\S+\))?\|WARN\|"
                            r"Dropped (\d{1,9}) log messages in last "
                            r"(\d{1,9}) seconds", OFTEN)
        return max((int(n) / max(int(s), 1) for n, s in found), default=0.0)

    def without_nat(self) -> bool:
        """Returns true if NAT lacks addresses and ports all the time."""
        return self.suppressed("conntrack") >= 1 and bool(self.logged(
            r"conntrack(?:\(\S+\))?\|WARN\|(Unable to NAT)", OFTEN))

    def main(self) -> float:
        """Returns how much of a CPU the main thread needs."""
        return main_share(self.threads)

    def rows(self, table: str) -> Dict[str, List[Dict[str, Any]]]:
        """Returns the rows of a table at the beginning, if they were read, and
        at the end, by UUID."""
        found: Dict[str, List[Dict[str, Any]]] = {}
        for tables in self.tables:
            for row in tables.get(table, ()):
                found.setdefault(str(row.get("_uuid", row.get("name"))),
                                 []).append(row)
        return found

    def latest(self, table: str) -> List[Dict[str, Any]]:
        """Returns the rows of a table at the end."""
        return self.tables[-1].get(table, []) if self.tables else []

    def config(self, key: str, bridge: str = "") -> str:
        """Returns what other_config of the table Open_vSwitch, or of a bridge,
        has, or ""."""
        for row in ([self.bridge(bridge)] if bridge
                    else self.latest("Open_vSwitch")):
            return str(row.get("other_config", {}).get(key, ""))
        return ""

    def bridge(self, name: str) -> Dict[str, Any]:
        """Returns the row of a bridge, or {}."""
        return next((row for row in self.latest("Bridge")
                     if row.get("name") == name), {})

    def flows(self) -> int:
        """Returns how many flows all datapaths have."""
        return sum(dp["current"]
                   for dp in self.last.get("upcall/show", {}).values())

    def resubmitting(self) -> Tuple[str, str]:
        """Returns the bridge and the flow of the latest packet in the log that
        had too many resubmits, or ""."""
        found = re.findall(
            r"^[^|\n]*\|[^|\n]*\|ofproto_dpif_xlate[^|\n]*\|[^|\n]*\|"
            r".*(?:resubmit|depth).* on bridge (.*) while processing (.*)",
            self.log, re.MULTILINE)
        return found[-1] if found else ("", "")

    def referred(self, rows: List[Dict[str, Any]], column: str, table: str
                 ) -> List[List[Dict[str, Any]]]:
        """Returns the rows of a table that a column of 'rows' refers to."""
        uuids = str([row.get(column) for row in rows])
        return [found for uuid, found in self.rows(table).items()
                if uuid in uuids]

    def packet_ins(self) -> Iterator[Tuple[int, int, Dict[str, Any]]]:
        """Yields, for each controller, how many packets for it were dropped in
        the window, of how many, and its row."""
        for rows in self.rows("Controller").values():
            dropped, queued, bypassed = (
                max(0, sum(gain(rows, "status", key)
                           for key in rows[-1].get("status", ())
                           if key.endswith(f"-{name}")))
                for name in ("dropped", "queued", "bypassed"))
            yield dropped, queued + bypassed, rows[-1]  # Queued has all.

    def interfaces(self, bridge: str) -> List[List[Dict[str, Any]]]:
        """Returns the rows of a bridge's interfaces."""
        ports = self.referred([self.bridge(bridge)], "ports", "Port")
        return self.referred([rows[-1] for rows in ports], "interfaces",
                             "Interface")

    def port(self, number: str, bridge: str) -> str:
        """Returns the name of the bridge's port with an OpenFlow number."""
        return next((rows[-1]["name"] for rows in self.interfaces(bridge)
                     if str(rows[-1].get("ofport")) == number),
                    f"number {number}")

    def add(self, reading: Dict[str, Any], command: str, text: Any) -> None:
        """Adds the text of a command to 'first' or 'last'."""
        name, _, argument = command.partition(" ")
        if argument.startswith("-"):
            command, argument = name, ""
        parser = PARSERS.get(f"{name} BR" if argument else name)
        if not parser or isinstance(text, CommandError) or text is None:
            return                      # It lacks the command, or was late.
        text = plain(text)
        if not isinstance(text, str):
            self.notes.append(f"{command}: this program reads text only")
            return
        unknown: List[str] = []
        reading[command] = parser(text, unknown)
        if unknown:
            n = len(unknown)
            self.notes.append(
                f"{command}: {n} line{'s are' if n > 1 else ' is'} not "
                f"understood{', such as' if n > 1 else ':'} "
                f"\"{unknown[0].strip()[:60]}\"")


class Watch:
    """Looks at one ovs-vswitchd for a while."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.stock = Stock()
        self.failed = ""
        self._remote = ""               # Of the database.
        self._bridges: List[str] = []
        self._database: Optional[Database] = None
        self._lost: Optional[Exception] = None      # Why it is not there.
        self._start = 0.0
        self._middle = False
        self._directory = ""
        self._server = 0                # The process of ovsdb-server.
        self._dump: Optional[List[stocktext.Flow]] = None

    def _ask(self, reading: Dict[str, Any], commands: Sequence[str]) -> None:
        """Executes commands, and adds what they print."""
        requests = [each for command in commands
                    for each in ([command] if not command.endswith(" BR") else
                                 [f"{command[:-3]} {bridge}"
                                  for bridge in self._bridges])]
        words = [request.split(" ", -1 if " -" in request else 1)
                 for request in requests]
        try:
            connected = self.target.pid()
            try:
                replies = self.target.ask(words)
            except TargetError:
                # A new process may have come.
                if not connected or self.target.pid():
                    raise
                replies = self.target.ask(words)
        except (TargetError, CommandError) as e:
            self.failed = self.failed or str(e)
            return
        if None in replies and not self.failed:
            self.failed = (f"{self.target.name}: no reply to "
                           f"{requests[replies.index(None)]} in "
                           f"{self.target.timeout:g} s")
        for request, reply in zip(requests, replies):
            self.stock.add(reading, request, reply)

    def _read_database(self) -> None:
        with self._failing():
            if self._database:
                self.stock.tables.append(self._database.read())

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Closes the connection to the database after an error."""
        try:
            yield
        except (OSError, ValueError) as e:
            if self._database:
                self._database.close()
            self._database = None
            self._lost = e

    def _explain(self, error: Exception, pid: int) -> None:
        """Says why there is no database any more: ovsdb-server is gone, or
        hangs, if it does not answer over another connection, either."""
        try:
            with contextlib.closing(Database(self._remote, 2)) as database:
                database.echo()
        except (OSError, ValueError) as e:
            if isinstance(e, (ConnectionError, FileNotFoundError,
                              socket.timeout)) and (
                    processes.database(pid)) and (
                    self._remote.startswith("unix:")):
                self.stock.no_database = str(e)
                return
        self.stock.unread = True
        self.stock.notes.append(f"the database at {self._remote} can't be "
                                f"read: {error}")

    def begin(self, once: bool) -> None:
        """Begins the window, or if 'once', prepares for one moment only."""
        stock = self.stock
        try:
            self._directory = os.path.dirname(socket_path(self.target.name))
        except TargetError as e:
            self.failed = str(e)
            return
        self._remote = processes.database(self._pid()) or "unix:db.sock"
        if self._remote.startswith("unix:"):
            path, usual = (os.path.join(self._directory, name)
                           for name in (self._remote[5:], "db.sock"))
            path = processes.root(self._pid()) + path
            # In a container, it may have another path.
            self._remote = "unix:" + (
                usual if os.path.exists(usual) and not os.path.exists(path)
                else path)
        with self._failing():
            self._database = Database(self._remote, self.target.timeout / 2)
            self._server = self._database.server
            if not once:
                self._database.watch()
        self._read_database()
        self._bridges = [row["name"] for row
                         in stock.latest("Bridge")][:MAX_BRIDGES]
        if once:
            return
        stock.since = time.time()
        self._start = time.monotonic()
        if not stock.tables:
            listed = self._text("ofproto/list").split("\n")[:-1]
            self._bridges = listed[:MAX_BRIDGES]
        self._ask(stock.first, FIRST)
        program = re.match(r"(\S+) \(", stock.first.get("version", ""))
        if program and program[1] != "ovs-vswitchd":
            self.failed = f"{self.target.name}: this is {program[1]}"
        self._show_datapaths(stock.first)
        if not self.failed:
            self._start = time.monotonic()
        pid = self._pid()
        stock.threads.append(processes.threads(pid))
        stock.quotas.append(processes.quota(pid))
        stock.server.append(processes.threads(self._server))
        stock.logs = -processes.log(pid)[1]
        stock.running = processes.running()
        stock.clients = processes.Clients(self._directory, pid)
        with contextlib.suppress(OSError):
            stock.kernel = rtnetlink.Changes(pid)
        stock.samples.append(stock.first.get("memory/show", {}))

    def _pid(self) -> int:
        """Returns the process at the other end, or that the name of the
        socket has, if that is what it looks like."""
        if self.target.pid():
            return self.target.pid()
        with contextlib.suppress(TargetError, OSError):
            match = re.search(r"\.(\d+)\.ctl$", socket_path(self.target.name))
            if match:
                with open(f"/proc/{match[1]}/comm") as f:
                    if f.read().startswith("ovs-vswitchd"):
                        return int(match[1])
        return 0

    def _show_datapaths(self, reading: Dict[str, Any]) -> None:
        ports = reading.get("memory/show", {}).get("ports", 0)
        if 0 < ports <= MANY and not self.failed:
            self._ask(reading, ["dpctl/show"])

    def look(self, seconds: float) -> None:
        """Looks in between, when 'seconds' of the window have passed."""
        if self.stock.clients:
            self.stock.clients.look()
        if self.stock.kernel:
            self.stock.kernel.look()
        with self._failing():
            if self._database:
                self._database.look()
        if not self._middle and not self.failed and (
                time.monotonic() - self._start > seconds / 2):
            self._middle = True
            reading: Dict[str, Any] = {}
            self._ask(reading, ["memory/show"])
            self.stock.samples.append(reading.get("memory/show", {}))
            if "no reply" not in self.failed:
                self.failed = ""        # A new process may come until the end.

    def end(self) -> Stock:
        stock = self.stock
        if self._directory:
            pid = stock.threads[0].get("pid", 0) if stock.threads else 0
            if pid:
                stock.threads.append(processes.threads(pid))
                stock.resident = processes.memory(pid)
                stock.room = processes.memory_limit(pid)
                stock.quotas.append(processes.quota(pid))
                stock.hogs = processes.busiest(
                    stock.running, time.monotonic() - self._start, pid)
                stock.log, size = processes.log(pid)
                stock.logs += size
                stock.files = processes.files_left(pid)
            stock.server.append(processes.threads(self._server))
            stock.full_disk = processes.full_disk(self._server)
            if not self.failed:
                self._ask(stock.last, (*FIRST, *ONCE))
                now = self._pid()
                stock.follower = now if pid and now != pid else 0
                if self._start:
                    stock.seconds = time.monotonic() - self._start
            if not self.failed:
                self._show_datapaths(stock.last)
                if any(name.startswith("system@") for name
                       in stock.last.get("upcall/show", ())):
                    for name, count in (("maxconns", "max"),
                                        ("nconns", "count")):
                        stock.last.setdefault(
                            f"dpctl/ct-get-{name}", processes.conntrack(count))
                stock.samples.append(stock.last.get("memory/show", {}))
            self._read_database()
            if self._database:
                stock.changes = dict(self._database.changes)
            if self._lost:
                self._explain(self._lost, self._pid() or pid)
            if not self.failed:
                self._ask_more()
        if self._database:
            self._database.close()
        if stock.kernel:
            stock.kernel.close()
        self.target.close()
        if "no reply" in self.failed:
            why = processes.halted(self._pid()) or (
                f"its main thread waits for {stock.awaited()} (RCU)"
                if stock.awaited() else "")
            self.failed += f": {why}" if why else ""
        return stock

    def _reply(self, *request: str) -> Any:
        """Returns what a command replies, or "" if it fails."""
        with contextlib.suppress(TargetError, CommandError):
            [reply] = map(plain, self.target.ask([request]))
            if reply and not isinstance(reply, CommandError):
                return reply
        return ""

    def _text(self, *request: str) -> str:
        return str(self._reply(*request))

    def _trace(self, flow: str) -> str:
        # There may be two datapaths: no trace.
        names = "".join(self.stock.last.get("upcall/show", ()))
        return self._text("ofproto/trace", names.partition("@")[2], flow)

    def _fdb(self, bridge: str) -> List[Tuple[str, str, str]]:
        return stocktext.fdb(self._reply("fdb/show", bridge), self.stock.notes)

    def _ofctl(self, bridge: str, *words: str) -> str:
        """Returns what ovs-ofctl prints, or "" if there is none."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(
                ["ovs-ofctl", "--timeout=2", *words,
                 f"unix:{self._directory}/{bridge}.mgmt"], text=True,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                errors="replace", check=True, timeout=3).stdout
        return ""

    def _ask_more(self) -> None:
        """Asks for data that names the culprit, where something is wrong."""
        self._ask_listeners()
        for bridge in self._bridges:
            self._ask_addresses(bridge)
            self._ask_groups(bridge)
            self._ask_meters(bridge)
            self._ask_tables(bridge)
        self._ask_zones()
        self._ask_log()
        self._ask_drops()
        self._ask_unregistered()
        self._ask_invalid()
        self._ask_unsent()
        self._ask_nat()
        self._ask_bonds()
        self._ask_neighbours()
        self._ask_resubmits()
        self._ask_slow()
        self._ask_packet_ins()

    def _ask_listeners(self) -> None:
        """Which process of this host is a controller?"""
        self.stock.more["listeners"] = {
            row["target"]: processes.listener(row["target"])
            for row in self.stock.latest("Controller")}

    def _ask_addresses(self, bridge: str) -> None:
        """Which port has most MAC addresses, and between which do they
        move?"""
        if self.stock.grown(bridge, "evicted"):
            self.stock.more[f"fdb/show {bridge}"] = Counter(
                port for port, _, _ in self._fdb(bridge))
        if self.stock.grown(bridge, "moved") > 10:
            self.stock.more[f"moving {bridge}"] = self._moving(bridge)

    def _moving(self, bridge: str) -> Tuple[str, List[str]]:
        """Returns a MAC address and the ports on which it was in several
        readings, or else "" and the two ports that have most addresses: those
        of a loop have nearly all."""
        seen: Dict[Tuple[str, str], Set[str]] = {}
        for _ in range(10):
            entries = self._fdb(bridge)
            for port, vlan, mac in entries:
                seen.setdefault((vlan, mac), set()).add(port)
            time.sleep(0.1)
        (_, mac), ports = max(seen.items(), key=lambda each: len(each[1]),
                              default=(("", ""), set()))
        return (mac, sorted(ports)) if len(ports) > 1 else ("", [
            port for port, _ in Counter(
                port for port, _, _ in entries).most_common(2)])

    def _ask_groups(self, bridge: str) -> None:
        """How many multicast groups does a bridge know?"""
        if self.stock.rate("rev_mcast_snooping") >= 1:
            self.stock.more[f"mdb/show {bridge}"] = stocktext.groups(
                self._text("mdb/show", bridge))

    def _ask_meters(self, bridge: str) -> None:
        """Which meter drops packets?"""
        if self.stock.rate("datapath_drop_meter") > 1:
            text = self._ofctl(bridge, "-OOpenFlow13", "meter-stats")
            self.stock.more.setdefault("meters", {}).update({
                f"{bridge} meter {meter}": dropped for meter, dropped
                in stocktext.meters(text).items()})

    def _ask_tables(self, bridge: str) -> None:
        """How many rules does each table have?"""
        # A controller may handle what matches no rule.
        if growth(self.stock) > 0 or not self.stock.bridge(bridge).get(
                "controller"):
            self.stock.more[f"dump-tables {bridge}"] = stocktext.tables(
                self._ofctl(bridge, "dump-tables"))

    def _ask_zones(self) -> None:
        """Which zone of connection tracking is full?"""
        if self.stock.rate("conntrack_zone_full") >= 1:
            self.stock.more["zones"] = stocktext.zones(
                self._text("dpctl/ct-get-limits"))

    def _flows(self, pattern: str) -> List[stocktext.Flow]:
        """Returns the flows whose actions match, those of most packets first,
        or none if the datapath has too many."""
        if self._dump is None:
            self._dump = stocktext.flows(
                self._text("dpctl/dump-flows", "--names")
                if self.stock.flows() <= MAX_FLOWS else "")
        return sorted((flow for flow in self._dump
                       if re.search(pattern, flow.actions)), reverse=True)

    def _dropping(self) -> List[Tuple[float, stocktext.Flow]]:
        """Returns the flows that rules drop, and how many packets each of them
        has had in a second, if there are any."""
        drops = self.stock.rate("drop_action_of_pipeline")
        flows = self._flows("^drop$") if drops > 1 else []
        total = max(sum(flow.packets for flow in flows), 1)
        return [(drops * flow.packets / total, flow) for flow in flows]

    def _ask_drops(self) -> None:
        """Why do rules drop packets, if not because they are to?"""
        stock = self.stock
        found: Counts[Tuple[str, str]] = Counter()
        for rate, flow in self._dropping()[:N_TRACES]:
            trace = self._trace(flow.match)
            bridge = stocktext.last_bridge(trace)
            why = re.sub(r"\bport (\d+)\b", lambda m: "port " + stock.port(
                m[1], bridge), stocktext.warning(trace))
            # A trunk may bring what is for all ports of other VLANs, and who
            # listens to a mirror may ask for addresses.
            if why and not (flow.to_group() and re.search(
                    "for trunking|for mirroring", why)):
                found[why, stocktext.last_rule(trace)] += rate  # type: ignore
        stock.more["dropped"] = [(rate, *key) for key, rate in found.items()]

    def _ask_unregistered(self) -> None:
        """Which bridge drops multicast, since it knows no members?"""
        # All bridges flood what is for 224.0.0.0/24.
        groups = [(rate, flow) for rate, flow in self._dropping() if re.search(
            r"dst=(01:00:5e:(?!00:00:)|33:33:)", flow.match)]
        for _, flow in groups[:1]:
            trace = self._trace(flow.match)
            bridge = stocktext.last_bridge(trace)
            if self.stock.config(UNREGISTERED, bridge) == "true" and re.search(
                    r"^ *NORMAL$", trace, re.MULTILINE) and len(
                        self._text("mdb/show", bridge).split("\n")) < 3:
                self.stock.more["unregistered"] = bridge, sum(
                    rate for rate, _ in groups)

    def _ask_log(self) -> None:
        """Which modules log debug messages?"""
        if self.stock.logs > MUCH * self.stock.seconds:
            self.stock.more["debug"] = re.findall(
                r"^(\w+) .*\bDBG$", self._text("vlog/list"), re.MULTILINE)

    def _ask_invalid(self) -> None:
        """Which port sends packets with wrong checksums?"""
        if self.stock.rate("conntrack_l4csum_err") >= 1:
            for flow in self._flows(""):
                if re.search(r"ct_state\([^)]*\+inv", flow.match):
                    self.stock.more["invalid"] = flow.port
                    break

    def _ask_unsent(self) -> None:
        """Which port that is down do rules send packets to, and no other, and
        from which port?"""
        for port in {*self.stock.unsent("Network is down"), *(
                rows[-1]["name"] for rows in self.stock.rows(
                    "Interface").values()
                if rows[-1].get("link_state") == "down" and rows[1:]
                and gain(rows, "statistics", "tx_dropped") >= 10)}:
            for flow in self._flows(rf"^{re.escape(port)}$")[:1]:
                if flow.packets >= 100:
                    self.stock.more.setdefault("unsent", {})[port] = flow.port

    def _ask_nat(self) -> None:
        """Which addresses has NAT no room in, if it has no others?"""
        if self.stock.without_nat():
            nats = {nat for flow in self._flows(r"nat\((src|dst)=")
                    for nat in re.findall(r"nat\(([^)]*)", flow.actions)}
            self.stock.more["nat"] = nats.pop() if len(nats) == 1 else ""

    def _ask_bonds(self) -> None:
        """Which bonds have no link, though packets go there?"""
        stock = self.stock
        bonds = [(port["name"], [rows[-1]["name"] for rows in members])
                 for port in stock.latest("Port")
                 if isinstance(port.get("interfaces"), list)
                 for members in [stock.referred([port], "interfaces",
                                                "Interface")]
                 if members[1:] and all(row.get("link_state") == "down"
                                        for rows in members for row in rows)]
        used = set()
        # Nobody has their packets, but perhaps the bridge itself.
        actions = {"drop", *(row["name"] for row in stock.latest("Bridge"))}
        flows = [flow for flow in self._flows("") if flow.packets >= 100
                 and flow.actions in actions
                 and not flow.to_group()] if bonds else []
        for flow in flows[:N_TRACES]:
            trace = self._trace(flow.match)
            if re.search("no learned MAC for destination, flooding$" + (
                    "|forwarding to learned port$" if flow.actions == "drop"
                    else ""), trace, re.MULTILINE):
                used |= {rows[-1]["name"] for rows in stock.interfaces(
                    stocktext.last_bridge(trace))}
        stock.more["unused"] = [bond for bond in bonds
                                if used.intersection(bond[1])]

    def _ask_neighbours(self) -> None:
        """Which next hop of a tunnel has no MAC address, or no route?"""
        stock = self.stock
        # Before 4.0, they are among the packets that rules drop.
        misses = stock.rate(MISSES) or sum(
            rate for rate, why, _ in stock.more["dropped"] if MISS in why)
        if max(misses, stock.rate("drop_action_tunnel_routing_failed")) <= 1:
            return
        ends = {row.get("options", {}).get("remote_ip", ""): row["name"]
                for row in stock.latest("Interface")}
        routes = {end: self._text("ovs/route/lookup", end)
                  for end in sorted(ends)[:100] if end[:1].isdigit()}
        hops = {end: stocktext.next_hop(route) or end
                for end, route in routes.items() if route}
        known = stock.last.get("tnl/neigh/show", [])
        stock.more["silent"] = [(end, hop) for end, hop in hops.items()
                                if hop not in known]
        stock.more["unrouted"] = [f"{end} of port {ends[end]}"
                                  for end, route in routes.items()
                                  if not route]
        stock.more[MISSES] = misses

    def _ask_resubmits(self) -> None:
        """Which rule has too many resubmits?"""
        bridge, flow = self.stock.resubmitting()
        rates = map(self.stock.rate, ("drop_action_too_many_resubmit",
                                      "drop_action_recursion_too_deep"))
        if bridge and sum(rates) >= 1:
            self.stock.more["rule"] = stocktext.resubmitting_rule(
                self._text("ofproto/trace", bridge, flow))

    def _ask_slow(self) -> None:
        """Which flows take the slow path?  What else makes translations is a
        guess: this is not."""
        if slow_paths(self.stock) <= 100 or self.stock.flows() > MAX_FLOWS:
            return
        dumps = []
        for _ in range(2):
            time.sleep(0.5)
            self._dump = None
            dumps.append((time.monotonic(), {
                (flow.port, re.findall(r"slow_path\((\w+)", flow.actions)[0],
                 flow.match): flow.packets
                for flow in self._flows(r"slow_path\(\w")}))
        (start, old), (end, new) = dumps
        self.stock.more["slow"] = sorted((
            ((n - old.get(key, 0)) / (end - start), *key)
            for key, n in new.items()), reverse=True)
        for _, _, _, flow in self.stock.more["slow"][:1]:
            self.stock.more["slow rule"] = stocktext.last_rule(
                self._trace(flow))

    def _ask_packet_ins(self) -> None:
        """From which port and rule does a controller receive most packets, if
        these are too many?"""
        stock = self.stock
        if not (stock.rate("rconn_overflow") >= 1
                or stock.rate("packet_in_overflow") >= 1
                or stock.rate("connmgr_async_unsent") >= 1
                or any(n for n, _, _ in stock.packet_ins())):
            return
        flows = self._flows(r"\bcontroller\(reason")
        ports: Counts[str] = Counter()
        for flow in flows:
            ports[flow.port] += flow.packets
        for port, packets in ports.most_common(1):
            first = next(flow for flow in flows if flow.port == port)
            stock.more["packet-ins"] = (
                port if 2 * packets > sum(ports.values()) else "",
                stocktext.last_rule(self._trace(first.match)))


def has_pmd(interface: Dict[str, Any]) -> bool:
    """Returns true if a PMD thread polls such a port."""
    kind = str(interface.get("type"))
    return kind != "afxdp-nonpmd" and kind.startswith((
        "dpdk", "afxdp", "dummy-p"))


def usage(readings: Sequence[Dict[str, Any]]
          ) -> Iterator[Tuple[str, int, int, int]]:
    """Yields, for each thread, its name, a time in ns, and how much of it the
    thread was on a CPU and waited for one: between the first and the last
    reading, or in what cost/threads has as "last" for a thread that the first
    one lacks.  Leaves out times of less than a second."""
    first, last = (readings or [{}])[0], (readings or [{}])[-1]
    ns = 1000 * (last.get("now_us", 0) - first.get("now_us", 0))
    old = {t["tid"]: t for t in first.get("threads", ())
           if ns >= 1e9 and first["pid"] == last["pid"]}
    for thread in last.get("threads", ()):
        recent = thread.get("last", {})
        if thread["tid"] in old:
            recent = {key: thread[key] - old[thread["tid"]][key]
                      for key in ("cpu_ns", "run_delay_ns")}
            recent["ns"] = ns
        if recent.get("ns", 0) >= 1e9:      # Not for a moment only.
            yield (thread["name"], recent["ns"], recent["cpu_ns"],
                   recent["run_delay_ns"])


def shares(readings: Sequence[Dict[str, Any]]) -> Dict[str, float]:
    """Returns how much of a CPU each thread has had, of the time that it did
    not have to wait for one.  Only threads that are there all the time
    count."""
    found = list(usage(readings))
    first, last = ((readings or [{}])[i].get("now_us", 0) for i in (0, -1))
    # If there is one reading, each thread has begun at its own moment.
    whole = 1000 * (last - first) or 0.9 * max(
        (ns for _, ns, _, _ in found), default=0)
    return {name: cpu / max(ns - delay, cpu, 1)
            for name, ns, cpu, delay in found
            if (ns == whole if last != first else ns >= whole)}


def main_share(readings: Sequence[Dict[str, Any]]) -> float:
    """Returns how much of a CPU the main thread of a process needs."""
    last = (readings or [{}])[-1]
    for thread in last.get("threads", ()):
        if thread["tid"] == last["pid"]:
            return shares(readings).get(thread["name"], 0.0)
    return 0.0


def growth(stock: Stock) -> float:
    """Returns how many OpenFlow rules come in a second, in each half of the
    window and without a message for each, or 0."""
    rules = [sample.get("rules", 0) for sample in stock.samples]
    if len(rules) < 3 or not all(rules) or not stock.seconds:
        return 0.0
    steps = [b - a for a, b in zip(rules, rules[1:])]
    n = sum(steps)
    if min(steps) < n / 4 or stock.count("ofproto_recv_openflow") > n / 2:
        return 0.0
    return n / stock.seconds


def slow_paths(stock: Stock) -> float:
    """Returns how many packets are translated in a second at least, besides
    those that no flow of the datapath matches, and flows that are translated
    again; 0 if that is not known."""
    if not any(stock.lookups()) or not stock.seconds:
        return 0.0
    again = sum(stock.count(f"rev_{reason}") for reason in REASONS) * max(
        (dp["max"] for dp in stock.last.get("upcall/show", {}).values()),
        default=0)
    return (stock.rate("xlate_actions") - stock.missed()
            - again / stock.seconds)
