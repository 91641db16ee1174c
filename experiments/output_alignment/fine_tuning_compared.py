"""Runs against one another on the same text: how many times the other's perplexity is one's, and could it be chance?

    d_s = mean over streams and lengths of (nll - nll of the other), of seed s        ratio = exp(mean d_s)

Both runs of a seed have seen the same rows in the same order, so they are compared in pairs; the 95 % interval is Student's
over the seeds. It is wide for three of them, and speaks of these streams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from experiments.output_alignment.fine_tuning_grid import LENGTHS, Setting
from experiments.output_alignment.fine_tuning_records import Result

LONG = tuple(factor for factor in LENGTHS if factor > 1)
HELPS, HARMS, UNDECIDED = "helps", "harms", "undecided"


@dataclass(frozen=True)
class Mean:
    """Of a few values, one a seed."""

    value: float
    low: float | None  # ends of its 95 % interval; None of a single value
    high: float | None
    seeds: int

    @property
    def sign(self) -> int:
        """-1 or 1 where the whole interval is below or above 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


def mean_of(values: Sequence[float]) -> Mean:
    """With Student's interval."""
    from scipy.stats import t

    centre, n = fmean(values), len(values)
    if n == 1:
        return Mean(centre, None, None, 1)
    half = float(t.ppf(0.975, n - 1)) * stdev(values) / math.sqrt(n)
    return Mean(centre, centre - half, centre + half, n)


@dataclass(frozen=True)
class Ratio:
    """Of one's perplexity to the other's."""

    value: float
    low: float | None
    high: float | None
    seeds: int
    lower: float  # share of seeds and streams on which one's is the lower

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return UNDECIDED
        return HELPS if self.high < 1 else HARMS if self.low > 1 else UNDECIDED


@dataclass(frozen=True)
class Point:
    """Runs of all seeds after so many steps."""

    setting: Setting
    alpha: float
    steps: int

    @property
    def without(self) -> Point:
        """The same with alpha 0."""
        return Point(self.setting.without, 0.0, self.steps)


class Outcome:
    """All results, by what they are of."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._of: dict[Point, dict[int, Result]] = {}
        for one in results:
            point = Point(one.run.setting, one.alpha, one.steps)
            self._of.setdefault(point, {})[one.seed] = one

    @property
    def settings(self) -> list[Setting]:
        return list(dict.fromkeys(point.setting for point in self._of))

    def results(self, point: Point) -> dict[int, Result]:
        return self._of.get(point, {})

    def perplexity(self, point: Point, factor: int) -> float | None:
        """Over all seeds and streams; None where a run is missing or not finite."""
        found = [_streams(one, factor) for one in self.results(point).values()]
        return math.exp(fmean(map(fmean, found))) if found and all(found) else None

    def ratio(self, one: Point, other: Point, factors: Sequence[int] = LONG) -> Ratio | None:
        """Of the seeds that both have; None where there are none, or where a loss is not finite."""
        differences, lower = [], []
        for seed, ours in self.results(one).items():
            theirs = self.results(other).get(seed)
            if theirs is None:
                continue
            apart = [_apart(_streams(ours, factor), _streams(theirs, factor)) for factor in factors]
            if not all(apart):
                return None
            differences.append(fmean(map(fmean, apart)))
            lower += [fmean(stream) < 0 for stream in zip(*apart, strict=True)]
        if not differences:
            return None
        mean = mean_of(differences)
        low, high = (None if end is None else math.exp(end) for end in (mean.low, mean.high))
        return Ratio(math.exp(mean.value), low, high, mean.seeds, fmean(lower))

    def measure(self, point: Point, name: str) -> float | None:
        """Mean over seeds of `sce` or `kl`."""
        found = [getattr(one, name) for one in self.results(point).values()]
        return fmean(found) if found and None not in found else None

    def difference(self, one: Point, other: Point, name: str) -> Mean | None:
        """Of `sce` or `kl`, one less the other, over the seeds that both have."""
        theirs = self.results(other)
        pairs = [
            (getattr(ours, name), getattr(theirs[seed], name)) for seed, ours in self.results(one).items() if seed in theirs
        ]
        values = [a - b for a, b in pairs if a is not None and b is not None]
        return mean_of(values) if values and len(values) == len(pairs) else None


def _streams(result: Result, factor: int) -> list[float]:
    return result.nll[LENGTHS.index(factor)]


def _apart(ours: list[float], theirs: list[float]) -> list[float]:
    """Empty where one of them is."""
    return [a - b for a, b in zip(ours, theirs, strict=True)] if ours and theirs else []
