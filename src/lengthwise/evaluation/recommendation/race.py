"""A race on paired samples: all methods answer the same questions, and those that are clearly behind are asked no more.

A method is behind another where it loses more questions than it wins by a sign test. The level is shared among all pairs and
rounds (Bonferroni), so that the chance to drop the best one in the whole race is at most `LEVEL`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

LEVEL = 0.05


def still_in(scores: Mapping[str, Sequence[float]], tests: int) -> list[str]:
    """Names of the methods that stay in the race, by falling mean score; of equals the one named first leads."""
    order = sorted(scores, key=lambda name: -fmean(scores[name]))
    leader = scores[order[0]]
    return [name for name in order if not is_behind(scores[name], leader, LEVEL / tests)]


def is_behind(scores: Sequence[float], other: Sequence[float], level: float) -> bool:
    """Whether `scores` are worse than `other` on the same questions by more than chance (sign test)."""
    from scipy.stats import binomtest

    wins = sum(mine > theirs for mine, theirs in zip(scores, other, strict=True))
    losses = sum(mine < theirs for mine, theirs in zip(scores, other, strict=True))
    return losses > 0 and float(binomtest(wins, wins + losses, 0.5, "less").pvalue) < level


def pairs(names: int) -> int:
    """How many pairs of methods can be compared, which all share the level; at least one."""
    return max(1, names * (names - 1) // 2)
