# SPDX-License-Identifier: Apache-2.0
"""ovs-cost doctor: what is wrong with a switch, and what to do about it."""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
import time
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from ovs.cost import model, text
from ovs.cost.record import Poller, warn
from ovs.cost.recording import Recording
from ovs.cost.rules import RULES, SEVERITIES, Case
from ovs.cost.target import Target


def diagnose(case: Case) -> Iterator[Dict[str, Any]]:
    """Yields, for each rule that is true, the object that is worst off."""
    for rule in RULES:
        numbers = max(rule.condition(case) if rule.condition else (),
                      key=lambda n: float(n["share"]), default=None)
        if numbers:
            advice = numbers.pop("advice", "") or rule.advice
            yield {"rule": rule.name, "severity": rule.severity,
                   "sentence": text.printable(rule.sentence.format(**numbers)),
                   "numbers": numbers, "advice": advice,
                   "commands": [f"ovs-appctl {command}" for command
                                in rule.commands.split(", ")],
                   "more": "topics/{}, \"{}\"".format(*rule.link)}


def cases(recording: Recording) -> Iterator[Tuple[str, Case]]:
    """Yields what each source was doing while it was recorded."""
    processors = {h.get("host", ""): int(h.get("processors", 0))
                  for h in recording.headers}
    for source in recording.sources():
        windows, clocks = {}, []
        for report in recording.reports():
            window = model.add_up(recording.windows(source, report))
            if window:
                windows[report] = window
                replies = recording.replies[source, report]
                clocks = [r.head.get("clock", {}).get("source", "")
                          for r in (replies[0], replies[-1])]
        yield source, Case(
            windows, recording.limits.get(source, [{}])[-1],
            recording.threads.get(source, []),
            {what: rows(replies[0], replies[-1]) for (of, what), replies
             in recording.tops.items() if of == source},
            clocks, processors.get(source.split("/")[0], 0))


def rows(first: Dict[str, Any], last: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Returns the rows of 'last', a reply to cost-top, without what they had
    in 'first', with shares of events.  "least" is the share that a row has
    whatever the samples are."""
    old = {row["name"]: row for row in first["rows"]}
    n = last["all"]["events"] - first["all"]["events"]
    if first is last or first["pid"] != last["pid"] or n < 0:
        old, n = {}, last["all"]["events"]
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
    for, as cost-top has it.  Without samples, 'events' are exact."""
    return 1.96 * math.sqrt(
        max(events * (events / samples - 1), 0)) if samples > 0 else 0.0


def findings(recording: Recording) -> List[Dict[str, Any]]:
    """Returns what is wrong with all sources, worst first."""
    return sorted((dict(finding, source=source.strip("/"))
                   for source, case in cases(recording)
                   for finding in diagnose(case)),
                  key=lambda f: (SEVERITIES.index(f["severity"]),
                                 -f["numbers"]["share"]))


def watch(targets: Sequence[Target], seconds: float, last: str,
          recording: Recording) -> List[str]:
    """Adds what 'targets' do in the next 'seconds', or did in the 'last' ones
    if that is not empty, to 'recording'.  Returns what went wrong."""
    recording.headers.append({"processors": os.cpu_count() or 0})
    pollers = [Poller(target, model.REPORTS, 100) for target in targets]
    options = ["-last", last] if last else []
    for wait in (0.0,) if last else (seconds, 0.0):
        for poller in pollers:
            for line in poller.round(False, *options):
                if "reply" in line:
                    recording.add(f"/{poller.target.name}", line["reply"])
        if all(poller.failed for poller in pollers):
            break
        if wait and sys.stderr.isatty():
            print(f"looking for {wait:g} s ...", file=sys.stderr)
        time.sleep(wait)
    for poller in pollers:
        unknown = sorted(command for _, command in poller.unknown)
        if unknown:
            warn(f"{poller.target.name}: an older version, without "
                 + ", ".join(unknown))
    return [poller.failed.replace(
        "unknown option \"-last\"", f"{poller.target.name}: an older version, "
        "without \"-last\"") for poller in pollers if poller.failed]


def render(found: List[Dict[str, Any]], many: bool) -> Iterator[str]:
    """Yields lines of text, with sources if there are many."""
    for finding in found:
        where = text.printable(finding["source"]) + ": " if many else ""
        yield f"{where}{finding['sentence']}."
        for line in (finding["advice"].replace("`", ""),
                     "See: " + "; ".join(finding["commands"]),
                     f"More: {finding['more']}"):
            for part in textwrap.wrap(line, 71, break_on_hyphens=False):
                yield f"    {part}"


def run(recording: Recording, errors: List[str], as_json: bool) -> int:
    """Prints what is wrong, worst first.  Returns the exit status."""
    found = findings(recording)
    errors += sorted({f"{source.strip('/')}: accounting is off"
                      for (source, _), replies in recording.replies.items()
                      if not replies[-1].sample_interval})
    for error in errors:
        warn(error)
    if as_json:
        print(json.dumps({"version": model.VERSION, "errors": errors,
                          "findings": found}))
    else:
        for line in render(found, len(recording.sources()) > 1):
            print(line)
        if not (found or errors) and recording.replies and \
                sys.stderr.isatty():
            print("nothing is wrong, as far as this can see", file=sys.stderr)
    return 2 if errors or not recording.replies else 1 if found else 0
