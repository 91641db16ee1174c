"""Two methods on the same samples: how much better is one, and could it be chance?

Intervals and p-values are lengthwise.records.intervals' and agree: 0 is left out just where p is below 0.05. Of scores of 0
and 1 p is McNemar's exact one; of others the same in equal steps where at most half of the pairs differ, else Student's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import betainc
from scipy.stats import t

from lengthwise.records.intervals import ROUNDING, in_steps, paired_interval


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
    """Scores by sample; None where they have no sample in common."""
    differences = [score - other[key] for key, score in one.items() if key in other]
    if not differences:
        return None
    n, better, worse = len(differences), sum(d > ROUNDING for d in differences), sum(d < -ROUNDING for d in differences)
    error = statistics.stdev(differences) / math.sqrt(n) if n > 1 else 0.0
    mean, low, high = paired_interval(differences)
    steps = in_steps(differences)
    if steps is not None:
        p = sign_test(*steps[:2])
    elif error < ROUNDING:
        # The interval is as wide as for two that never differ, which leaves out so much with this chance
        p = min(1.0, 2 * max(0.0, 1 - abs(mean)) ** n)
    else:
        p = float(2 * t.sf(abs(mean) / error, n - 1))
    return Paired(n, better, worse, mean, low, high, p)


def sign_test(better: float, worse: float) -> float:
    """The p-value of McNemar's exact test; counts need not be whole."""
    fewer, more = sorted((better, worse))
    return min(1.0, 2 * float(betainc(more, fewer + 1, 0.5))) if more else 1.0


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
