"""Output Alignment's theory, on attention without a softmax: Theorem 2's closed forms for bits, Theorem 1's bound for vectors.

Bits. The last bit makes q, every bit makes kappa = k v, and an answer is the mean over the sequence:

    g(b_1 ... b_l) = q(b_l) / l  sum_i kappa(b_i),        trained on all lengths 1 ... n at once

    length   g = (n + 1) / 2,                                       error (l - (n + 1) / 2)^2
    sum      q kappa(1) = n (n + 3) / (2 (n + H_n)), kappa(0) = 0,  error (l + 1) / (4 l) (q kappa(1) - l)^2
    mean     q kappa(1) = 1, kappa(0) = 0,                          error 0

Two slips of the paper are mended here. E i^2 of l fair bits is l (l + 1) / 4, so that the sum's error is half of equation 20.
And kappa(0) = 0 is optimal for each length alone but not for all at once, so that `sum_error` is that of the paper's model and
not of the best one; both are quadratic in l.

Vectors. g(x_1 ... x_l) = x_l a (1/l sum_i x_i' x_i) b, all x_i of length 1; the last l_train / 2 tokens decide the target:

    error(l_test) <= C_1 L_misalign + C_2 L_train + C_0,   r = 1 - l_train / (2 l_test)

    printed   C_1 = r^2     C_2 = 1 + r^2       C_0 = (1 + |a b|^2) r^2
    mended    C_1 = 8 r^2   C_2 = 2 + 16 r^2    C_0 = (16 + 4 |a|^2 |b|^2) r^2

The printed proof splits |u + v|^2 into |u|^2 + |v|^2, which needs a factor of 2, and bounds |a X b| by |a b| |X|, which does
not hold. Put right step by step it gives the second line.

    python -m experiments.bits.linear_attention FILE      writes both theorems against numbers, as results/theorems.json
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments._lib.command import main, option

Floats = NDArray[np.float64]


def length_error(length: int, train_length: int) -> float:
    return (length - (train_length + 1) / 2) ** 2


def sum_slope(train_length: int) -> float:
    """q kappa(1) of the paper's model, whose kappa(0) is 0."""
    harmonic = sum(1 / k for k in range(1, train_length + 1))
    return train_length * (train_length + 3) / (2 * (train_length + harmonic))


def sum_error(length: int, train_length: int) -> float:
    return (length + 1) / (4 * length) * (sum_slope(train_length) - length) ** 2


def mean_error(length: int, epsilon: float = 0.0) -> float:
    """The error of a model with q kappa(1) = 1 + epsilon."""
    return (length + 1) / (4 * length) * epsilon**2


def bound(
    a: Floats, b: Floats, train_length: int, test_length: int, misalign: float, train: float, printed: bool = False
) -> float:
    """C_1 L_misalign + C_2 L_train + C_0 of Theorem 1."""
    r2 = (1 - train_length / (2 * test_length)) ** 2
    if printed:
        return r2 * misalign + (1 + r2) * train + (1 + _norm(a @ b) ** 2) * r2
    return 8 * r2 * misalign + (2 + 16 * r2) * train + (16 + 4 * _norm(a) ** 2 * _norm(b) ** 2) * r2


def answers(tokens: Floats, a: Floats, b: Floats) -> Floats:  # [n, length, d] -> [n, d]
    seen = np.einsum("nla,nlb->nab", tokens, tokens) / tokens.shape[1]
    return np.einsum("np,pq,nqr,rs->ns", tokens[:, -1], a, seen, b, optimize=True)


def directions(n: int, length: int, size: int, seed: int) -> Floats:  # [n, length, size]
    """Random tokens of length 1."""
    tokens = np.random.default_rng(seed).normal(size=(n, length, size))
    return tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)


def trained(target: Floats, train_length: int, n: int = 500, seed: int = 0, rounds: int = 10) -> tuple[Floats, Floats]:
    """a and b by least squares in turn, on lengths train_length / 2 ... train_length: each enters the answer linearly."""
    size = len(target)
    tokens = directions(n, train_length, size, seed)
    parts = [tokens[:, -length:] for length in range((train_length + 1) // 2, train_length + 1)]
    seen = np.concatenate([np.einsum("nla,nlb->nab", part, part) / part.shape[1] for part in parts])
    last = np.concatenate([part[:, -1] for part in parts])
    wanted = last @ target
    a, b = np.eye(size), np.eye(size)
    for _ in range(rounds):
        b = np.linalg.lstsq(np.einsum("np,pq,nqr->nr", last, a, seen, optimize=True), wanted)[0]
        linear = np.einsum("na,nbd->ndab", last, seen @ b).reshape(-1, size * size)
        a = np.linalg.lstsq(linear, wanted.reshape(-1))[0].reshape(size, size)
    return a, b


@dataclass(frozen=True)
class Measured:
    """Theorem 1's two sides at one test length."""

    test_length: int
    error: float
    misalign: float
    train: float
    printed: float  # the bound with the paper's constants
    mended: float


def measure(a: Floats, b: Floats, target: Floats, train_length: int, test_length: int, n: int, seed: int) -> Measured:
    """On `n` sequences of random directions; the answer to give is the last token turned by `target`."""
    tokens = directions(n, test_length, len(a), seed)
    wanted = tokens[:, -1] @ target
    lengths = range((train_length + 1) // 2, train_length + 1)
    given = {length: answers(tokens[:, -length:], a, b) for length in (*lengths, test_length)}
    train = float(np.mean([_squared(given[length] - wanted) for length in lengths]))
    misalign = float(np.mean([_squared(given[one] - given[other]) for one in lengths for other in lengths]))
    bounds = [bound(a, b, train_length, test_length, misalign, train, printed) for printed in (True, False)]
    return Measured(test_length, float(_squared(given[test_length] - wanted)), misalign, train, *bounds)


def theorem_1(train_length: int = 10, test_lengths: tuple[int, ...] = (11, 20, 30, 40, 50), size: int = 8) -> list[Measured]:
    """Theorem 1's two sides for linear attention that is trained to turn its last token."""
    target = np.linalg.qr(np.random.default_rng(7).normal(size=(size, size)))[0]
    a, b = trained(target, train_length)
    return [measure(a, b, target, train_length, length, n=500, seed=1) for length in test_lengths]


def counterexample() -> dict[str, float]:
    """Theorem 1's two sides where a b = 0: answers vanish at the training lengths, 2 to 4, and far tokens decide at 44."""
    a, b = 30 * np.outer([1, 0], [1, 0]), 30 * np.outer([0, 1], [1, 0])
    near, far = np.array([1.0, 0.0]), np.array([1.0, 1.0]) / math.sqrt(2)
    tokens = np.array([[far] * 40 + [near] * 4])
    error, *train = (_squared(answers(tokens[:, -length:], a, b) - near) for length in (44, 4, 3, 2))
    bounds = [bound(a, b, 4, 44, 0.0, max(train), printed) for printed in (True, False)]
    return {"error": error, "train": max(train), "printed": bounds[0], "mended": bounds[1]}


def theorem_2(length: int = 12, train_length: int = 10) -> dict[str, dict[str, float]]:
    """The errors that the paper prints for its models of length and sum, and those over all sequences of one length."""
    slope, constant = sum_slope(train_length), (train_length + 1) / 2
    ones = [sum(bits) for bits in itertools.product((0, 1), repeat=length)]
    of_sum = math.fsum((slope * n / length - n) ** 2 for n in ones) / len(ones)
    of_length = math.fsum((constant - length) ** 2 for _ in ones) / len(ones)
    printed_sum = (length + 1) / (2 * length) * (slope - length) ** 2
    return {
        "length": {"printed": length_error(length, train_length), "enumerated": of_length},
        "sum": {"printed": printed_sum, "enumerated": of_sum},
    }


@dataclass(frozen=True)
class Options:
    """One call."""

    file: Path = option(help="JSON file to write", positional=True)


def write_theorems(options: Options) -> None:
    from experiments._lib import results

    content: dict[str, Any] = {"theorem_1": counterexample(), "theorem_2": theorem_2()}
    results.write(
        options.file, "lengthwise.experiments.theorems/1", "python -m experiments.bits.linear_attention FILE", content
    )


def _squared(x: Floats) -> float:
    return float((x**2).sum(-1).mean())


def _norm(x: Floats) -> float:
    return float(np.linalg.norm(x, 2))


if __name__ == "__main__":
    sys.exit(main(Options, write_theorems, __doc__))
