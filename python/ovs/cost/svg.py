# SPDX-License-Identifier: Apache-2.0
"""Drawings as SVG.

Colors are classes, which STYLE defines: s0 to s9 for what is drawn, "axis",
"grid" and "label" for the rest.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple
from xml.sax import saxutils

from ovs.cost import text
from ovs.cost.distribution import Distribution

N_COLORS = 10

# Variables of STYLE.
LIGHT = {"back": "#fff", "fore": "#1c2430", "dim": "#5c6675",
         "line": "#d9dee6", "card": "#f6f8fb", "heat": "#1f5fbf",
         "s0": "#1f6fc4", "s1": "#d9731a", "s2": "#2a8f4e", "s3": "#b8336a",
         "s4": "#7a52c7", "s5": "#8a6d1c", "s6": "#0d8c95", "s7": "#6b7683",
         "s8": "#c2410c", "s9": "#3f6212"}
DARK = {"back": "#12161c", "fore": "#e4e9f0", "dim": "#98a3b3",
        "line": "#2c3440", "card": "#1a2029", "heat": "#6fb1ff",
        "s0": "#6fb1ff", "s1": "#ffa657", "s2": "#6bd08b", "s3": "#ff86b3",
        "s4": "#b79bff", "s5": "#e3c567", "s6": "#56d4dd", "s7": "#a3afbf",
        "s8": "#ff8b6b", "s9": "#a8cc6a"}

STYLE = """
svg .grid { stroke: var(--line); stroke-width: 1; fill: none; }
svg .axis { stroke: var(--dim); stroke-width: 1; fill: none; }
svg .label { fill: var(--dim); font: 13px system-ui, sans-serif; }
svg .line { fill: none; stroke: currentColor; stroke-width: 1.8;
  stroke-linejoin: round; }
svg .area, svg .bar { fill: currentColor; fill-opacity: 0.85; }
svg .box { fill: currentColor; fill-opacity: 0.35; stroke: currentColor; }
svg .whisker { stroke: currentColor; fill: none; }
svg .median { stroke: var(--fore); stroke-width: 2; }
svg .dot { fill: currentColor; }
svg .ring { fill: none; stroke: currentColor; stroke-width: 1.5; }
svg .heat { fill: var(--heat); }
""" + "".join(f".s{i} {{ color: var(--s{i}); }}\n" for i in range(N_COLORS))
WIDTH = 720
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 10, 30


def escape(name: str) -> str:
    """Returns 'name' as text or an attribute of XML."""
    return saxutils.escape(text.printable(name), {'"': "&quot;"})


def variables(colors: Dict[str, str]) -> str:
    """Returns the declarations of 'colors', LIGHT or DARK."""
    return " ".join(f"--{name}: {value};" for name, value in colors.items())


def time_label(ns: float) -> str:
    """Returns a short time, such as "20 us"."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale * 0.9995:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.3g} ns"


def number_label(value: float) -> str:
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"


def clock_label(time_us: float) -> str:
    return text.when(int(time_us))[11:19]


class Axis(NamedTuple):
    """Maps values to a coordinate."""

    position: Callable[[float], float]
    ticks: List[Tuple[float, str]]


def log_axis(low: float, high: float, start: float, end: float) -> Axis:
    """Returns a logarithmic axis for times from 'low' to 'high'."""
    low = max(low, 1.0)
    high = max(high, low * 1.01)
    first, last = math.log10(low), math.log10(high)
    if last - first < 0.5:
        first, last = first - 0.25, last + 0.25
    scale = (end - start) / (last - first)

    def position(value: float) -> float:
        return start + (math.log10(max(value, 10 ** first)) - first) * scale

    decades = last - first
    steps = (1, 2, 5) if decades <= 3 else (1,)
    every = max(1, int(decades // 8) + 1)
    ticks = []
    for exp in range(math.floor(first), math.ceil(last) + 1):
        for step in steps:
            value = step * 10.0 ** exp
            if (first <= math.log10(value) <= last + 1e-9
                    and exp % every == 0):
                ticks.append((value, time_label(value)))
    return Axis(position, ticks)


def linear_axis(high: float, start: float, end: float, low: float = 0.0,
                least_step: float = 0.0) -> Axis:
    span = high - low if high > low else 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= 5:
            step = max(step * factor, least_step)
            break
    ticks = []
    value = math.ceil(low / step) * step
    while value <= low + span * 1.0001:
        ticks.append((value, number_label(value)))
        value += step
    return Axis(lambda v: start + (v - low) / span * (end - start), ticks)


def time_axis(start_us: int, end_us: int) -> Axis:
    span = max(end_us - start_us, 1)
    ticks = [(start_us + span * i / 5, clock_label(start_us + span * i / 5))
             for i in range(6)]
    return Axis(lambda t: LEFT + (t - start_us) / span * (
        WIDTH - RIGHT - LEFT), ticks)


def _open(height: float, title: str, width: float = WIDTH) -> List[str]:
    return [f'<svg viewBox="0 0 {width:g} {height:g}" role="img" '
            f'aria-label="{escape(title)}">'
            f"<title>{escape(title)}</title>"]


def _frame(x: Axis, y: Optional[Axis], height: float,
           right: float = WIDTH - RIGHT, left: float = LEFT) -> List[str]:
    """Returns grid and labels."""
    bottom = height - BOTTOM
    parts = []
    for n, (value, label) in enumerate(x.ticks):
        px = x.position(value)
        anchor = ("end" if px > right - 18 else
                  "start" if px < left + 2 and n == 0 else "middle")
        parts.append(f'<path class="grid" d="M{px:.1f} {TOP}V{bottom}"/>'
                     f'<text class="label" x="{px:.1f}" y="{bottom + 16}" '
                     f'text-anchor="{anchor}">{escape(label)}</text>')
    for value, label in y.ticks if y else ():
        py = y.position(value) if y else 0
        parts.append(f'<path class="grid" d="M{left} {py:.1f}H{right}"/>'
                     f'<text class="label" x="{left - 6}" y="{py + 4:.1f}" '
                     f'text-anchor="end">{escape(label)}</text>')
    parts.append(f'<path class="axis" d="M{left} {TOP}V{bottom}H{right}"/>')
    return parts


def color(i: int) -> str:
    return f"s{i % N_COLORS}"


def percentile_curves(
        colored: Sequence[Tuple[int, Tuple[str, Distribution]]]) -> str:
    """The time that each share of events did not exceed."""
    height = 300
    stages = [stage for _, stage in colored]
    most = max(s.count for _, s in stages)
    nines = min(max(math.log10(most), 1.0), 6.0)
    right = WIDTH - RIGHT

    def px(fraction_above: float) -> float:
        n = -math.log10(max(fraction_above, 10 ** -nines))
        return LEFT + n / nines * (right - LEFT)

    marks = [(1.0, "0%"), (0.5, "50%"), (0.1, "90%"), (0.01, "99%"),
             (0.001, "99.9%"), (1e-4, "99.99%"), (1e-5, "99.999%"),
             (1e-6, "99.9999%")]
    x = Axis(px, [(f, t) for f, t in marks if f >= 10 ** -nines * 0.999])
    y = log_axis(min(max(s.min, 1) for _, s in stages),
                 max(s.max for _, s in stages), height - BOTTOM, TOP)
    parts = _open(height, "Percentiles") + _frame(x, y, height)
    for i, (name, stage) in colored:
        points, seen, at = [], 0, float(LEFT)
        for _, upper, n in stage.steps():
            seen += n
            value = min(max(upper, stage.min), stage.max)
            points.append(f"{at:.1f},{y.position(value):.1f}")
            at = px(1 - seen / stage.count)
            points.append(f"{at:.1f},{y.position(value):.1f}")
        parts.append(f'<polyline class="line {color(i)}" points="'
                     + " ".join(points) + f'"><title>{escape(name)}</title>'
                     "</polyline>")
    return "".join(parts) + "</svg>"


def box_plots(stages: Sequence[Tuple[str, Distribution]]) -> str:
    """Boxes from the 25th to the 75th percentile, with the median, lines from
    the 1st to the 99th, and dots for the 99.9th and the maximum."""
    row, left = 32, 104
    height = TOP + row * len(stages) + BOTTOM
    x = log_axis(min(max(s.percentile(1), 1) for _, s in stages),
                 max(s.max for _, s in stages), left, WIDTH - RIGHT)
    parts = (_open(height, "Distribution of each stage")
             + _frame(x, None, height, left=left))
    for i, (name, stage) in enumerate(stages):
        y = TOP + row * i + row / 2
        p1, p25, p50, p75, p99, p999 = (
            x.position(stage.percentile(p)) for p in (1, 25, 50, 75, 99, 99.9))
        most = x.position(stage.max)
        tip = (f"{name}: " + ", ".join(
            f"p{p:g} {time_label(stage.percentile(p))}" for p in (
                1, 25, 50, 75, 99, 99.9)) + f", max {time_label(stage.max)}")
        c = color(i)
        parts.append(
            f'<g class="{c}"><title>{escape(tip)}</title>'
            f'<text class="label" x="{left - 8}" y="{y + 4:g}" '
            f'text-anchor="end">{escape(name)}</text>'
            f'<path class="whisker" d="M{p1:.1f} {y}H{p99:.1f}M{p1:.1f} '
            f'{y - 5}v10M{p99:.1f} {y - 5}v10"/>'
            f'<rect class="box" x="{p25:.1f}" y="{y - 8}" height="16" '
            f'width="{max(p75 - p25, 2):.1f}"/>'
            f'<path class="median" d="M{p50:.1f} {y - 8}v16"/>'
            f'<circle class="dot" cx="{p999:.1f}" cy="{y}" r="2.5"/>'
            f'<circle class="ring" cx="{most:.1f}" cy="{y}" r="3.5"/></g>')
    return "".join(parts) + "</svg>"


def histogram(name: str, stage: Distribution, color_index: int) -> str:
    """The counts of a distribution's buckets."""
    width, height, left = 350, 150, 46
    steps = list(stage.steps())
    if stage.is_time:
        x = log_axis(max(steps[0][0], 1), steps[-1][1], left, width - RIGHT)
        ticks = x.ticks
        while len(ticks) > 5:
            ticks = ticks[::2]
        x = Axis(x.position, ticks)
    else:
        low = min(upper for _, upper, _ in steps) - 1
        x = linear_axis(max(steps[-1][1], low + 1), left, width - RIGHT,
                        low=max(low, 0), least_step=1)
    most = max(n for _, _, n in steps)
    y = linear_axis(most, height - BOTTOM, TOP, least_step=1)
    parts = (_open(height, name, width)
             + _frame(x, y, height, width - RIGHT, left))
    label = time_label if stage.is_time else number_label
    for lower, upper, n in steps:
        a, b = x.position(max(lower, 0)), x.position(upper)
        top = y.position(n)
        parts.append(
            f'<rect class="bar {color(color_index)}" x="{a:.1f}" '
            f'y="{top:.1f}" width="{max(b - a - 0.5, 1):.1f}" '
            f'height="{max(height - BOTTOM - top, 0.5):.1f}"><title>'
            f"up to {escape(label(upper))}: {n:,}</title></rect>")
    return "".join(parts) + "</svg>"


class Column(NamedTuple):
    """A stretch of time, and what happened in it."""

    start_us: int
    end_us: int
    stage: Optional[Distribution]


def heat_map(columns: Sequence[Column]) -> str:
    """Time by latency: the darker, the more events."""
    height = 260
    used = [c.stage for c in columns if c.stage and c.stage.count]
    x = time_axis(columns[0].start_us, columns[-1].end_us)
    y = log_axis(min(max(s.min, 1) for s in used), max(s.max for s in used),
                 height - BOTTOM, TOP)
    parts = _open(height, "Time by latency") + _frame(x, y, height)
    most = max(n / (c.end_us - c.start_us) for c in columns if c.stage
               for _, _, n in c.stage.steps())
    for column in columns:
        if not column.stage:
            continue
        a, b = x.position(column.start_us), x.position(column.end_us)
        for lower, upper, n in column.stage.steps():
            high = y.position(max(upper, 1))
            low = y.position(max(lower, 1))
            rate = n / (column.end_us - column.start_us)
            heat = 0.12 + 0.88 * math.log1p(99 * rate / most) / math.log(100)
            parts.append(
                f'<rect class="heat" x="{a:.1f}" y="{high:.1f}" '
                f'width="{max(b - a, 0.8):.2f}" '
                f'height="{max(min(low, height - BOTTOM) - high, 1):.2f}" '
                f'fill-opacity="{heat:.2f}"><title>'
                f"{clock_label(column.start_us)}, up to "
                f"{time_label(upper)}: {n:,}</title></rect>")
    return "".join(parts) + "</svg>"


def stacked(times: Sequence[Tuple[int, int]], names: Sequence[str],
            values: Sequence[Sequence[float]], colors: Sequence[int]) -> str:
    """Areas on top of each other: values[i] and colors[i] are those of
    names[i]."""
    height = 220
    sums = [sum(v[t] for v in values) for t in range(len(times))]
    x = time_axis(times[0][0], times[-1][1])
    y = linear_axis(max(sums) or 1.0, height - BOTTOM, TOP)
    parts = _open(height, "Time of each stage") + _frame(x, y, height)
    base = [0.0] * len(times)
    for i, name in enumerate(names):
        top = [b + v for b, v in zip(base, values[i])]
        there, back = [], []
        for (start, end), low, high in zip(times, base, top):
            a, b = x.position(start), x.position(end)
            there += [f"{a:.1f},{y.position(high):.1f}",
                      f"{b:.1f},{y.position(high):.1f}"]
            back += [f"{a:.1f},{y.position(low):.1f}",
                     f"{b:.1f},{y.position(low):.1f}"]
        # Pairs in reverse order.
        points = there + back[::-1]
        parts.append(f'<polygon class="area {color(colors[i])}" points="'
                     + " ".join(points) + f'"><title>{escape(name)}</title>'
                     "</polygon>")
        base = top
    return "".join(parts) + "</svg>"


def lines(series: Sequence[Tuple[str, Sequence[Tuple[float, float]]]],
          start_us: int, end_us: int, step: bool = False,
          title: str = "Over time") -> str:
    """Lines over time."""
    height = 220
    values = [v for _, points in series for _, v in points]
    x = time_axis(start_us, end_us)
    # A number that moves in steps is a whole one.
    y = linear_axis(max(values) * 1.05 or 1.0, height - BOTTOM, TOP,
                    least_step=step)
    parts = _open(height, title) + _frame(x, y, height)
    for i, (name, points) in enumerate(series):
        path, last = [], None
        for when, v in points:
            a, b = x.position(when), y.position(v)
            if last is not None and step:
                path.append(f"{a:.1f},{last:.1f}")
            path.append(f"{a:.1f},{b:.1f}")
            last = b
        if len(points) == 1:
            path.append(f"{x.position(end_us):.1f},{last:.1f}")
        parts.append(f'<polyline class="line {color(i)}" points="'
                     + " ".join(path) + f'"><title>{escape(name)}</title>'
                     "</polyline>")
    return "".join(parts) + "</svg>"
