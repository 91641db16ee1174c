"""EABF: a larger base for the rotation, and attention sharpened with the length in all but the first layers.

    theta'_i = new_base^(-2i/d)                                     Zhang et al. 2024 (entropy-aware ABF)
    g(n)     = max(1, ln n / ln n_train),   1 in the first `skip` layers

The new base replaces the model's own at every length, so it suits a model fine-tuned with it.

Paper: Zhang et al. 2024, arXiv:2401.07004
Code: https://github.com/GAIR-NLP/Entropy-ABF
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Eabf:
    train_length: int
    new_base: float = 500_000.0
    skip: int = 2

    def __post_init__(self) -> None:
        require(self.train_length > 1, f"eabf needs train_length > 1, not {self.train_length}")
        require(1 < self.new_base < math.inf, f"eabf needs new_base > 1, not {self.new_base}")
        require(self.skip >= 0, f"eabf needs skip >= 0, not {self.skip}: the number of first layers left as they are")

    def frequencies(self, trained: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        index = torch.arange(len(trained), dtype=torch.float64, device=trained.device)
        return (self.new_base ** (-index / len(trained))).to(trained.dtype)

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        if layer < self.skip:
            return torch.ones_like(visible, dtype=torch.float32)
        return visible.clamp_min(self.train_length).double().log().div(math.log(self.train_length)).float()
