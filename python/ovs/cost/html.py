# SPDX-License-Identifier: Apache-2.0
"""A page with charts of a recording: self-contained, without network access or
scripts."""

from __future__ import annotations

from html import escape
from typing import Any, Dict, List, Sequence, Tuple

from ovs.cost import distribution as dist
from ovs.cost import charts, doctor, model, svg, text
from ovs.cost.charts import Chart, Section
from ovs.cost.model import Body
from ovs.cost.recording import Recording

MAX_ROWS = 20                   # Of tables.

STYLE = f"""
:root {{ color-scheme: light dark; {svg.variables(svg.LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{
  {svg.variables(svg.DARK)} }} }}
""" + """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 16px 20px 60px;
  font: 14px/1.45 system-ui, sans-serif; background: var(--back);
  color: var(--fore); }
h1 { font-size: 22px; margin: 8px 0 2px; }
h2 { font-size: 18px; margin: 36px 0 6px; padding-top: 12px;
  border-top: 1px solid var(--line); }
h3 { font-size: 13px; margin: 0 0 6px; color: var(--dim); font-weight: 600; }
p { margin: 4px 0 10px; color: var(--dim); }
nav a { margin-right: 14px; color: var(--s0); }
table { border-collapse: collapse; width: 100%; font-size: 13px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 6px; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
td.wrap { white-space: normal; text-align: left; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
.grid { display: grid; gap: 14px; margin: 12px 0;
  grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr)); }
.small { grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); }
.card { background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 12px 14px; min-width: 0; }
.meter { display: inline-block; width: 56px; height: 9px;
  background: var(--line); border-radius: 3px; vertical-align: 0; }
.meter i { display: block; height: 9px; border-radius: 3px;
  background: var(--s0); }
.legend { font-size: 12px; color: var(--dim); margin-top: 4px; }
.legend span { margin-right: 12px; white-space: nowrap; }
.legend i { display: inline-block; width: 10px; height: 10px;
  border-radius: 2px; margin-right: 4px; background: currentColor; }
svg { max-width: 100%; width: 100%; height: auto; display: block; }
details summary { cursor: pointer; color: var(--dim); margin: 10px 0; }
""" + svg.STYLE


def legend(names: Sequence[Tuple[str, int]]) -> str:
    return '<div class="legend">' + "".join(
        f'<span class="{svg.color(i)}"><i></i>{name_cell(name)}</span>'
        for name, i in names) + "</div>"


def card(title: str, body: str) -> str:
    return f'<div class="card"><h3>{name_cell(title)}</h3>{body}</div>'


def cards(content: Sequence[Chart], style: str) -> str:
    if not content:
        return ""
    return f'<div class="{style}">' + "".join(
        card(c.title, c.drawing + (legend(c.legend) if c.legend else ""))
        for c in content) + "</div>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of cells that are HTML already."""
    return ('<div class="scroll"><table><tr>'
            + "".join(f"<th>{escape(h)}</th>" for h in head) + "</tr>"
            + "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>"
                      for row in rows) + "</table></div>")


def meter(fraction: float) -> str:
    if fraction == 1:
        return "all"
    width = min(max(100 * fraction, 0), 100)
    return (f'<span class="meter"><i style="width:{width:.1f}%"></i></span> '
            f"{100 * fraction:.1f}%")


def name_cell(name: str) -> str:
    return escape(text.printable(name))


def stage_table(body: Body) -> str:
    """The table of a report, of stages in time, then of numbers."""
    rows = []
    sampled = {name for name, stage in body.stages.items()
               if text.estimate(stage, body.events)}
    for name, stage in body.stages.items():
        if stage.count:
            # Numbers in a bucket of several are not known as such.
            about = ("~" if not stage.is_time and stage.min != stage.max
                     and stage.max > dist.MAX_EXACT else "")
            rows.append(
                [name_cell(name) + (" *" if name in sampled else ""),
                 text.count(stage.count),
                 (text.us(stage.mean) if stage.is_time else
                  text.real(stage.mean).replace(".00", ""))]
                + [about + text.cell(stage, stage.percentile(p))
                   for _, p in dist.PERCENTILES]
                + [("" if stage.max_exact else "&le; ")
                   + text.cell(stage, stage.max),
                   "us" if stage.is_time else escape(stage.unit)])
    note = ("<p>* of a sample of the events, so the count is no rate</p>"
            if sampled else "")
    return table(["stage", "count", "mean"]
                 + [n for n, _ in dist.PERCENTILES] + ["max", "unit"],
                 rows) + note


def breakdown(what: str, bodies: Dict[str, Body]) -> str:
    """Who took how much."""
    lost = any(b.lost for b in bodies.values())
    total_time = sum(b.time_ns for b in bodies.values())
    rows = []
    ordered = sorted((i for i in bodies.items() if i[1].events),
                     key=lambda i: -i[1].time_ns)
    for name, body in ordered[:MAX_ROWS]:
        whole = body.whole
        if whole is None or not whole.count:
            times = ["", "", "", ""]
        else:
            times = [text.us(whole.mean), text.us(whole.percentile(50)),
                     text.us(whole.percentile(99)), text.us(whole.max)]
        rows.append([name_cell(name),
                     meter(body.time_ns / total_time if total_time else 0),
                     text.count(body.events)]
                    + times + ([text.count(body.lost)] if lost else []))
    if not rows:
        return ""
    more = ("" if len(ordered) <= MAX_ROWS else
            f"<p>and {len(ordered) - MAX_ROWS} more</p>")
    return card(f"By {what}", table(
        [what, "share of time", "events", "mean us", "p50", "p99", "max"]
        + (["lost"] if lost else []), rows) + more)


def counters(body: Body) -> str:
    """The counters, as bars."""
    parts = []
    for group, members in body.counters.items():
        total = sum(members.values())
        rows = [[name_cell(n), text.count(v), meter(v / total)]
                for n, v in members.items() if v]
        if rows:
            parts.append(card(group.capitalize(), table(["", "", ""], rows)))
    return f'<div class="grid small">{"".join(parts)}</div>' if parts else ""


def slowest(recording: Recording, source: str, report: str,
            body: Body) -> str:
    """The slowest events of a kind."""
    units = {name: stage.unit for name, stage in body.stages.items()}
    events: List[Tuple[str, Dict[str, Any]]] = []
    for account in recording.slowest.get((source, report), ()):
        if account["kind"] == body.kind:
            events += [(account["name"], e) for e in account["slowest"]]
    events.sort(key=lambda e: -e[1]["total_ns"])
    rows = []
    for name, event in events[:10]:
        stages = ", ".join(
            f"{n} " + (svg.time_label(v) if units.get(n) == "ns" else str(v))
            for n, v in event["stages"].items())
        rows.append([name_cell(name), svg.time_label(event["total_ns"]),
                     text.when(event["time_us"]), name_cell(event["thread"]),
                     name_cell(event["class"]),
                     escape(stages or "not split"),
                     name_cell(text.details(event))])
    if not rows:
        return ""
    html = table(["account", "total", "at", "thread", "class", "stages",
                  "what"], rows)
    # The two last ones may be long.
    return ("<details><summary>The slowest, since they were cleared"
            "</summary>" + html.replace("<td>", '<td class="wrap">')
            + "</details>")


def section(part: Section, anchor: str) -> str:
    """All about one kind of events."""
    account = part.account
    parts = [f'<h2 id="{anchor}">{name_cell(part.title)}</h2>',
             f"<p>{part.headline()}</p>", stage_table(account.total),
             cards(part.charts(), "grid"),
             cards(part.histograms(False), "grid small")]
    histograms = cards(part.histograms(True), "grid small")
    if histograms:
        parts.append("<details><summary>Histogram of each stage</summary>"
                     f"{histograms}</details>")
    of_kind = {k: a for k, a in part.total.accounts.items()
               if model.sum_key(a) == part.key}
    noun = model.OBJECTS.get(part.report, "account")
    parts.append('<div class="grid">' + "".join([
        breakdown("class", account.classes),
        breakdown("thread", model.threads(of_kind.values())),
        breakdown(noun, {k.name: a.total for k, a in of_kind.items()})
        if len(of_kind) > 1 else ""]) + "</div>")
    parts.append(counters(account.total))
    parts.append(slowest(part.recording, part.source, part.report,
                         account.total))
    return "".join(parts)


def headline(recording: Recording) -> str:
    """What was recorded, where and how."""
    rows = []
    for source in recording.sources():
        for report in recording.reports():
            replies = recording.replies.get((source, report))
            if not replies:
                continue
            last = replies[-1]
            clock = last.head.get("clock", {})
            rows.append([
                name_cell(source or "reply"), report,
                text.when(replies[0].now_us), text.when(last.now_us),
                str(len(replies)), name_cell(last.ovs_version),
                escape(str(clock.get("source", ""))),
                f"1 in {last.sample_interval}" if last.sample_interval
                else "off"])
    systems = sorted({str(h["system"]) for h in recording.headers
                      if "system" in h})
    return (f"<p>{escape(', '.join(systems))}</p>" if systems else "") + (
        "<details><summary>What was recorded</summary>"
        + table(["from", "report", "first", "last", "replies", "OVS", "clock",
                 "stages of"], rows) + "</details>")


def summary(recording: Recording, anchors: Dict[Tuple[str, str], str]) -> str:
    """What is wrong, with links to where it is seen."""
    lines = []
    for finding in doctor.findings(recording):
        report = finding["commands"][0].split()[1].split("/")[0]
        anchor = anchors.get((finding["source"], report))
        line = name_cell(f"{finding['source']}: {finding['sentence']}.")
        lines.append("<p>" + (f'<a href="#{anchor}">{line}</a> ' if anchor
                              else f"<b>{line}</b> ")
                     + name_cell(finding["advice"].replace("`", "")) + "</p>")
    return "".join(lines) or "<p>ovs-cost doctor finds nothing wrong.</p>"


def page(recording: Recording, title: str, reports: Sequence[str]) -> str:
    """Returns the page."""
    anchors: Dict[Tuple[str, str], str] = {}
    links: List[str] = []
    parts: List[str] = []
    sources = recording.sources()
    for n, source in enumerate(sources):
        if len(sources) > 1:
            parts.append(f"<h1>{name_cell(source)}</h1>")
        for report in reports:
            notes = set()
            for part in charts.sections(recording, source, report):
                anchor = escape(f"{report}-{part.key.kind}-"
                                f"{part.key.datapath}-{n}")
                if part.key.kind == "iteration":
                    anchors[source.strip("/"), report] = anchor
                anchors.setdefault((source.strip("/"), report), anchor)
                links.append(f'<a href="#{anchor}">'
                             f"{name_cell(part.title)}</a>")
                parts.append(section(part, anchor))
                notes.update(part.total.notes)
            if notes:
                parts.append("<p>" + escape(text.printable(
                    "; ".join(sorted(notes)[:8]))) + "</p>")
    if recording.errors:
        parts.append(f"<h2>Errors</h2><p>{len(recording.errors)}, the first: "
                     + name_cell(recording.errors[0].error) + "</p>")
    if not links:
        parts.append("<p>Nothing happened.</p>")
    return ('<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            '<meta http-equiv="Content-Security-Policy" content="default-src '
            "'none'; style-src 'unsafe-inline'; img-src data:\">"
            '<link rel="icon" href="data:,">'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
            f"<body><h1>{escape(title)}</h1>"
            f"{summary(recording, anchors) if links else ''}"
            f"{headline(recording)}"
            f"<nav>{' '.join(links)}</nav>{''.join(parts)}</body></html>\n")
