"""The 95 % interval of a mean score, and of the mean difference of two methods on the same samples.

Scores of 0 and 1 get Wilson's interval, which is honest for few samples and near 0 and 1. Other scores get Student's interval
of the mean, clipped to [0, 1]; where they do not vary at all, or there is only one, Wilson's again: for a given mean no
scores between 0 and 1 vary more than zeros and ones.

Differences of scores of 0 and 1 get Agresti and Min's interval (2005) for paired proportions, which does not shrink to nothing
where the two never differ. Others get Student's; where all are the same, Agresti and Min's for two that never differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# The normal distribution's 97.5 % point
Z = 1.959963984540054


def mean_interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of at least one score."""
    n, mean = len(scores), statistics.fmean(scores)
    spread = statistics.stdev(scores) if n > 1 else 0.0
    if spread == 0.0 or set(scores) <= {0.0, 1.0}:
        return mean, *wilson(mean, n)
    from scipy.stats import t

    half = float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n)
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def paired_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of at least one difference of two scores of the same sample."""
    n, mean = len(differences), statistics.fmean(differences)
    if set(differences) <= {-1.0, 0.0, 1.0}:
        return mean, *agresti_min(differences.count(1.0), differences.count(-1.0), n)
    spread = statistics.stdev(differences) if n > 1 else 0.0
    if spread == 0.0:
        half = Z / (n + 2)
    else:
        from scipy.stats import t

        half = float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n)
    return mean, mean - half, mean + half


def agresti_min(better: int, worse: int, n: int) -> tuple[float, float]:
    """The ends of Agresti and Min's interval of a difference of shares: better in so many of n pairs, worse in so many."""
    # Half a sample is added to each cell of the table of two by two
    centre = (better - worse) / (n + 2)
    half = Z * math.sqrt(better + worse + 1 - (better - worse) ** 2 / (n + 2)) / (n + 2)
    return max(-1.0, centre - half), min(1.0, centre + half)


def wilson(mean: float, n: int) -> tuple[float, float]:
    """The ends of Wilson's interval of a share, from n samples."""
    centre = (mean + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2))
    # Rounding must neither move the ends that are exact nor leave the range of scores
    return (0.0 if mean == 0 else max(0.0, centre - half)), (1.0 if mean == 1 else min(1.0, centre + half))
