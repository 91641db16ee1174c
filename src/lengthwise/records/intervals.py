"""The 95 % interval of a mean score, and of the mean difference of two methods on the same samples.

Scores of 0 and 1 get Wilson's interval, which is honest for few samples and near 0 and 1. Other scores get Student's interval
of the mean, clipped to [0, 1]; where they do not vary at all, or there is only one, Wilson's again: for a given mean no
scores between 0 and 1 vary more than zeros and ones.

Differences of scores of 0 and 1 get Fay and Lumbard's interval (2021) for paired proportions: it leaves out 0 just where
McNemar's exact test gives less than 5 %, and holds the truth at least 19 times of 20, also where few pairs or none differ.
Other differences get the same in steps of their root mean square where at most half of the pairs differ (means over several
lengths, mostly), because Student's is too narrow there, and Student's where more do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# The normal distribution's 97.5 % point
Z = 1.959963984540054
ROUNDING = 1e-12  # scores that differ by no more do not differ


def mean_interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of at least one score."""
    n, mean = len(scores), statistics.fmean(scores)
    spread = statistics.stdev(scores) if n > 1 else 0.0
    if spread < ROUNDING or set(scores) <= {0.0, 1.0}:
        return mean, *wilson(mean, n)
    from scipy.stats import t

    half = float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n)
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def paired_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of at least one difference of two scores of the same sample."""
    n, mean = len(differences), statistics.fmean(differences)
    steps = in_steps(differences)
    if steps is not None:
        better, worse, step = steps
        low, high = fay_lumbard(better, worse, n)
        return mean, step * low, step * high
    spread = statistics.stdev(differences) if n > 1 else 0.0
    if spread < ROUNDING:
        # As wide as for two that never differ
        half = fay_lumbard(0, 0, n)[1]
    else:
        from scipy.stats import t

        half = float(t.ppf(0.975, n - 1)) * spread / math.sqrt(n)
    return mean, mean - half, mean + half


def in_steps(differences: Sequence[float]) -> tuple[float, float, float] | None:
    """(better, worse, step): as many equal steps up and down as pairs differ, with the same sum and sum of squares.

    Of scores of 0 and 1 these are the pairs themselves; None for other scores where more than half of the pairs differ.
    """
    changed = sum(abs(d) > ROUNDING for d in differences)
    if 2 * changed > len(differences) and not set(differences) <= {-1.0, 0.0, 1.0}:
        return None
    step = math.sqrt(math.fsum(d * d for d in differences) / changed) if changed else 1.0
    # Rounding must not leave a trace of a step where all go one way
    better = round((changed + math.fsum(differences) / step) / 2, 9)
    return better, changed - better, step


def fay_lumbard(better: float, worse: float, n: int) -> tuple[float, float]:
    """The ends of Fay and Lumbard's interval of a difference of shares: better in so many of n pairs, worse in so many.

    The share of pairs that differ and the share of these that are better have Clopper and Pearson's confidence distributions;
    an end is the 2.5 % point of the difference that both together give.
    """
    return _lower_end(better, worse, n), -_lower_end(worse, better, n)


def _lower_end(better: float, worse: float, n: int) -> float:
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import betainc, betaincinv

    changed, error = better + worse, 0.025
    if better == 0:
        return -float(betaincinv(changed + 1, n - changed, 1 - error)) if changed < n else -1.0
    # The exact test, one-sided: the end is above 0 just where this is below 2.5 %
    below = float(betainc(better, worse + 1, 0.5))
    middles = (np.arange(400) + 0.5) / 400
    if below < error:
        # Given that more are better than worse: by how much, at equally likely places
        lead = 2 * betaincinv(better, worse + 1, below + (1 - below) * middles) - 1

        def excess(end: float) -> float:
            return below + (1 - below) * float(betainc(changed, n - changed + 1, np.minimum(end / lead, 1)).mean()) - error

        return float(brentq(excess, 0, 1))
    if changed == n:
        return 2 * float(betaincinv(better, worse + 1, error)) - 1
    lag = 1 - 2 * betaincinv(better, worse + 1, below * middles)

    def shortfall(end: float) -> float:
        return below * (1 - float(betainc(changed + 1, n - changed, np.minimum(end / lag, 1)).mean())) - error

    return -float(brentq(shortfall, 0, 1))


def wilson(mean: float, n: float) -> tuple[float, float]:
    """The ends of Wilson's interval of a share, from n samples; n need not be whole."""
    centre = (mean + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2))
    # Rounding must neither move the ends that are exact nor leave the range of scores
    return (0.0 if mean == 0 else max(0.0, centre - half)), (1.0 if mean == 1 else min(1.0, centre + half))
