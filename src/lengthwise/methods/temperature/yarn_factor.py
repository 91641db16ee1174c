"""YaRN's factor: the temperature that YaRN sets beside its frequencies.

    g = (0.1 ln s + 1)^2                                            Peng et al. 2023, section 3.4

`factor` is s, the same for every length, short inputs included, as in YaRN itself. Without it s is each row's own
max(1, n / n_train), which leaves short inputs alone.

Paper: Peng et al. 2023, arXiv:2309.00071
Code: https://github.com/jquesnelle/yarn
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class YarnFactor:
    train_length: int
    factor: float | None = None

    layers_agree = True

    def __post_init__(self) -> None:
        require(self.train_length > 0, f"yarn_factor needs train_length > 0, not {self.train_length}")
        factor = 1.0 if self.factor is None else self.factor
        require(1 <= factor < math.inf, f"yarn_factor needs factor >= 1, not {factor}: inputs get that many times longer")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        if self.factor is None:
            s = visible.double().div(self.train_length).clamp_min(1)
        else:
            s = torch.full_like(visible, self.factor, dtype=torch.float64)
        return (0.1 * s.log() + 1).square().float()
