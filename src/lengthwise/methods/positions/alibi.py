"""ALiBi: logits fall linearly with the distance, at a slope of its own in every head.

    bias_h(d) = -2^(-8h/H) |d|,   h = 1 ... H                       Press et al. 2022

Where H is no power of two, the power below it gives the first slopes and every other slope of the power above it the rest.
Meant for models trained with it, without a rotation: `alibi+nope` takes a rotary model's away.

Paper: Press et al. 2022, arXiv:2108.12409
Code: https://github.com/ofirpress/attention_with_linear_biases
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.common.laws import alibi_slopes


@dataclass(frozen=True)
class Alibi:
    def distance_bias(self, heads: int, radius: int) -> Tensor:  # [heads, 2 * radius + 1]
        distance = torch.arange(-radius, radius + 1, dtype=torch.float64).abs()
        slopes = torch.tensor(alibi_slopes(heads), dtype=torch.float64)
        return (-slopes[:, None] * distance).float()
