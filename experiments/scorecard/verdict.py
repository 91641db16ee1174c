"""What a result says about a claim: a figure with its interval out of result files, and the verdict that follows from it.

reproduced    the interval lies where the claim has it, in the paper's own setting
reduced       it does so on a smaller or another model
refuted       the interval lies wholly elsewhere
undecided     the interval holds both, or ends on the border
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from experiments._lib.paired import paired
from lengthwise.records.intervals import Z

VALUES = ("value", "mean", "ratio", "difference")


@dataclass(frozen=True)
class Figure:
    """A number and the ends of its 95 % interval; without an interval both are the number itself."""

    value: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        return self.low < self.high


def figure(entry: Any) -> Figure:
    """Of a number, of an entry with `low` and `high`, or of a list, whose mean has that of the differences to 0."""
    if isinstance(entry, list):
        return _paired(entry, [0.0] * len(entry))
    if isinstance(entry, dict):
        value = next(entry[name] for name in VALUES if isinstance(entry.get(name), int | float))
        return Figure(value, entry["low"], entry["high"])
    return Figure(entry, entry, entry)


def less(one: Any, other: Any) -> Figure:
    """The difference: of two lists, paired by place, or of two figures of which nothing else is known.

    Lists are of the same samples, or of texts that one seed made at two lengths: the interval holds whether a pair has much in
    common or nothing, because no text is in two pairs. That of two figures is made of their own as if their samples had nothing
    in common (Newcombe 1998), which is too wide where they are the same.
    """
    if isinstance(one, list):
        if len(one) != len(other):
            raise ValueError(f"{len(one)} samples against {len(other)}: give two lists of the same samples")
        return _paired(one, other)
    a, b = figure(one), figure(other)
    value = a.value - b.value
    return Figure(
        value, value - math.hypot(a.value - a.low, b.high - b.value), value + math.hypot(a.high - a.value, b.value - b.low)
    )


def over(one: Any, other: Any) -> Figure:
    """The ratio: of two numbers, without an interval, or of two lists as in `less`, the geometric mean."""
    if not isinstance(one, list):
        return figure(one / other)
    ratio = less([math.log(value) for value in one], [math.log(value) for value in other])
    return Figure(*(math.exp(end) for end in (ratio.value, ratio.low, ratio.high)))


def verdict(measured: Figure, above: float | None = None, below: float | None = None, own: bool = False) -> str:
    """Whether a figure lies above one number, below another, or both; `own` says that the setting is the paper's."""
    if above is None and below is None:
        raise ValueError("a claim needs `above` or `below`: without them no verdict could fail")
    low, high = -math.inf if above is None else above, math.inf if below is None else below
    if measured.low > low and measured.high < high:
        return "reproduced" if own else "reduced"
    # Without an interval a number that does not lie where the claim has it lies elsewhere
    outside = measured.high < low or measured.low > high or not measured.has_interval
    return "refuted" if outside else "undecided"


def widened(measured: Figure, figures: int) -> Figure:
    """The figure as one of so many, any of which could decide: ends where Bonferroni's correction puts a normal one's."""
    further = NormalDist().inv_cdf(1 - 0.025 / figures) / Z
    low, high = (measured.value + further * (end - measured.value) for end in (measured.low, measured.high))
    return Figure(measured.value, low, high)


def noisy(measured: Figure, noise: float) -> Figure:
    """A ratio of two models, each trained with one seed; `noise` is the standard deviation of a logarithm over seeds.

    Both models might have had other seeds, so that the ratio's is sqrt 2 times as large, and 1.96 of those hold 95 %.
    """
    seeds = Z * math.sqrt(2) * noise
    low, high = (math.hypot(math.log(end / measured.value), seeds) for end in (measured.low, measured.high))
    return Figure(measured.value, measured.value * math.exp(-low), measured.value * math.exp(high))


def _paired(one: Sequence[Any], other: Sequence[Any]) -> Figure:
    pair = paired(dict(enumerate(map(_number, one))), dict(enumerate(map(_number, other))))
    if pair is None:
        raise ValueError("a list without samples tells nothing")
    return Figure(pair.difference, pair.low, pair.high)


def _number(entry: float | Sequence[float]) -> float:
    """A sample's score, or the mean of those that belong together."""
    return entry if isinstance(entry, int | float) else statistics.fmean(entry)
