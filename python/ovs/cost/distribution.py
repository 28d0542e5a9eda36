# SPDX-License-Identifier: Apache-2.0
"""Distributions of times and numbers, as lib/cost-histogram.c keeps them."""

from __future__ import annotations

import bisect
import math
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

SCALE = 3                       # log2 of buckets per doubling.
MIN_EXP = -30                   # Lowest edge, 2**-30 s.
MAX_EXP = 6                     # Highest edge, 2**6 s.
N_EDGES = ((MAX_EXP - MIN_EXP) << SCALE) + 1
OTLP_OFFSET = MIN_EXP << SCALE  # OTLP's index of bucket 1.

OVERFLOW = N_EDGES              # The bucket of what is above all edges.

PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9))

# Upper edge, inclusive, of each bucket but the last one, in ns.  None is so
# near to a whole number that the last digit of a power matters.
EDGES: Tuple[int, ...] = tuple(
    int(1e9 * 2.0 ** (b / (1 << SCALE) + MIN_EXP)) for b in range(N_EDGES))

# Numbers are in the same buckets.  Several are too narrow for any number: here
# are the others, each of which has one number up to MAX_EXACT.
NUMBERS: Tuple[int, ...] = tuple(b for b in range(N_EDGES)
                                 if not b or EDGES[b] > EDGES[b - 1])
BOUNDS: Tuple[int, ...] = tuple(EDGES[b] for b in NUMBERS)
MAX_EXACT = 11
MAX = 1 << 100                  # No sum of counts of hosts is as high.


class Unmergeable(ValueError):
    """Two distributions are not of the same thing."""


class Negative(ValueError):
    """Something that only grows has become less."""


def bucket_of(value: int) -> int:
    """Returns the bucket that a time, in ns, or a number falls into."""
    return bisect.bisect_left(EDGES, value)


def nearest_rank(percent: float, count: int) -> int:
    """Returns the rank, from 1, that 'percent' percent of 'count' have."""
    # 'percent' and 99.9 / 100 are not exact in binary: without the correction
    # the product can be a hair above a whole number.
    rank = math.ceil(percent / 100 * count
                     * (1 - 4 * sys.float_info.epsilon))
    return max(rank, 1)


class Distribution:
    """Times of one stage, in ns, or numbers, with exact sums.

    'buckets' has the count of each bucket that is not empty, or is None if
    they are not known.  'min' and 'max' of a difference are known to the
    bucket only, unless there was a new one: 'min_exact' and 'max_exact' tell.
    If 'apart', the stage is not part of its event.
    """

    __slots__ = ("unit", "sampled", "apart", "count", "sum", "min", "max",
                 "min_exact", "max_exact", "buckets", "given")

    def __init__(self, unit: str = "ns", sampled: bool = False,
                 apart: bool = False) -> None:
        self.unit = unit
        self.sampled = sampled
        self.apart = apart
        self.count = 0
        self.sum = 0
        self.min = 0
        self.max = 0
        self.min_exact = True
        self.max_exact = True
        self.buckets: Optional[Dict[int, int]] = {}
        self.given: Dict[str, float] = {}

    @property
    def is_time(self) -> bool:
        return self.unit == "ns"

    @staticmethod
    def from_json(json: Dict[str, Any]) -> Distribution:
        """Returns a stage as it is in a reply.  Raises ValueError, KeyError or
        TypeError if it is none."""
        d = Distribution(str(json["unit"]), bool(json["sampled"]),
                         bool(json.get("apart")))
        d.count = natural(json["count"])
        d.sum = natural(json["sum"])
        hist = json.get("histogram")
        if d.count:
            d.min = natural(json["min"])
            d.max = natural(json["max"])
            d.given = {name: float(json[name]) for name, _ in PERCENTILES}
        if hist is None:
            d.buckets = None if d.count else {}
        else:
            d.buckets = _buckets(hist)
        if d.buckets is not None and sum(d.buckets.values()) != d.count:
            raise ValueError("the buckets do not add up to the count")
        return d

    def to_json(self) -> Dict[str, Any]:
        """Returns the opposite of from_json()."""
        json: Dict[str, Any] = {
            "unit": self.unit, "sampled": self.sampled, "apart": self.apart,
            "count": self.count, "sum": self.sum}
        if self.count:
            json.update(min=self.min, max=self.max, mean=self.mean)
            for name, percent in PERCENTILES:
                json[name] = self.percentile(percent)
        if self.buckets is not None:
            used = [b for b in self.buckets if 0 < b < OVERFLOW]
            first = min(used) if used else 1
            last = max(used) if used else 0
            json["histogram"] = {
                "scale": SCALE,
                "offset": OTLP_OFFSET + first - 1 if used else 0,
                "bucket_counts": [self.buckets.get(b, 0)
                                  for b in range(first, last + 1)],
                "zero_count": self.buckets.get(0, 0),
                "overflow": self.buckets.get(OVERFLOW, 0)}
        return json

    def numbers(self) -> Tuple[List[int], List[int]]:
        """Returns bounds of numbers, and counts, one more of which is of what
        is above all bounds."""
        buckets = self.buckets or {}
        end = bisect.bisect_left(NUMBERS, max(buckets, default=0)) + 1
        return (list(BOUNDS[:end]), [buckets.get(b, 0) for b in NUMBERS[:end]]
                + [buckets.get(OVERFLOW, 0)])

    def add(self, value: int) -> None:
        """Counts 'value'."""
        assert self.buckets is not None
        self.min = min(self.min, value) if self.count else value
        self.max = max(self.max, value)
        self.count += 1
        self.sum += value
        b = bucket_of(value)
        self.buckets[b] = self.buckets.get(b, 0) + 1

    def copy(self) -> Distribution:
        d = Distribution(self.unit, self.sampled, self.apart)
        d.merge(self)
        d.given = dict(self.given)
        return d

    def merge(self, other: Distribution) -> None:
        """Adds 'other', without any loss."""
        if other.unit != self.unit:
            raise Unmergeable(f"{self.unit} and {other.unit}")
        if not other.count:
            return
        if not self.count or other.min <= self.min:
            self.min_exact = other.min_exact or (
                self.count > 0 and self.min == other.min and self.min_exact)
            self.min = other.min
        if not self.count or other.max >= self.max:
            self.max_exact = other.max_exact or (
                self.count > 0 and self.max == other.max and self.max_exact)
            self.max = other.max
        self.sampled = self.sampled or other.sampled
        self.count += other.count
        self.sum += other.sum
        self.given = {}
        if self.buckets is None or other.buckets is None:
            self.buckets = None
        else:
            for b, n in other.buckets.items():
                self.buckets[b] = self.buckets.get(b, 0) + n

    def since(self, earlier: Distribution) -> Distribution:
        """Returns what was added after 'earlier'.  Raises Negative if this is
        not what 'earlier' has become."""
        d = Distribution(self.unit, self.sampled, self.apart)
        if earlier.unit != self.unit:
            raise Unmergeable(f"{self.unit} and {earlier.unit}")
        d.count = self.count - earlier.count
        d.sum = self.sum - earlier.sum
        if d.count < 0 or d.sum < 0:
            raise Negative("a sum has become less")
        if self.buckets is None or earlier.buckets is None:
            d.buckets = None if d.count else {}
        else:
            d.buckets = {}
            for b in self.buckets.keys() | earlier.buckets.keys():
                n = self.buckets.get(b, 0) - earlier.buckets.get(b, 0)
                if n < 0:
                    raise Negative("a bucket has become less")
                elif n:
                    d.buckets[b] = n
        if not d.count:
            if d.sum or d.buckets:
                raise Negative("a sum has changed without an event")
            return d
        d._set_extremes(self, earlier)
        return d

    def _set_extremes(self, late: Distribution, early: Distribution) -> None:
        """Sets the extremes of the difference of 'late' and 'early'."""
        if not early.count:
            self.min, self.max = late.min, late.max
            return
        # A new extreme is one of the difference, an old one need not be.
        low, high = late.min, late.max
        new_low, new_high = late.min < early.min, late.max > early.max
        if self.buckets:
            if not new_low:
                b = min(self.buckets)
                if b:
                    low = max(low, EDGES[b - 1] + 1)
            if not new_high and max(self.buckets) != OVERFLOW:
                high = min(high, EDGES[max(self.buckets)])
        self.min, self.max = low, max(low, high)
        self.min_exact, self.max_exact = new_low, new_high

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def representative(self, b: int) -> float:
        """Returns what a value in bucket 'b' is taken for."""
        if b == OVERFLOW:
            value = float(self.max)
        elif b == 0:
            return 0.0
        elif self.is_time:
            mid = 1e9 * 2.0 ** (b / 8 + MIN_EXP) / math.sqrt(2 ** 0.125)
            value = min(max(mid, EDGES[b - 1] + 1.0), float(EDGES[b]))
        else:
            return float(min(EDGES[b], self.max))
        return min(max(value, float(self.min)), float(self.max))

    def percentile(self, percent: float) -> float:
        """Returns what 'percent' percent do not exceed, by nearest rank."""
        if not self.count:
            return 0.0
        if self.buckets is None:
            for name, p in PERCENTILES:
                if p == percent and name in self.given:
                    return self.given[name]
            raise ValueError("there are no histograms")
        rank = nearest_rank(percent, self.count)
        if rank >= self.count:
            return float(self.max)
        seen = 0
        for b in sorted(self.buckets):
            seen += self.buckets[b]
            if seen >= rank:
                return self.representative(b)
        return float(self.max)

    def steps(self) -> Iterator[Tuple[float, float, int]]:
        """Yields lower edge, upper edge and count of each bucket in use, in
        order.  What has no upper edge ends at the maximum."""
        for b in sorted(self.buckets or {}):
            n = (self.buckets or {})[b]
            yield (float(EDGES[b - 1]) if b else 0.0,
                   float(EDGES[b] if b < N_EDGES else self.max), n)


def natural(value: Any) -> int:
    """Returns a count of a reply.  Raises ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not (
            0 <= value < MAX):
        raise ValueError(f"{value!r} is no count")
    return value


def _buckets(hist: Dict[str, Any]) -> Dict[int, int]:
    """Returns the buckets of a histogram."""
    if hist.get("scale", SCALE) != SCALE:
        raise ValueError(f"a histogram of scale {hist['scale']}")
    buckets = {}
    first = hist.get("offset", 0) - OTLP_OFFSET + 1
    for b, n in enumerate(hist.get("bucket_counts", ()), first):
        if natural(n):
            if not 0 < b < N_EDGES:
                raise ValueError("a bucket that there can't be")
            buckets[b] = n
    for b, name in (0, "zero_count"), (OVERFLOW, "overflow"):
        if natural(hist.get(name, 0)):
            buckets[b] = hist[name]
    return buckets
