# SPDX-License-Identifier: Apache-2.0
"""Ratios of paired measurements, and how far to believe them."""

from __future__ import annotations

import math
import random
from statistics import median
from typing import Dict, List, NamedTuple, Optional, Sequence

N_RESAMPLES = 10000


class Ratio(NamedTuple):
    """The ratio of two variants over a number of pairs.

    'low' and 'high' are the 95% confidence interval of the median; 'p' is
    that of a sign test, the probability of so many pairs on one side if there
    were no difference at all."""
    n: int
    median: float
    low: float
    high: float
    minimum: float
    maximum: float
    p: float

    def as_dict(self) -> Dict[str, object]:
        return dict(self._asdict())


def sign_test(n_above: int, n_below: int) -> float:
    """Returns the two-sided probability of a split at least as uneven."""
    n = n_above + n_below
    tail = sum(math.comb(n, k) for k in range(min(n_above, n_below) + 1))
    return min(1.0, 2 * tail / 2 ** n)


def bootstrap(values: Sequence[float]) -> List[float]:
    """Returns the 95% confidence interval of the median of 'values'."""
    rng = random.Random(len(values))            # Same data, same answer.
    medians = sorted(median(rng.choices(values, k=len(values)))
                     for _ in range(N_RESAMPLES))
    return [medians[int(N_RESAMPLES * q)] for q in (0.025, 0.975)]


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Returns above[i] / below[i], over all pairs."""
    if len(above) != len(below) or not above:
        raise ValueError("pairs are needed")
    ratios = [a / b for a, b in zip(above, below)]
    low, high = bootstrap(ratios)
    return Ratio(len(ratios), median(ratios), low, high, min(ratios),
                 max(ratios), sign_test(sum(r > 1 for r in ratios),
                                        sum(r < 1 for r in ratios)))


def verdict(r: Ratio, budget: Optional[float]) -> str:
    """Returns what 'r' says, in words.  'budget' is how much above 1 it may
    be; None if there is to be no difference that can be measured."""
    if budget is None:
        if r.low <= 1 <= r.high or r.p > 0.05:
            return "within noise"
        return "lower than noise explains" if r.high < 1 \
            else "higher than noise explains"
    limit = f"{budget:.0%}"
    if r.median > 1 + budget:
        return f"over {limit}"
    if r.high > 1 + budget:
        return f"within {limit}, but not by its interval"
    return f"within {limit}"
