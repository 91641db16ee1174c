"""How strongly a measure goes along with long perplexity, and whether one measure does so more than another.

Intervals are 95 % bootstrap intervals: rows are drawn again with replacement, those of one position method together, since a
method at two lengths, or with another temperature on top, is not two methods. Both measures are losses, so what counts is the
coefficient with its sign: one that falls while perplexity rises is no better an indicator for being far from 0.

A sample is kept as how often it holds each row, w. Then ranks need no sorting: with the rows' values in order, the mean rank of
a value is the weight below it plus half of its own and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments._lib.results import read

RESAMPLES = 2000
FEWEST = 5  # families, below which nothing is said
MEASURES = {"l_train": "L_train", "l_misalign": "L_misalign", "kl": "symmetric KL"}
GROUPINGS = (("Spearman", "log_ppl"), ("Pearson", "log_ppl"), ("Spearman", "beyond"))
MORE, LESS, NEITHER, UNDECIDED, SILENT = "more strongly", "less strongly", "neither does", "undecided", "too few rows"

# Table 1 as printed: L_train, L_misalign and log(PPL) at 16k tokens by model; the coefficients below it are Spearman's
PAPER = read(Path(__file__).with_name("paper.json"))

Array = NDArray[np.float64]
Row = dict[str, Any]  # a line of the results: model, method, spec, length, factor, five numbers with intervals, unchanged


@dataclass(frozen=True)
class Coefficient:
    """A coefficient of correlation, or a difference of two."""

    value: float
    low: float  # ends of its 95 % interval
    high: float


@dataclass(frozen=True)
class Strength:
    """The coefficients of one set of rows."""

    rows: int
    owners: int  # families, which were drawn again
    of: dict[str, Coefficient]  # each measure with long perplexity
    more: Coefficient  # the second measure's less the first one's
    between: Coefficient  # the second measure with the first

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Strength:
        """From a result file."""
        of = {name: Coefficient(**numbers) for name, numbers in values["of"].items()}
        more, between = (Coefficient(**values[name]) for name in ("more", "between"))
        return cls(values["rows"], values["owners"], of, more, between)

    @property
    def verdict(self) -> str:
        """Decided where whole intervals say so; of two measures that may not rise with perplexity at all, none is stronger."""
        if self.more.high < 0:
            return LESS
        if self.of["l_train"].low <= 0 and self.of["l_misalign"].low <= 0:
            return NEITHER
        return MORE if self.more.low > 0 and self.of["l_misalign"].low > 0 else UNDECIDED


@dataclass(frozen=True)
class Group:
    """A set of rows that coefficients are taken of."""

    models: str
    lengths: str
    rows: list[Row]

    @property
    def acting(self) -> Group:
        """Without methods that leave the model as it is up to the training length; the plain model stays."""
        return Group(self.models, self.lengths, [row for row in self.rows if row["method"] == "none" or not row["unchanged"]])

    def strength(self, kind: str = "Spearman", quality: str = "log_ppl") -> Strength | None:
        columns = {name: [row[name]["mean"] for row in self.rows] for name in MEASURES}
        families = [(row["model"], row["method"].partition("+")[0]) for row in self.rows]
        return strength(kind, columns, [row[quality]["mean"] for row in self.rows], families)


def groups(rows: Sequence[Row]) -> list[Group]:
    """All rows first, then by length, and the same within each model."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    scopes = [("all models", models)] if len(models) > 1 else []
    sets = []
    for name, members in [*scopes, *((model, [model]) for model in models)]:
        own = [row for row in rows if row["model"] in members]
        factors = sorted({row["factor"] for row in own})
        if len(factors) > 1:
            sets.append(Group(name, "all lengths", own))
        sets += [Group(name, f"{factor:g} x", [row for row in own if row["factor"] == factor]) for factor in factors]
    return sets


def of_the_paper(kind: str) -> Strength:
    """The same coefficients of the paper's seven models."""
    l_train, l_misalign, log_ppl = zip(*PAPER["models"].values(), strict=True)
    coefficients = strength(kind, {"l_train": l_train, "l_misalign": l_misalign}, log_ppl, list(PAPER["models"]))
    assert coefficients is not None
    return coefficients


def strength(kind: str, measures: Mapping[str, ArrayLike], quality: ArrayLike, owners: Sequence[Hashable]) -> Strength | None:
    """Coefficients of the kind `Spearman` or `Pearson`; None where families are too few, or a column has one value only."""
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in measures.items()}
    result = np.asarray(quality, dtype=np.float64)
    names = list(dict.fromkeys(owners))
    if len(names) < FEWEST or any(len(np.unique(column)) < 2 for column in (*columns.values(), result)):
        return None
    # The first sample is the rows as they are
    weights = np.concatenate([np.ones((1, len(names))), _times(len(names))])[:, [names.index(owner) for owner in owners]]
    first, second = list(columns)[:2]
    drawn = {name: KINDS[kind](column, result, weights) for name, column in columns.items()}
    return Strength(
        rows=len(result),
        owners=len(names),
        of={name: _with_interval(samples) for name, samples in drawn.items()},
        more=_with_interval(drawn[second] - drawn[first]),
        between=_with_interval(KINDS[kind](columns[first], columns[second], weights)),
    )


def pearson(x: Array, y: Array, weights: Array) -> Array:  # [rows], [rows], [samples, rows] -> [samples]
    return _pearson(np.broadcast_to(x, weights.shape), np.broadcast_to(y, weights.shape), weights)


def spearman(x: Array, y: Array, weights: Array) -> Array:  # [rows], [rows], [samples, rows] -> [samples]
    return _pearson(_ranks(x, weights), _ranks(y, weights), weights)


KINDS: dict[str, Callable[[Array, Array, Array], Array]] = {"Spearman": spearman, "Pearson": pearson}


def _pearson(x: Array, y: Array, weights: Array) -> Array:
    total = weights.sum(1, keepdims=True)
    x, y = (column - (weights * column).sum(1, keepdims=True) / total for column in (x, y))
    together, xx, yy = ((weights * product).sum(1) for product in (x * y, x * x, y * y))
    # A sample may hold one value only, and has no coefficient then
    spread = np.sqrt(xx * yy)
    varied = spread > 1e-9 * total[:, 0]
    coefficients: Array = np.divide(together, spread, out=np.full(len(weights), np.nan), where=varied)
    return coefficients


def _ranks(column: Array, weights: Array) -> Array:  # [rows], [samples, rows] -> [samples, rows]
    values, at = np.unique(column, return_inverse=True)
    own = np.zeros((len(weights), len(values)))
    for row, value in enumerate(at):
        own[:, value] += weights[:, row]
    ranks: Array = np.cumsum(own, 1) - own / 2 + 0.5
    return ranks[:, at]


@cache
def _times(owners: int) -> Array:  # [samples, owners]
    """How often each family is drawn."""
    draws = np.random.default_rng(0).integers(owners, size=(RESAMPLES, owners))
    return np.stack([np.bincount(draw, minlength=owners) for draw in draws]).astype(np.float64)


def _with_interval(samples: Array) -> Coefficient:
    """The value of the first sample, and the interval of the others."""
    low, high = np.nanquantile(samples[1:], [0.025, 0.975])
    # Equal columns differ by rounding, which must not pass for more than 0
    return Coefficient(*(round(float(value), 9) for value in (samples[0], low, high)))
