"""Two methods on the same samples: how much better is one, and could it be chance?

Intervals are lengthwise.records.intervals'; of scores of 0 and 1 the p-value is McNemar's exact one, of others Student's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest, t

from lengthwise.records.intervals import paired_interval


@dataclass(frozen=True)
class Paired:
    """One method against another on the samples that both have answered."""

    n: int  # samples
    better: int  # right where the other is wrong
    worse: int  # wrong where the other is right
    difference: float  # of the means, -1 to 1
    low: float  # lower end of its 95 % interval
    high: float  # upper end
    p: float  # of a split so uneven or worse, if neither were better

    @property
    def p_below(self) -> float:
        """One-sided: of a difference so far below 0 or further, if the method were no worse."""
        return self.p / 2 if self.difference < 0 else 1 - self.p / 2


def paired(one: Mapping[Any, float], other: Mapping[Any, float]) -> Paired | None:
    """For scores of 0 and 1, by sample; None where they have no sample in common."""
    return _paired(one, other, exact=True)


def paired_means(one: Mapping[Any, float], other: Mapping[Any, float]) -> Paired | None:
    """For any scores; None where they have no sample in common."""
    return _paired(one, other, exact=False)


def _paired(one: Mapping[Any, float], other: Mapping[Any, float], exact: bool) -> Paired | None:
    differences = [score - other[key] for key, score in one.items() if key in other]
    if not differences:
        return None
    n, better, worse = len(differences), sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    error = statistics.stdev(differences) / math.sqrt(n) if n > 1 else 0.0
    mean, low, high = paired_interval(differences)
    if exact or error == 0.0:
        p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    else:
        p = float(2 * t.sf(abs(mean) / error, n - 1))
    return Paired(n, better, worse, mean, low, high, p)


def p_of(value: float, low: float, high: float, freedom: int) -> float:
    """The p-value of a figure that would be 0 by chance alone, from its 95 % interval by Student's t."""
    half = value - low if value > 0 else high - value
    return 1.0 if value == 0 else float(2 * t.sf(abs(value) / half * float(t.ppf(0.975, freedom)), freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted for how many there are (Holm 1979), however they depend on one another."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = largest
    return adjusted


def compared(one: Mapping[Any, float], other: Mapping[Any, float]) -> Paired | None:
    """By what the scores are."""
    whole = {*one.values(), *other.values()} <= {0.0, 1.0}
    return (paired if whole else paired_means)(one, other)
