"""Interpolation (PI): positions are divided by a factor, so that long inputs stay inside the trained range.

    theta'_i = theta_i / s                                          Chen et al. 2023

Short inputs are squeezed as well: a model reads them as well as before only after fine-tuning. `as_released` multiplies, as the
code released with Entropy Invariance does by mistake: it makes that paper's row of Table 1 again, and nothing else.

Paper: Chen et al. 2023, arXiv:2306.15595
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Interpolation:
    factor: float
    as_released: bool = False

    def __post_init__(self) -> None:
        fits = 1 <= self.factor < math.inf
        require(fits, f"interpolation needs factor >= 1, not {self.factor}: inputs get that many times longer")

    def frequencies(self, trained: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        return trained * self.factor if self.as_released else trained / self.factor

    def leaves_alone(self, length: int) -> bool:
        return self.factor == 1
