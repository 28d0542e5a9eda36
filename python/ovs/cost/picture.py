# SPDX-License-Identifier: Apache-2.0
"""All charts of a recording as one picture."""

from __future__ import annotations

import re
from typing import List, Sequence, Tuple

from ovs.cost import charts, svg
from ovs.cost.charts import Chart
from ovs.cost.recording import Recording

N_COLUMNS = 2
MARGIN = 20
PAD = 14                        # Within a card.
CHARACTER = 7.2                 # Of 13 px; to know where a legend goes on.
MAX_PNG = 32767                 # Pixels, in either direction.

STYLE = """
.back { fill: var(--back); }
.card { fill: var(--card); stroke: var(--line); }
.h1 { fill: var(--fore); font: bold 22px system-ui, sans-serif; }
.h2 { fill: var(--fore); font: bold 18px system-ui, sans-serif; }
.h3 { fill: var(--dim); font: bold 13px system-ui, sans-serif; }
.key { fill: currentColor; }
""" + svg.STYLE


class NoLibrary(Exception):
    """What makes a PNG is not installed."""


def _text(x: float, y: float, style: str, content: str) -> str:
    return (f'<text class="{style}" x="{x:g}" y="{y:g}">'
            f"{svg.escape(content)}</text>")


def _legend(names: Sequence[Tuple[str, int]], x: float, y: float,
            width: float) -> Tuple[str, float]:
    """Returns a legend, and the height that it takes."""
    parts, at, row = [], 0.0, 0
    for name, i in names:
        needed = 16 + CHARACTER * len(name) + 14
        if at and at + needed > width:
            at, row = 0.0, row + 1
        top = y + 18 * row
        parts.append(f'<rect class="key {svg.color(i)}" x="{x + at:g}" '
                     f'y="{top + 4:g}" width="10" height="10" rx="2"/>'
                     + _text(x + at + 15, top + 13, "label", name))
        at += needed
    return "".join(parts), 18.0 * (row + 1) if names else 0.0


def _card(chart: Chart, x: float, y: float) -> Tuple[str, float]:
    """Returns a chart with its top left corner at 'x' and 'y', and its
    height."""
    match = re.match(r'<svg viewBox="0 0 (\S+) (\S+)"', chart.drawing)
    assert match
    width, height = float(match[1]), float(match[2])
    top = y + PAD + 20
    drawing = (f'<svg x="{x + PAD:g}" y="{top:g}" width="{width:g}" '
               f'height="{height:g}"' + chart.drawing[len("<svg"):])
    legend, more = _legend(chart.legend, x + PAD, top + height, width)
    whole = PAD + 20 + height + more + PAD
    return (f'<rect class="card" x="{x:g}" y="{y:g}" rx="8" '
            f'width="{width + 2 * PAD:g}" height="{whole:g}"/>'
            + _text(x + PAD, y + PAD + 10, "h3", chart.title)
            + drawing + legend, whole)


def svg_of(recording: Recording, title: str, reports: Sequence[str]) -> str:
    """Returns an SVG file, in light colors, that needs no other."""
    column = svg.WIDTH + 2 * PAD + MARGIN
    width = MARGIN + N_COLUMNS * column
    y = MARGIN + 24.0
    parts: List[str] = [_text(MARGIN, y, "h1", title)]
    sources = recording.sources()
    n_sections = 0
    for source in sources:
        for report in reports:
            for section in charts.sections(recording, source, report):
                n_sections += 1
                y += 46
                parts.append(_text(MARGIN, y, "h2", section.title))
                y += 22
                parts.append(_text(MARGIN, y, "label", section.headline() + (
                    f" ({source})" if len(sources) > 1 else "")))
                y += 14
                content = section.charts()
                for i in range(0, len(content), N_COLUMNS):
                    row = [_card(chart, MARGIN + j * column, y) for j, chart
                           in enumerate(content[i:i + N_COLUMNS])]
                    parts += [card for card, _ in row]
                    y += max(height for _, height in row) + MARGIN
    if not n_sections:
        y += 40
        parts.append(_text(MARGIN, y, "label", "Nothing happened."))
    height = y + MARGIN
    style = re.sub(r"var\(--(\w+)\)", lambda m: svg.LIGHT[m[1]], STYLE)
    return ('<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}"><style>{style}</style>'
            f'<rect class="back" width="{width:g}" height="{height:g}"/>'
            + "".join(parts) + "</svg>\n")


def png_of(picture: str) -> bytes:
    """Returns what svg_of() made as a PNG file.

    Raises NoLibrary, or ValueError if it would be too large."""
    try:
        import cairosvg
    except (ImportError, OSError) as e:     # OSError: without libcairo.
        raise NoLibrary(
            f"a PNG needs CairoSVG ({e}): 'apt-get install python3-cairosvg' "
            "or 'pip install cairosvg'; --format svg needs nothing") from e
    match = re.search(r' height="([\d.]+)"', picture)
    assert match
    if float(match[1]) > MAX_PNG:
        raise ValueError("there are too many charts for one PNG; "
                         "--reports chooses some, --format svg has no limit")
    png: bytes = cairosvg.svg2png(bytestring=picture.encode())
    return png
