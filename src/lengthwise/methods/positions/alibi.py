"""ALiBi: logits fall linearly with the distance, at a slope of its own in every head.

    bias_h(d) = -2^(-8h/H) |d|,   h = 1 ... H                       Press et al. 2022

Where H is no power of two, the power below it gives the first slopes and every other slope of the power above it the rest.
Meant for models trained with it, without a rotation: `alibi+nope` takes a rotary model's away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Alibi:
    def distance_bias(self, heads: int, radius: int) -> Tensor:  # [heads, 2 * radius + 1]
        distance = torch.arange(-radius, radius + 1, dtype=torch.float64).abs()
        return (-_slopes(heads)[:, None] * distance).float()

    def leaves_alone(self, length: int) -> bool:
        return False


def _slopes(heads: int) -> Tensor:
    below = 2 ** (heads.bit_length() - 1)
    return torch.cat([_power_of_two(below), _power_of_two(2 * below)[::2][: heads - below]])


def _power_of_two(heads: int) -> Tensor:
    return 2.0 ** (-8 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)
