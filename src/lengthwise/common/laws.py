"""Formulae that several packages share, in plain numbers, so that a report needs no torch to draw them."""

from __future__ import annotations

import math


def log_law(train_length: int, length: float) -> float:
    """The temperature tau = ln n_train / ln n, and 1 up to the training length."""
    return math.log(train_length) / math.log(length) if length > train_length else 1.0


def alibi_slopes(heads: int) -> list[float]:
    """ALiBi's slopes 2^(-8h/H); where H is no power of two, those of the power below, then every other of the power above."""
    below = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    between = [2.0 ** (-8 * h / (2 * below)) for h in range(1, 2 * below + 1, 2)]
    return (slopes + between)[:heads]
