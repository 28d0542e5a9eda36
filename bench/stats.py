# SPDX-License-Identifier: Apache-2.0
"""Ratios of paired measurements, and how far to believe them.

Whatever the distribution, the median of what is measured lies between the kth
least and the kth greatest of n independent values unless n - k + 1 of them or
more are on the same side of it, so that it is known how often it does: that is
the coverage of the interval."""

from __future__ import annotations

import math
from statistics import median
from typing import NamedTuple, Sequence

CONFIDENCE = 0.95


class Median(NamedTuple):
    """The median of some values.  The interval from 'low' to 'high' has the
    true one with the probability 'coverage'."""
    median: float
    low: float
    high: float
    coverage: float


def coverage(n: int, k: int) -> float:
    """Returns the probability that the median is between the 'k'th least and
    the 'k'th greatest of 'n' values."""
    return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2 ** n


def interval(values: Sequence[float]) -> Median:
    """Returns the median of 'values', and the shortest interval between two of
    them, as far from the least as from the greatest, that has the true median
    with a probability of at least CONFIDENCE; if there is none, from the least
    to the greatest."""
    n, k = len(values), 1
    while k < (n + 1) // 2 and coverage(n, k + 1) >= CONFIDENCE:
        k += 1
    ordered = sorted(values)
    return Median(median(values), ordered[k - 1], ordered[n - k],
                  coverage(n, k))


def ratio(above: Sequence[float], below: Sequence[float]) -> Median:
    """Returns above[i] / below[i], over all pairs."""
    if len(above) != len(below) or not above:
        raise ValueError("pairs are needed")
    return interval([a / b for a, b in zip(above, below)])
