"""Perplexity of token streams: by position, in sliding windows, and of one method against another on the same tokens.

    perplexity = exp(mean over tokens of -ln p(token | what stands before it))

Every token counts once. Intervals are 95 % bootstrap intervals: streams are drawn
again with replacement. Where stretches of a stream are independent of each other, as stories one after another are, streams may
be drawn anew in every stretch, which tells more from few streams. Of a single stream blocks of neighbouring tokens are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lengthwise.errors import BadInput, require

RESAMPLES = 2000
# A block of a single stream is as long as neighbours may depend on each other, unless that would leave too few blocks
BLOCK, FEWEST_BLOCKS = 256, 16

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bucket:
    """The tokens at positions first ... last - 1 of all streams."""

    first: int
    last: int
    perplexity: float
    low: float  # ends of the 95 % interval
    high: float
    tokens: int  # over all streams
    resampled: str  # what was drawn again for the interval


@dataclass(frozen=True)
class Ratio:
    """The perplexity of one method over another's, on the same tokens."""

    ratio: float
    low: float  # ends of the 95 % interval
    high: float
    tokens: int
    resampled: str


def doubling(first: int, length: int) -> list[int]:
    """Edges of buckets that double: 0, first, 2 first, 4 first ... length."""
    require(first >= 1, f"the first bucket needs at least 1 token, not {first}")
    require(length >= 1, f"a stream needs at least 1 token, not {length}")
    edges = [0]
    while first < length:
        edges.append(first)
        first *= 2
    return [*edges, length]


def by_bucket(nll: ArrayLike, edges: Sequence[int], stretch: int | None = None) -> list[Bucket]:
    """Perplexity between each edge and the next; `nll` is [streams, tokens], column t for the prediction from t + 1 tokens.

    `stretch` tokens of a stream are independent of the next ones; without it whole streams are drawn for the intervals.
    """
    table = _table(nll)
    _check_edges(edges, table.shape[1])
    buckets = []
    for first, last in pairwise(edges):
        mean, low, high, resampled = _mean(table[:, first:last], stretch)
        tokens = table[:, first:last].size
        buckets.append(Bucket(first, last, math.exp(mean), math.exp(low), math.exp(high), tokens, resampled))
    return buckets


def compared(nll: ArrayLike, other: ArrayLike, stretch: int | None = None) -> Ratio:
    """The ratio of `nll`'s perplexity to `other`'s; both are [streams, tokens] of the same tokens. `stretch` as above."""
    ours, theirs = _table(nll), _table(other)
    if ours.shape != theirs.shape:
        raise BadInput(f"{ours.shape} and {theirs.shape} are not the same streams and tokens; score both on the same ones")
    mean, low, high, resampled = _mean(ours - theirs, stretch)
    return Ratio(math.exp(mean), math.exp(low), math.exp(high), ours.size, resampled)


@dataclass(frozen=True)
class SlidingWindow:
    """Tokens start ... stop - 1 are read, those from `scored` on are scored."""

    start: int
    stop: int
    scored: int

    @property
    def targets(self) -> int:
        return self.stop - self.scored


@dataclass(frozen=True)
class SlidingWindows:
    """Windows of `length` tokens, each `stride` further on; every token but the first of a text is scored once.

    A token is scored in the first window that holds it, so it is told from at least length - stride others once the text is
    that long.
    """

    length: int
    stride: int

    def __post_init__(self) -> None:
        require(self.length >= 2, f"a window needs 2 tokens, one to tell the other from, not {self.length}")
        require(
            1 <= self.stride < self.length,
            f"stride must be from 1 to {self.length - 1} for windows of {self.length} tokens, not {self.stride}: "
            "a window cannot score its first token",
        )

    def over(self, tokens: int) -> list[SlidingWindow]:
        require(tokens >= 2, f"a text of {tokens} tokens has none to score; give at least 2")
        windows, start, scored = [], 0, 1
        while scored < tokens:
            stop = min(start + self.length, tokens)
            windows.append(SlidingWindow(start, stop, scored))
            start, scored = start + self.stride, stop
        return windows


def _table(nll: ArrayLike) -> Array:
    table = np.asarray(nll, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise BadInput(f"negative log-likelihoods must be a table of [streams, tokens], not of shape {table.shape}")
    finite = int(np.isfinite(table).sum())
    require(finite == table.size, f"{table.size - finite} of {table.size} negative log-likelihoods are not finite numbers")
    return table


def _check_edges(edges: Sequence[int], tokens: int) -> None:
    rising = len(edges) >= 2 and all(a < b for a, b in pairwise(edges))
    inside = rising and edges[0] >= 0 and edges[-1] <= tokens
    require(inside, f"edges must rise within 0 ... {tokens}, the tokens of a stream, not be {list(edges)}")


def _mean(table: Array, stretch: int | None) -> tuple[float, float, float, str]:
    """The mean of all tokens, the ends of its interval, and what was drawn again."""
    require(stretch is None or stretch >= 1, f"a stretch needs at least 1 token, not {stretch}")
    means, resampled = _drawn_blocks(table[0]) if len(table) == 1 else _drawn_streams(table, stretch)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(table.mean()), float(low), float(high), resampled


def _drawn_streams(table: Array, stretch: int | None) -> tuple[Array, str]:
    streams, tokens = table.shape
    sums = np.add.reduceat(table, np.arange(0, tokens, stretch or tokens), axis=1)  # [streams, stretches]
    draws = np.random.default_rng(0).integers(streams, size=(RESAMPLES, *sums.shape))
    means = np.take_along_axis(sums[None], draws, axis=1).sum((1, 2)) / table.size
    means = widened(means, float(table.mean()), streams, sums.shape[1] * (streams - 1))
    return means, "streams" if stretch is None else f"streams in every stretch of {stretch} tokens"


def _drawn_blocks(stream: Array) -> tuple[Array, str]:
    """Resample blocks of a single stream. A trend over its positions counts as spread: nothing can tell them apart."""
    size = min(BLOCK, max(1, stream.size // FEWEST_BLOCKS))
    starts = np.arange(0, stream.size, size)
    sums, counts = np.add.reduceat(stream, starts), np.diff(starts, append=stream.size)
    draws = np.random.default_rng(0).integers(len(starts), size=(RESAMPLES, len(starts)))
    means = sums[draws].sum(1) / counts[draws].sum(1)
    return widened(means, float(stream.mean()), len(starts), len(starts) - 1), f"blocks of {size} tokens"


def widened(means: Array, centre: float, drawn: int, freedom: int) -> Array:
    """Widen bootstrap means: resampling varies too little, by (drawn - 1) / drawn, and few draws misjudge their spread."""
    from scipy.stats import norm, t

    if drawn == 1:
        return means
    factor = math.sqrt(drawn / (drawn - 1)) * float(t.ppf(0.975, freedom) / norm.ppf(0.975))
    return centre + (means - centre) * factor
