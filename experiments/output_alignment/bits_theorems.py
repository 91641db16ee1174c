"""The theorems' part of the page: closed forms and the two sides of the bound, both on linear attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from experiments._lib.markdown import table
from experiments.output_alignment.bits_configurations import TRAIN_LENGTH
from experiments.output_alignment.linear_attention import (
    Measured,
    length_error,
    mean_error,
    measure,
    sum_error,
    trained,
)

LENGTHS = (11, 20, 30, 40, 50)
SIZE = 8  # of a token


def theorem_1() -> list[Measured]:
    """Theorem 1's two sides for linear attention that is trained to turn its last token."""
    target = np.linalg.qr(np.random.default_rng(7).normal(size=(SIZE, SIZE)))[0]
    a, b = trained(target, TRAIN_LENGTH)
    return [measure(a, b, target, TRAIN_LENGTH, length, n=500, seed=1) for length in LENGTHS]


def sections(bounds: Sequence[Measured]) -> list[str]:
    closed = [
        ["length", *(f"{length_error(length, TRAIN_LENGTH):.4g}" for length in LENGTHS)],
        ["sum", *(f"{sum_error(length, TRAIN_LENGTH):.4g}" for length in LENGTHS)],
        ["mean", *(f"{mean_error(length):.4g}" for length in LENGTHS)],
    ]
    sides = [[one.test_length, *(f"{value:.3g}" for value in (one.error, one.printed, one.mended))] for one in bounds]
    printed, mended = (_holds(one.error <= getattr(one, name) for one in bounds) for name in ("printed", "mended"))
    return [
        "## Theorem 2: linear attention, closed forms",
        f"Errors of linear attention trained on lengths 1 to {TRAIN_LENGTH}. The paper prints twice this error for the sum "
        "(but E i^2 of l bits is l (l + 1) / 4), and its model for the sum, kappa(0) = 0, is not the best over all lengths.",
        table(["error at", *LENGTHS], closed),
        "## Theorem 1: the bound, numerically",
        f"Linear attention with {SIZE}-dimensional tokens, trained on lengths {TRAIN_LENGTH // 2} to {TRAIN_LENGTH} to turn "
        f"the last token: L_train {bounds[0].train:.3g}, L_misalign {bounds[0].misalign:.3g}. The printed proof drops factors "
        "of 2 and a product of norms; `mended` is what its steps give with them. On this model the printed bound "
        f"{printed}, the mended one {mended}; there are models on which the printed one fails (tests).",
        table(["test length", "error", "printed bound", "mended bound"], sides),
    ]


def _holds(each: Iterable[bool]) -> str:
    return "holds" if all(each) else "does not hold"
