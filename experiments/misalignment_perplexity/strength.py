"""How strongly a measure goes along with quality over a handful of models, and what chance would give.

Every order of the models is tried (5,040 for seven): p is the share of orders whose coefficient is at least as far from 0, and
the interval is the coefficient less the middle 95 % of theirs, so that it leaves out 0 where chance seldom gives as much.
Whether one measure goes along more than another is tried by exchanging the two measures' ranks, model by model, in every way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata

from lengthwise.errors import require

FEWEST, MOST = 5, 8  # models, below which nothing is said and beyond which there are too many orders
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Strength:
    """A coefficient, or a difference of two."""

    value: float
    p: float  # two-sided
    low: float  # ends of its permutation interval
    high: float


def spearman(x: Array, y: Array) -> float:
    a, b = (rankdata(column) - (len(x) + 1) / 2 for column in (x, y))
    return float((a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum()))


def kendall(x: Array, y: Array) -> float:
    return float(kendalltau(x, y).statistic)


KINDS: dict[str, Callable[[Array, Array], float]] = {"Spearman": spearman, "Kendall": kendall}


def strength(kind: str, measure: Sequence[float], quality: Sequence[float]) -> Strength | None:
    """None where models are too few, or all alike."""
    x, y = np.asarray(measure, float), np.asarray(quality, float)
    if not _telling(x, y):
        return None
    # Ranks are what both kinds look at: with them Spearman's is a product that one matrix gives for all orders
    ranks = rankdata(y)[_orders(len(y))]
    if kind == "Spearman":
        a = rankdata(x) - (len(x) + 1) / 2
        centred = ranks - (len(y) + 1) / 2
        drawn = centred @ a / math.sqrt((a * a).sum() * (centred[0] * centred[0]).sum())
    else:
        above = np.triu(np.ones((len(x), len(x)), bool), 1)
        signs = np.sign(x[:, None] - x)[above]
        others = np.sign(ranks[:, :, None] - ranks[:, None, :])[:, above]
        drawn = others @ signs / math.sqrt((signs != 0).sum() * (others[0] != 0).sum())
    return _among(float(drawn[0]), drawn, 1.0)


def more(kind: str, one: Sequence[float], other: Sequence[float], quality: Sequence[float], sign: int = 1) -> Strength | None:
    """By how much `one` goes along with the quality more than `other`; `sign` is -1 where it should fall with them."""
    x, z, y = (np.asarray(column, float) for column in (one, other, quality))
    if not (_telling(x, y) and _telling(z, y)):
        return None
    x, z = rankdata(x), rankdata(z)
    drawn = []
    for swapped in itertools.product((False, True), repeat=len(x)):
        a, b = np.where(swapped, z, x), np.where(swapped, x, z)
        drawn.append(sign * (KINDS[kind](a, y) - KINDS[kind](b, y)))
    return _among(drawn[0], np.asarray(drawn), 2.0)


def _telling(x: Array, y: Array) -> bool:
    require(len(x) <= MOST, f"{len(x)} rows have too many orders to try them all; give at most {MOST}")
    return len(x) >= FEWEST and min(len(np.unique(x)), len(np.unique(y))) > 1


def _among(value: float, drawn: Array, most: float) -> Strength:
    known = drawn[np.isfinite(drawn)]
    # Values that chance gives, the outer ones: few orders have steps between them
    low, high = (float(np.quantile(known, q, method=how)) for q, how in ((0.025, "lower"), (0.975, "higher")))
    p = float(np.mean(np.abs(known) >= abs(value) - 1e-9))
    # Rounding of the arithmetic must not carry an end past 0
    ends = max(-most, value - high), min(most, value - low)
    return Strength(round(value, 9), p, *(round(end, 9) for end in ends))


@cache
def _orders(count: int) -> NDArray[np.int64]:  # [count!, count]
    """All orders, the first of which leaves everything where it is."""
    return np.asarray(list(itertools.permutations(range(count))))
