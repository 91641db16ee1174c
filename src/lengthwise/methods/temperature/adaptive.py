"""Adaptive temperature: sharpen each row by how flat it is.

    g(H) = max(1, a4 H^4 + a3 H^3 + a2 H^2 + a1 H + a0) for H > threshold, else 1     Velickovic et al. 2024

"softmax is not enough (for sharp out-of-distribution)". H is the entropy of the row in nats, under whatever laws of n are in
force beside it. It is read before the row is solved: one more pass over queries and keys, without a gradient. The paper's
quartic is above 1 only between H = 0.85 and H = 5.94, so the very flattest rows stay as they are. Every row adapts, short
inputs included, as in the paper.

Paper: Velickovic et al. 2024, arXiv:2410.01104
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Adaptive:
    a4: float = -0.037
    a3: float = 0.481
    a2: float = -2.3
    a1: float = 4.917
    a0: float = -1.791
    threshold: float = 0.5

    def __post_init__(self) -> None:
        for name, value in zip(("a4", "a3", "a2", "a1", "a0"), self.coefficients, strict=True):
            require(math.isfinite(value), f"adaptive needs a finite {name}, not {value}")
        require(0 <= self.threshold < math.inf, f"adaptive needs threshold >= 0, not {self.threshold}")

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The polynomial's coefficients, from the fourth power down."""
        return self.a4, self.a3, self.a2, self.a1, self.a0

    def adaptive_sharpness(self, entropy: Tensor, layer: int = 0) -> Tensor:
        h = entropy.double()
        g = torch.zeros_like(h)
        for coefficient in self.coefficients:
            g = g * h + coefficient
        return torch.where(h > self.threshold, g.clamp_min(1), 1.0).float()

    def leaves_alone(self, length: int) -> bool:
        """Whether `length` keys cannot reach the threshold: no row's entropy is above the logarithm of its keys."""
        return math.log(length) <= self.threshold
