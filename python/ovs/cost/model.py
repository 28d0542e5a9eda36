# SPDX-License-Identifier: Apache-2.0
"""Replies of the cost-show commands, and what happened between two."""

from __future__ import annotations

import contextlib
from typing import (Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple)

from ovs.cost.distribution import (MAX, Distribution, Negative, Unmergeable,
                                   natural)

VERSION = 2                     # Of the replies' schema.

REPORTS = ("upcall", "tx", "bridge", "netlink", "revalidator")

# What an account is, in each report.
OBJECTS = {"upcall": "datapath", "tx": "port", "bridge": "account",
           "netlink": "account", "revalidator": "datapath"}


def most(numbers: Mapping[Any, float]) -> Any:
    """Returns the key of the highest number, or ""."""
    return max(numbers, key=lambda key: numbers[key], default="")


def _merge(mine: Dict[Any, Any], others: Dict[Any, Any]) -> None:
    """Adds 'others' to distributions, bodies or accounts, by name."""
    for name, other in others.items():
        if name in mine:
            mine[name].merge(other)
        else:
            mine[name] = other.copy()


class BadReply(ValueError):
    """A reply that can't be understood."""


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Raises BadReply where a reply does not have the form that it should."""
    try:
        yield
    except BadReply:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError,
            TypeError, ValueError) as e:
        raise BadReply(f"a reply that is not understood "
                       f"({type(e).__name__}: {e})") from e


class Body:
    """Events, and what is known of their stages."""

    __slots__ = ("kind", "events", "stages", "counters")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.events = 0
        self.stages: Dict[str, Distribution] = {}
        self.counters: Dict[str, Dict[str, int]] = {}

    @staticmethod
    def from_json(kind: str, json: Dict[str, Any]) -> Body:
        body = Body(kind)
        body.events = natural(json["events"])
        for name, stage in sorted(json.get("stages", {}).items(),
                                  key=lambda s: s[1].get("index", 0)):
            body.stages[name] = Distribution.from_json(stage)
        for group, members in json.get("counters", {}).items():
            body.counters[group] = {n: natural(v)
                                    for n, v in members.items()}
        return body

    def to_json(self) -> Dict[str, Any]:
        return {"events": self.events,
                "stages": {n: s.to_json() for n, s in self.stages.items()},
                "counters": self.counters}

    @property
    def whole(self) -> Optional[Distribution]:
        """The distribution of whole events."""
        for name in ("total", "run"):
            if name in self.stages:
                return self.stages[name]
        return None

    @property
    def time_ns(self) -> float:
        """What all events took, estimated from the sample if it is one."""
        whole = self.whole
        if not whole or not whole.count:
            return 0.0
        return whole.sum * (self.events / whole.count if whole.sampled else 1)

    @property
    def lost(self) -> int:
        return sum(self.counters.get("lost", {}).values())

    @property
    def is_empty(self) -> bool:
        return (not self.events
                and not any(s.count for s in self.stages.values())
                and not any(n for g in self.counters.values()
                            for n in g.values()))

    def parts(self) -> List[Tuple[str, Distribution]]:
        """Returns the stages that make up the whole event."""
        return [(n, s) for n, s in self.stages.items()
                if s.is_time and s is not self.whole and not s.apart]

    def merge(self, other: Body) -> None:
        """Adds 'other'."""
        self.events += other.events
        _merge(self.stages, other.stages)
        for group, members in other.counters.items():
            mine = self.counters.setdefault(group, {})
            for name, n in members.items():
                mine[name] = mine.get(name, 0) + n

    def since(self, earlier: Body) -> Body:
        """Returns what happened after 'earlier'.  Raises Negative if this is
        not what 'earlier' has become."""
        body = Body(self.kind)
        body.events = self.events - earlier.events
        for name, stage in self.stages.items():
            old = earlier.stages.get(name)
            body.stages[name] = stage.since(old) if old else stage.copy()
        for group, members in self.counters.items():
            old_group = earlier.counters.get(group, {})
            body.counters[group] = {name: n - old_group.get(name, 0)
                                    for name, n in members.items()}
        if (body.events < 0 or any(n < 0 for g in body.counters.values()
                                   for n in g.values())
                or any(s.count and n not in self.stages
                       for n, s in earlier.stages.items())):
            raise Negative("a counter has become less")
        return body

    def copy(self) -> Body:
        body = Body(self.kind)
        body.merge(self)
        return body


class Key(NamedTuple):
    """What identifies an account among those of one report."""

    kind: str
    name: str
    datapath: str


class Account:
    """An account, or a sum of accounts."""

    __slots__ = ("key", "since_us", "accounts", "total", "classes", "threads")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.since_us: Optional[int] = None
        self.accounts = 1               # How many are added up.
        self.total = Body(key.kind)
        self.classes: Dict[str, Body] = {}
        self.threads: Dict[str, Body] = {}

    @staticmethod
    def from_json(json: Dict[str, Any]) -> Account:
        kind = json["kind"]
        account = Account(Key(kind, json.get("name", ""),
                              json.get("datapath", "")))
        if "since_us" in json:
            account.since_us = int(json["since_us"])
        account.accounts = int(json.get("accounts", 1))
        account.total = Body.from_json(kind, json)
        for mine, name in ((account.classes, "classes"),
                           (account.threads, "threads")):
            for part in json.get(name, ()):
                body = Body.from_json(kind, part)
                if part["name"] in mine:
                    # Two threads of one name.
                    mine[part["name"]].merge(body)
                else:
                    mine[part["name"]] = body
        if "name" not in json:
            # Sums of the same kind differ in their stages: those of upcalls
            # from the kernel, and of others.
            account.key = Key(kind, "", ("system" if "operate" in
                                         account.total.stages else ""))
        return account

    def to_json(self) -> Dict[str, Any]:
        json: Dict[str, Any] = {"kind": self.key.kind}
        if self.key.name:
            json["name"] = self.key.name
            if self.key.datapath:
                json["datapath"] = self.key.datapath
        else:
            json["accounts"] = self.accounts
        if self.since_us is not None:
            json["since_us"] = self.since_us
        json.update(self.total.to_json())
        json["classes"] = [dict(name=n, **b.to_json())
                           for n, b in self.classes.items()]
        if self.threads:
            json["threads"] = [dict(name=n, **b.to_json())
                               for n, b in self.threads.items()]
        return json

    def merge(self, other: Account) -> None:
        self.total.merge(other.total)
        _merge(self.classes, other.classes)
        _merge(self.threads, other.threads)
        if other.since_us is not None:
            self.since_us = (other.since_us if self.since_us is None
                             else min(self.since_us, other.since_us))

    def since(self, earlier: Account) -> Account:
        """Returns what happened after 'earlier', see Body.since()."""
        account = Account(self.key)
        account.since_us = self.since_us
        account.accounts = self.accounts
        account.total = self.total.since(earlier.total)
        # Those of threads move to "exited" when a thread ends, those of
        # classes only grow.
        for name, body in self.classes.items():
            old = earlier.classes.get(name)
            account.classes[name] = body.since(old) if old else body.copy()
        if any(not body.is_empty and name not in self.classes
               for name, body in earlier.classes.items()):
            raise Negative("a class is gone")
        account.threads = _threads_since(self, earlier)
        return account

    def copy(self) -> Account:
        account = Account(self.key)
        account.merge(self)
        account.accounts = self.accounts
        return account


def _threads_since(late: Account, early: Account) -> Dict[str, Body]:
    """Returns what each thread did after 'early'.

    What a thread that has ended had done is added to "exited".  What it did
    after 'early' can't be told from that of others that ended, so it is what
    "exited" has more than all that have gone."""
    threads = {}
    gone = Body(late.key.kind)
    for name, old in early.threads.items():
        new = late.threads.get(name)
        if name != "exited" and new is None:
            gone.merge(old)
    for name, new in late.threads.items():
        old_thread = early.threads.get(name)
        try:
            if name == "exited":
                before = gone.copy()
                if old_thread:
                    before.merge(old_thread)
                threads[name] = new.since(before)
            else:
                threads[name] = (new.since(old_thread) if old_thread
                                 else new.copy())
        except Negative:
            # Another thread of the same name.
            threads[name] = new.copy()
    return threads


class Reply:
    """A reply to cost-show."""

    def __init__(self, report: str) -> None:
        self.report = report
        self.pid = 0
        self.start_us = 0
        self.now_us = 0
        self.ovs_version = ""
        self.omitted = 0
        self.head: Dict[str, Any] = {}
        self.accounts: Dict[Key, Account] = {}
        self.deleted: Dict[Key, Account] = {}
        self.totals: Dict[Key, Account] = {}

    @staticmethod
    @understood()
    def from_json(json: Any) -> Reply:
        """Raises BadReply if 'json' is none."""
        reply = Reply(json["report"])
        reply.pid = json["pid"]
        reply.start_us = natural(json["start_us"])
        reply.now_us = json["now_us"]
        reply.ovs_version = str(json["ovs_version"])
        reply.omitted = natural(json["omitted"])
        reply.head = {k: v for k, v in json.items() if k not in
                      ("accounts", "deleted", "total")}
        for name, accounts in (("accounts", reply.accounts),
                               ("deleted", reply.deleted),
                               ("total", reply.totals)):
            for member in json.get(name, ()):
                account = Account.from_json(member)
                accounts[account.key] = account
        return reply

    def to_json(self) -> Dict[str, Any]:
        json = dict(self.head)
        json.update(version=VERSION, report=self.report, command="cost-show",
                    pid=self.pid, start_us=self.start_us, now_us=self.now_us,
                    ovs_version=self.ovs_version, omitted=self.omitted)
        for name, accounts in (("accounts", self.accounts),
                               ("deleted", self.deleted),
                               ("total", self.totals)):
            json[name] = [a.to_json() for a in accounts.values()]
        return json

    @property
    def sample_interval(self) -> int:
        return int(self.head.get("settings", {}).get("sample_interval", 0))


@understood()
def check_version(json: Any) -> None:
    """Raises BadReply unless 'json' is a reply of a version that is known."""
    if not isinstance(json, dict) or "version" not in json:
        raise BadReply("no reply of a cost report")
    if json["version"] != VERSION:
        raise BadReply(f"version {json['version']} of the replies' form, of "
                       f"which this program knows {VERSION} only: a newer "
                       f"one is needed")
    known = json.get("command") in ("cost-show", "cost-limit", "threads")
    _check(json, FORM if known else {"report": ""}, "reply")


_ACCOUNT = {
    "kind": "", "?name": "", "?datapath": "", "?accounts": 0, "?since_us": 0,
    "?classes": [{"name": ""}], "?threads": [{"name": ""}],
    "?top": [{"what": "", "rows": [{
        "name": "", "?group": "", "events": 0, "samples": 0, "error": 0,
        "mean_ns": 0}]}],
    "?slowest": [{
        "total_ns": 0, "time_us": 0, "thread": "", "class": "", "cause": "",
        "details": {}, "stages": {}}]}
# The form of replies, as far as these are used as they are.  What begins with
# "?" may be absent.
FORM = {
    "report": "", "pid": 0, "now_us": 0, "?settings": {"?sample_interval": 0},
    "?clock": {}, "?accounts": [_ACCOUNT], "?deleted": [_ACCOUNT],
    "?total": [_ACCOUNT],
    "?datapaths": [{"name": "", "flow_limit": 0, "latest": [{
        "reason": "", "from": 0, "to": 0, "time_us": 0, "?duration_ms": 0}]}],
    "?threads": [{
        "name": "", "tid": 0, "cpu_ns": 0, "run_delay_ns": 0,
        "?last": {"?ns": 0, "cpu_ns": 0, "run_delay_ns": 0}}]}


def _check(json: Any, form: Any, what: str) -> None:
    """Raises ValueError unless 'json' has a form, and maybe more."""
    if not isinstance(json, type(form)) or form == 0 and not 0 <= json < MAX:
        raise ValueError(f"{what}: {json!r:.40}")
    if isinstance(form, dict):
        for key, inner in form.items():
            name = key.lstrip("?")
            if name == key or name in json:
                _check(json.get(name), inner, name)
    elif isinstance(form, list):
        for one in json:
            _check(one, form[0], what)


class Window:
    """What happened between two replies to the same command."""

    def __init__(self, report: str, start_us: int, end_us: int) -> None:
        self.report = report
        self.start_us = start_us
        self.end_us = end_us
        self.accounts: Dict[Key, Account] = {}
        self.totals: Dict[Key, Account] = {}
        self.notes: List[str] = []

    @property
    def seconds(self) -> float:
        return (self.end_us - self.start_us) / 1e6

    def merge(self, other: Window) -> None:
        """Adds 'other', which may overlap."""
        _merge(self.accounts, other.accounts)
        _merge(self.totals, other.totals)
        self.start_us = min(self.start_us, other.start_us)
        self.end_us = max(self.end_us, other.end_us)
        self.notes += other.notes


def add_up(windows: Sequence[Window]) -> Optional[Window]:
    """Returns all that happened in 'windows', or None if there are none."""
    if not windows:
        return None
    total = Window(windows[0].report, windows[0].start_us, windows[0].end_us)
    for window in windows:
        total.merge(window)
    return total


def everything(reply: Reply) -> Window:
    """Returns all that is in 'reply'."""
    since = [a.since_us for a in reply.accounts.values()
             if a.since_us is not None]
    window = Window(reply.report, min(since, default=reply.start_us),
                    reply.now_us)
    window.accounts = reply.accounts
    window.totals = reply.totals or _sum_up(reply.accounts.values())
    return window


def between(early: Reply, late: Reply) -> Window:
    """Returns what happened after 'early', up to 'late'.

    No count is ever negative: where counting began again, what there is since
    then is all that is known."""
    window = Window(late.report, early.now_us, late.now_us)
    if (early.pid, early.start_us) != (late.pid, late.start_us):
        window.notes.append("ovs-vswitchd was restarted")
        # If it was started before, it is another one, not a new one.
        if late.start_us >= early.now_us:
            window.accounts = late.accounts
            window.totals = late.totals or _sum_up(late.accounts.values())
        return window

    cleared = False
    for key, account in late.accounts.items():
        old = early.accounts.get(key)
        if old is None:
            # It is new, or others had taken more time, so that it was omitted.
            if (account.since_us or 0) >= early.now_us or not early.omitted:
                window.accounts[key] = account
        elif old.since_us != account.since_us:
            cleared = True
            window.notes.append(f"{key.name or key.kind} was cleared, or made "
                                "again")
            window.accounts[key] = account
        else:
            try:
                window.accounts[key] = account.since(old)
            except (Negative, Unmergeable) as e:
                cleared = True
                window.notes.append(f"{key.name or key.kind} counts again "
                                    f"({e})")
                window.accounts[key] = account

    sums = _sum_up(window.accounts.values())
    for key, total in late.totals.items():
        old = early.totals.get(key)
        try:
            if old is None:
                window.totals[key] = total
            elif (total.since_us != old.since_us
                  or (cleared and total.since_us is None)):
                if not cleared:
                    window.notes.append("an account that is not listed was "
                                        "cleared")
                window.totals[key] = _after_clear(early, late, window, key)
            else:
                window.totals[key] = total.since(old)
        except (Negative, Unmergeable):
            window.notes.append("cleared")
            window.totals[key] = sums.get(key) or Account(key)
    if not late.totals:
        window.totals = sums
    return window


def _after_clear(early: Reply, late: Reply, window: Window,
                 key: Key) -> Account:
    """Returns the sum 'key' of what happened when an account was cleared: the
    listed accounts' and, as that has not been cleared, the deleted ones'."""
    total = _sum_up(window.accounts.values()).get(key) or Account(key)
    deleted, old = late.deleted.get(key), early.deleted.get(key)
    if deleted and old and deleted.since_us != old.since_us:
        total.merge(deleted)
    elif deleted:
        remainder = deleted.since(old) if old else deleted.copy()
        # What accounts that were made again had when they were deleted is
        # not new.
        for account_key, account in early.accounts.items():
            now = late.accounts.get(account_key)
            if (sum_key(account) == key
                    and (now is None or now.since_us != account.since_us)):
                remainder = remainder.since(account)
        total.merge(remainder)
    return total


def sum_key(account: Account) -> Key:
    """Returns the key of the sum that 'account' belongs to."""
    return Key(account.key.kind, "",
               "system" if "operate" in account.total.stages else "")


def _sum_up(accounts: Iterable[Account]) -> Dict[Key, Account]:
    totals: Dict[Key, Account] = {}
    for account in accounts:
        key = sum_key(account)
        if key in totals:
            totals[key].merge(account)
            totals[key].accounts += account.accounts
        else:
            totals[key] = Account(key)
            totals[key].merge(account)
    return totals


def threads(accounts: Iterable[Account]) -> Dict[str, Body]:
    """Returns what each thread did in 'accounts', of one kind."""
    found: Dict[str, Body] = {}
    for account in accounts:
        _merge(found, account.threads)
    return found


def kind_title(key: Key) -> str:
    """Returns what the events of a sum are called."""
    if key.kind == "upcall":
        return ("upcalls (kernel)" if key.datapath
                else "upcalls (userspace)")
    return {"burst": "bursts", "iteration": "main loop",
            "update": "interface statistics", "command": "appctl commands",
            "call": "Netlink calls", "round": "revalidator rounds",
            "share": "revalidator threads",
            "message": "OpenFlow messages"}.get(key.kind, key.kind)
