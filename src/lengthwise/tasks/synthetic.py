"""Bits to be counted: the mean, the length and the sum of a binary sequence (Output Alignment, Section 3, appendices A, C, F).

    BOS b_1 ... b_l EOS   ->   mean = sum b_i / l,   length = l,   sum = sum b_i

Bits are `uniform`, 0 or 1 alike, or their number of ones is (`uniform ones`, appendix F), so that the mean of long sequences
does not gather at a half. Sequences of one batch end at different places; behind the end stands padding, which a causal model
that is read at EOS never sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lengthwise.errors import require

ZERO, ONE, BOS, EOS, PAD = range(5)
VOCABULARY = 5
KINDS = ("uniform", "uniform ones")

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sequences:
    """Bit sequences as tokens, with the numbers that tasks ask for."""

    tokens: Integers  # [n, longest + 2]
    lengths: Integers  # [n], bits
    ones: Integers  # [n]

    @property
    def ends(self) -> Integers:
        """Where each sequence's EOS stands."""
        return self.lengths + 1

    def target(self, name: str) -> Floats:  # [n]
        require(name in TARGETS, f"no target {name!r}; take one of {', '.join(TARGETS)}")
        return TARGETS[name](self)


TARGETS: dict[str, Callable[[Sequences], Floats]] = {
    "mean": lambda some: some.ones / some.lengths,
    "length": lambda some: some.lengths.astype(np.float64),
    "sum": lambda some: some.ones.astype(np.float64),
}


def training(n: int, longest: int, randomness: np.random.Generator, kind: str = "uniform") -> Sequences:
    """`n` sequences, each of 1 ... `longest` bits, all lengths alike."""
    require(n >= 1, f"at least 1 sequence is needed, not {n}")
    require(longest >= 1, f"a sequence has at least 1 bit, not {longest}")
    return _of_lengths(randomness.integers(1, longest + 1, n), longest, randomness, kind)


def samples(length: int, n: int, seed: int, kind: str = "uniform") -> Sequences:
    """`n` sequences of `length` bits; a seed gives each length its own."""
    require(n >= 1, f"at least 1 sequence is needed, not {n}")
    require(length >= 1, f"a sequence has at least 1 bit, not {length}")
    return _of_lengths(np.full(n, length), length, np.random.default_rng([seed, length]), kind)


def _of_lengths(lengths: Integers, longest: int, randomness: np.random.Generator, kind: str) -> Sequences:
    require(kind in KINDS, f"no kind of bits {kind!r}; take one of {', '.join(KINDS)}")
    n = len(lengths)
    inside = np.arange(longest) < lengths[:, None]
    if kind == "uniform":
        bits = inside & (randomness.random((n, longest)) < 0.5)
    else:
        bits = _with_ones(randomness.integers(0, lengths + 1), inside, randomness)
    tokens = np.full((n, longest + 2), PAD)
    tokens[:, 0] = BOS
    tokens[:, 1:-1][inside] = bits[inside]
    tokens[np.arange(n), lengths + 1] = EOS
    return Sequences(tokens, lengths, bits.sum(1))


def _with_ones(ones: Integers, inside: NDArray[np.bool_], randomness: np.random.Generator) -> NDArray[np.bool_]:
    """Put `ones` ones into each row, at random places inside the sequence: those with the smallest random numbers."""
    drawn = np.where(inside, randomness.random(inside.shape), 2.0)
    rank = drawn.argsort(1).argsort(1)
    return rank < ones[:, None]
