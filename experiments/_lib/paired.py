"""Two methods on the same samples: how much better is one, and could it be chance?

Of scores of 0 and 1 the interval is Agresti and Min's (2005) for paired proportions, which does not shrink to nothing where the
two never differ, and the p-value McNemar's exact one. Of other scores from 0 to 1 both are Student's for the mean difference;
where all differences are the same the interval is Agresti and Min's for two that never differ, because no score moves by more
than 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest, t

from lengthwise.records.intervals import Z


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
    both = [(score, other[key]) for key, score in one.items() if key in other]
    if not both:
        return None
    n = len(both)
    better, worse = (sum(pair == want for pair in both) for want in ((1.0, 0.0), (0.0, 1.0)))
    # Half a sample is added to each cell of the table of two by two
    centre = (better - worse) / (n + 2)
    half = Z * math.sqrt(max(0.0, better + worse + 1 - (better - worse) ** 2 / (n + 2))) / (n + 2)
    p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return Paired(n, better, worse, (better - worse) / n, max(-1.0, centre - half), min(1.0, centre + half), p)


def paired_means(one: Mapping[Any, float], other: Mapping[Any, float]) -> Paired | None:
    """For scores between 0 and 1; None where they have no sample in common."""
    differences = [score - other[key] for key, score in one.items() if key in other]
    if not differences:
        return None
    n, mean = len(differences), statistics.fmean(differences)
    better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    error = statistics.stdev(differences) / math.sqrt(n) if n > 1 else 0.0
    if error == 0.0:
        half, p = Z / (n + 2), float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    else:
        half, p = float(t.ppf(0.975, n - 1)) * error, float(2 * t.sf(abs(mean) / error, n - 1))
    return Paired(n, better, worse, mean, mean - half, mean + half, p)


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
