"""Llama 4's attention temperature: a step up at every multiple of a fixed length.

    g(n) = 1 + beta ln(1 + floor(n / floor_length))                 beta 0.1, floor length 8192

In a causal model n is the row's position plus one, which makes this Llama 4's own formula.

Paper: Meta 2025, https://huggingface.co/blog/llama4-release
Code: https://github.com/meta-llama/llama-models
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Llama4:
    beta: float = 0.1
    floor_length: int = 8192

    layers_agree = True

    def __post_init__(self) -> None:
        require(self.floor_length > 0, f"llama4 needs floor_length > 0, not {self.floor_length}")
        require(0 <= self.beta < math.inf, f"llama4 needs beta >= 0, not {self.beta}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        steps = visible.div(self.floor_length, rounding_mode="floor")
        return (1 + self.beta * steps.double().log1p()).float()
