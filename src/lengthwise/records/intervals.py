"""The 95 % interval of a mean score.

Scores of 0 and 1 get Wilson's interval, which is honest for few samples and near 0 and 1. Other scores get Student's interval
of the mean, clipped to [0, 1]; where they do not vary at all, or there is only one, Wilson's again: for a given mean no
scores between 0 and 1 vary more than zeros and ones.
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
    """(mean, low, high) of paired differences by Student's interval; one difference, or equal ones, tell no interval."""
    from scipy.stats import t

    n, mean = len(differences), statistics.fmean(differences)
    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(differences) / math.sqrt(n) if n > 1 else math.inf
    return mean, max(-1.0, mean - half), min(1.0, mean + half)


def wilson(mean: float, n: int) -> tuple[float, float]:
    """The ends of Wilson's interval of a share, from n samples."""
    centre = (mean + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2))
    # Rounding must neither move the ends that are exact nor leave the range of scores
    return (0.0 if mean == 0 else max(0.0, centre - half)), (1.0 if mean == 1 else min(1.0, centre + half))
