"""How strongly a measure goes along with long perplexity, and whether one measure does so more than another.

Intervals are 95 % bootstrap intervals: rows are drawn again with replacement, those of one owner together, since a method at
two lengths, or with another temperature on top, is not two methods. Both measures are losses, so what counts is the coefficient
with its sign: one that falls while perplexity rises is no better an indicator for being far from 0.

A sample is kept as how often it holds each row, w. Then ranks need no sorting: with the rows' values in order, the mean rank of
a value is the weight below it plus half of its own and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lengthwise.training.output_alignment.correlation import spearman

RESAMPLES = 2000
FEWEST = 5  # owners, below which nothing is said

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficient:
    """Of correlation, or a difference of two."""

    value: float
    low: float  # ends of its 95 % interval
    high: float


@dataclass(frozen=True)
class Strength:
    """Of one set of rows."""

    rows: int
    owners: int  # what was drawn again
    of: dict[str, Coefficient]  # measure -> with quality
    more: Coefficient  # the second measure's less the first one's
    between: Coefficient  # the second measure with the first


def strength(kind: str, measures: Mapping[str, ArrayLike], quality: ArrayLike, owners: Sequence[Hashable]) -> Strength | None:
    """Of the kind `Spearman` or `Pearson`; None where there are too few rows, or a column has one value only."""
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in measures.items()}
    result = np.asarray(quality, dtype=np.float64)
    names = list(dict.fromkeys(owners))
    if len(names) < FEWEST or any(len(np.unique(column)) < 2 for column in (*columns.values(), result)):
        return None
    weights = _times(len(names))[:, [names.index(owner) for owner in owners]]
    once = np.ones((1, len(result)))
    first, second = list(columns)[:2]

    def drawn(one: Array, other: Array) -> tuple[float, Array]:
        return _exactly(kind, one, other, once), KINDS[kind](one, other, weights)

    found = {name: drawn(column, result) for name, column in columns.items()}
    more = found[second][0] - found[first][0], found[second][1] - found[first][1]
    return Strength(
        rows=len(result),
        owners=len(names),
        of={name: _with_interval(*one) for name, one in found.items()},
        more=_with_interval(*more),
        between=_with_interval(*drawn(columns[first], columns[second])),
    )


def pearson(one: Array, other: Array, weights: Array) -> Array:  # [rows], [rows], [samples, rows] -> [samples]
    return _pearson(np.broadcast_to(one, weights.shape), np.broadcast_to(other, weights.shape), weights)


def ranked(one: Array, other: Array, weights: Array) -> Array:  # [rows], [rows], [samples, rows] -> [samples]
    """Spearman's."""
    return _pearson(_ranks(one, weights), _ranks(other, weights), weights)


KINDS: dict[str, Callable[[Array, Array, Array], Array]] = {"Spearman": ranked, "Pearson": pearson}


def _exactly(kind: str, one: Array, other: Array, once: Array) -> float:
    """Of the rows as they are; the package's own Spearman."""
    return spearman(one.tolist(), other.tolist()) if kind == "Spearman" else float(KINDS[kind](one, other, once)[0])


def _pearson(x: Array, y: Array, weights: Array) -> Array:
    total = weights.sum(1, keepdims=True)
    x, y = (column - (weights * column).sum(1, keepdims=True) / total for column in (x, y))
    together, xx, yy = ((weights * product).sum(1) for product in (x * y, x * x, y * y))
    # A sample may hold one value only, and has no coefficient then
    spread = np.sqrt(xx * yy)
    some = spread > 1e-9 * total[:, 0]
    found: Array = np.divide(together, spread, out=np.full(len(weights), np.nan), where=some)
    return found


def _ranks(column: Array, weights: Array) -> Array:  # [rows], [samples, rows] -> [samples, rows]
    values, at = np.unique(column, return_inverse=True)
    own = np.zeros((len(weights), len(values)))
    for row, value in enumerate(at):
        own[:, value] += weights[:, row]
    ranks: Array = np.cumsum(own, 1) - own / 2 + 0.5
    return ranks[:, at]


@cache
def _times(owners: int) -> Array:  # [samples, owners]
    """How often each is drawn."""
    draws = np.random.default_rng(0).integers(owners, size=(RESAMPLES, owners))
    return np.stack([np.bincount(draw, minlength=owners) for draw in draws]).astype(np.float64)


def _with_interval(value: float, samples: Array) -> Coefficient:
    low, high = np.nanquantile(samples, [0.025, 0.975])
    # Equal columns differ by rounding, which must not pass for more than 0
    return Coefficient(*(round(float(one), 9) for one in (value, low, high)))
