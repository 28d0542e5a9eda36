# SPDX-License-Identifier: Apache-2.0
"""ovs-cost doctor: what is wrong with a switch, and what to do about it."""

from __future__ import annotations

import json
import math
import shlex
import sys
import textwrap
import time
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from ovs.cost import model, processes, text
from ovs.cost.case import SEVERITIES, Case
from ovs.cost.faultrules import FAULT_RULES
from ovs.cost.record import Poller, warn
from ovs.cost.recording import Recording
from ovs.cost.rules import RULES
from ovs.cost.stock import Stock, Watch
from ovs.cost.stockrules import STOCK_RULES
from ovs.cost.target import Target

ALL_RULES = {rule.name: rule for rule in (*RULES, *FAULT_RULES,
                                           *STOCK_RULES)}
LOOK_S = 0.25                   # Between two looks at clients.
WINDOWS = {10.0: "10s", 60.0: "1m", 300.0: "5m", 900.0: "15m"}


def diagnose(case: Case) -> Iterator[Dict[str, Any]]:
    """Yields, for each rule that is true, the object that is worst off."""
    for rule in ALL_RULES.values():
        numbers = max(rule.condition(case) if rule.condition else (),
                      key=lambda n: float(n["share"]), default=None)
        if numbers:
            advice = numbers.pop("advice", "") or rule.advice
            yield {"rule": rule.name, "severity": rule.severity,
                   "sentence": text.printable(rule.sentence.format(**numbers)),
                   "numbers": numbers, "advice": advice,
                   "commands": [
                       ("" if command.startswith("ovs-") else "ovs-appctl ")
                       + command.replace("BRIDGE", shlex.quote(text.printable(
                           str(numbers.get("name", "BRIDGE")))))
                       for command in rule.commands.split(", ") if command
                       and (case.windows or "cost" not in command)],
                   "more": "Documentation/topics/{}.rst, \"{}\"".format(
                       *rule.link) if rule.link else ""}


def cases(recording: Recording) -> Iterator[Tuple[str, Case]]:
    """Yields what each source was doing while it was recorded."""
    for source in sorted({*recording.sources(), *recording.stock}):
        stock = recording.stock.get(source, Stock())
        replies = recording.threads.get(source, [])
        if replies and len(stock.threads) < 2:
            stock.threads = replies
        windows = {report: model.add_up(recording.windows(source, report))
                   for report in recording.reports()}
        yield source, Case(
            {report: window for report, window in windows.items() if window},
            recording.limits.get(source, [{}])[-1],
            replies or stock.threads,
            {what: rows(replies[0], replies[-1]) for (of, what), replies
             in recording.tops.items() if of == source}, stock)


def rows(first: Dict[str, Any], last: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Returns the rows of 'last', a list, without what they had in 'first',
    with shares of events.  "least" is the share that a row has
    whatever the samples are."""
    old = {row["name"]: row for row in first["rows"]}
    n = sum(row["events"] for row in last["rows"])
    before_n = sum(row["events"] for row in first["rows"])
    if first is last or first["pid"] != last["pid"] or n < before_n:
        old = {}
    else:
        n -= before_n
    found = []
    for row in last["rows"]:
        before = old.get(row["name"], {"events": 0, "mean_ns": 0, "error": 0,
                                       "samples": 0})
        events = row["events"] - before["events"]
        if events > 0:
            known = events - (row["error"] - before["error"])
            error = sampling_error(known, row["samples"] - before["samples"])
            n = max(n, events)
            found.append({
                "name": row["name"], "events": events, "sampling_error": error,
                "share": events / n,
                "least": (known - error) / n,
                "ns": (row["events"] * row["mean_ns"]
                       - before["events"] * before["mean_ns"])})
    return found


def sampling_error(events: int, samples: int) -> float:
    """Returns half of the 95% interval of 'events' that so many samples stand
    for, as a reply has it.  Without samples, 'events' are exact."""
    return 1.96 * math.sqrt(
        max(events * (events / samples - 1), 0)) if samples > 0 else 0.0


def findings(recording: Recording) -> List[Dict[str, Any]]:
    """Returns what is wrong with all sources, worst first, each followed by
    what it causes, whose "because" is the name of its rule."""
    found = [dict(finding, source=source.strip("/"), because="")
             for source, case in cases(recording)
             for finding in diagnose(case)]
    for effect in found:
        effect["because"] = next((
            cause["rule"] for cause in found
            if cause["source"] == effect["source"] and not cause["because"]
            and effect["rule"] in ALL_RULES[cause["rule"]].causes.split(", ")
            ), "")
    # Who makes a thread work comes before who takes its CPU.
    found.sort(key=lambda f: (SEVERITIES.index(f["severity"]),
                              f["rule"] == "starved" and not
                              f["numbers"]["name"].startswith("pmd-"),
                              -f["numbers"]["share"]))
    by_rule = {(each["source"], each["rule"]): each for each in found}

    def root(each: Dict[str, Any]) -> Dict[str, Any]:
        while each["because"]:
            each = by_rule[each["source"], each["because"]]
        return each

    return [each for first in found if not first["because"] for each in (
        first, *(f for f in found if f["because"] and root(f) is first))]


def watch(targets: Sequence[Target], seconds: float, last: str,
          recording: Recording) -> List[str]:
    """Adds what 'targets' do in the next 'seconds', or did in the 'last' ones
    if that is not empty, to 'recording'.  Returns what went wrong."""
    # On a starved machine, it may have taken seconds to begin.
    end = time.monotonic() + seconds - min(processes.age(), seconds / 2)
    watches = [Watch(target) for target in targets]
    pollers = [Poller(target, model.REPORTS, 100) for target in targets]
    for each in watches:
        each.begin(bool(last))
    # The switch may know the window itself.
    options = last or WINDOWS.get(seconds, "")
    if not options:
        ask(watches, pollers, recording, "")
    if not last and not all(each.failed for each in watches):
        if sys.stderr.isatty():
            print(f"looking for {seconds:g} s ...", file=sys.stderr)
        while time.monotonic() < end:
            for each in watches:
                each.look(seconds)
            time.sleep(min(LOOK_S, max(end - time.monotonic(), 0)))
    ask(watches, pollers, recording, options)
    for each in watches:
        stock = each.end()
        if last and not each.failed and (
                f"/{each.target.name}" not in recording.sources()):
            stock.notes.append("without accounting, --last gives only rates "
                               "of the last minute, and no threads: most "
                               "troubles show without it only")
        if not each.failed or stock.threads:
            recording.stock[f"/{each.target.name}"] = stock
    return [(each.failed or poller.failed).replace(
        "unknown option \"-last\"", f"{poller.target.name}: an older version, "
        "without \"-last\"") for each, poller in zip(watches, pollers)
        if each.failed or poller.failed]


def ask(watches: Sequence[Watch], pollers: Sequence[Poller],
        recording: Recording, last: str) -> None:
    """Adds the reports of targets, of windows if 'last' is not empty."""
    for each, poller in zip(watches, pollers):
        if not each.failed:
            options = ["-last", last] * bool(last)
            lines = poller.round(False, *options)
            if "Broken pipe" in poller.failed:      # A new process has come.
                lines = poller.round(False, *options)
            for line in lines:
                if "reply" in line:
                    recording.add(f"/{poller.target.name}", line["reply"])
            if "is not a valid command" in poller.failed:
                poller.failed = ""          # It has no accounting.


def render(found: List[Dict[str, Any]], many: bool) -> Iterator[str]:
    """Yields lines of text, with sources if there are many."""
    for finding in found:
        where = text.printable(finding["source"]) + ": " if many else ""
        if finding["because"]:
            yield from textwrap.wrap(
                f"So: {finding['sentence']}.", 75, initial_indent="    ",
                subsequent_indent="        ", break_on_hyphens=False)
            continue
        yield f"{where}{finding['sentence']}."
        commands = [f"{'     ' if i else 'See: '}{command}"     # To be copied.
                    for i, command in enumerate(finding["commands"])]
        for line in (*textwrap.wrap(finding["advice"].replace("`", ""), 71,
                                    break_on_hyphens=False), *commands,
                     *textwrap.wrap(finding["more"] and
                                    f"More: {finding['more']}", 71)):
            yield f"    {line}"


def without(recording: Recording) -> str:
    """Returns what switches without accounting lack, or ""."""
    versions = {str(stock.last.get("version", "")).split(" ")[-1].strip()
                for source, stock in recording.stock.items()
                if source not in recording.sources()}
    names = ", ".join(sorted(versions - {""}))
    return (f"Open vSwitch {names}".strip() + " has no accounting: with it, "
            "the doctor would also know what upcalls, revalidation and the "
            "main loop spend their time on, and for which port, rule, message "
            "or command.") if versions else ""


def off(recording: Recording) -> List[str]:
    """Returns what to say of targets whose accounting is off."""
    return sorted({f"{source.strip('/')}: accounting is off "
                   "(other_config:cost-accounting)"
                   for (source, _), replies in recording.replies.items()
                   if not replies[-1].sample_interval})


def run(recording: Recording, errors: List[str], as_json: bool) -> int:
    """Prints what is wrong, worst first.  Returns the exit status."""
    found = findings(recording)
    for error in errors + [
            f"{line}, so this has only what any Open vSwitch shows"
            for line in off(recording)] + [
            f"{source[source.startswith('/'):]}: {note}" for source, stock
            in recording.stock.items() for note in stock.notes]:
        warn(error)
    if as_json:
        print(json.dumps({"version": model.VERSION, "errors": errors,
                          "findings": found}))
    else:
        sources = {*recording.sources(), *recording.stock}
        for line in render(found, len(sources) > 1):
            print(line)
        if found and without(recording):
            print(without(recording))
        if not (found or errors or any(
                stock.notes for stock in recording.stock.values())) and (
                    sources and sys.stderr.isatty()):
            print("nothing is wrong, as far as the doctor can see. "
                  f"{without(recording)}".strip(), file=sys.stderr)
    return 2 if errors or not (recording.replies or recording.stock) \
        else 1 if found else 2 * any(
            stock.unread for stock in recording.stock.values())
