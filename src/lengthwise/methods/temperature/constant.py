"""Constant: one temperature for every length, such as a baked checkpoint carries.

    g = 1 / tau

Short inputs are not spared. Use a calibrated alignment to have them exactly as before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Constant:
    tau: float

    layers_agree = True

    def __post_init__(self) -> None:
        require(0 < self.tau < math.inf, f"constant needs tau > 0, not {self.tau}")
        limits = torch.finfo(torch.float32)
        held = limits.tiny <= 1 / self.tau <= limits.max
        require(held, f"constant needs a tau whose inverse float32 can hold, not {self.tau}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return torch.full_like(visible, 1 / self.tau, dtype=torch.float32)
