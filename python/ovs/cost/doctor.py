# SPDX-License-Identifier: Apache-2.0
"""ovs-cost doctor: what is wrong with a switch, and what to do about it."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from ovs.cost import model, text
from ovs.cost.record import Poller, warn
from ovs.cost.recording import Recording
from ovs.cost.rules import RULES, SEVERITIES, Case
from ovs.cost.target import CommandError, Target


def diagnose(case: Case) -> Iterator[Dict[str, Any]]:
    """Yields, for each rule that is true, the object that is worst off."""
    for rule in RULES:
        numbers = max(rule.condition(case) if rule.condition else (),
                      key=lambda n: float(n["share"]), default=None)
        if numbers:
            yield {"rule": rule.name, "severity": rule.severity,
                   "sentence": text.printable(rule.sentence.format(**numbers)),
                   "numbers": numbers, "advice": rule.advice,
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
            recording.threads.get(source, []), recording.tops.get(source, {}),
            clocks, processors.get(source.split("/")[0], 0))


def watch(targets: Sequence[Target], seconds: float,
          recording: Recording) -> List[str]:
    """Adds what 'targets' do in the next 'seconds' to 'recording'.  Returns
    what went wrong."""
    recording.headers.append({"processors": os.cpu_count() or 0})
    pollers = [Poller(target, model.REPORTS, 100) for target in targets]
    for wait in seconds, 0.0:
        for poller in pollers:
            for line in poller.round(False):
                if "reply" in line:
                    recording.add(f"/{poller.target.name}", line["reply"])
        if all(poller.failed for poller in pollers):
            break
        if wait and sys.stderr.isatty():
            print(f"looking for {wait:g} s ...", file=sys.stderr)
        time.sleep(wait)
    for poller in pollers:
        for what in ("port", "rule") if not poller.failed else ():
            try:
                reply = poller.target.command("upcall/cost-top", what)
                recording.tops.setdefault(f"/{poller.target.name}", {})[
                    what] = reply["rows"]
            except CommandError:
                pass                    # It does not have the command.
    return [poller.failed for poller in pollers if poller.failed]


def render(findings: List[Dict[str, Any]], many: bool) -> Iterator[str]:
    """Yields lines of text, with sources if there are many."""
    for finding in findings:
        where = text.printable(finding["source"]) + ": " if many else ""
        yield f"{where}{finding['sentence']}."
        for line in (finding["advice"].replace("`", ""),
                     "See: " + "; ".join(finding["commands"]),
                     f"More: {finding['more']}"):
            for part in textwrap.wrap(line, 75, break_on_hyphens=False):
                yield f"    {part}"


def run(recording: Recording, errors: List[str], as_json: bool) -> int:
    """Prints what is wrong, worst first.  Returns the exit status."""
    findings = [dict(finding, source=source.strip("/"))
                for source, case in cases(recording)
                for finding in diagnose(case)]
    findings.sort(key=lambda f: (SEVERITIES.index(f["severity"]),
                                 -f["numbers"]["share"]))
    errors += sorted({f"{source.strip('/')}: accounting is off"
                      for (source, _), replies in recording.replies.items()
                      if not replies[-1].sample_interval})
    for error in errors:
        warn(error)
    if as_json:
        print(json.dumps({"version": model.VERSION, "errors": errors,
                          "findings": findings}))
    else:
        for line in render(findings, len(recording.sources()) > 1):
            print(line)
    return 2 if errors or not recording.replies else 1 if findings else 0
