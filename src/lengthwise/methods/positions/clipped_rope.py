"""Clipped RoPE (CoPE): pairs too slow to turn once within the training length are slowed down further, the last to a halt.

    theta'_i = theta_i (1 + cos(pi k / (c - 1))) / 2,   k = i - (d/2 - c)      for the last c pairs, Li et al. 2026

`clip` is c: by default all pairs of which one turn takes longer than the training length; the released code takes 20 of Llama
3's 64. Inputs of any length are read so; the authors tune the model with it.

Paper: Li et al. 2026, arXiv:2602.05258
Code: https://github.com/hrlics/CoPE
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class ClippedRoPE:
    train_length: int
    clip: int | None = None

    def __post_init__(self) -> None:
        require(self.train_length >= 1, f"clipped_rope needs train_length >= 1, not {self.train_length}")
        require(self.clip is None or self.clip >= 0, f"clipped_rope needs clip >= 0, not {self.clip}: a number of pairs")

    def frequencies(self, trained: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        slow = int((trained * self.train_length < 2 * math.pi).sum()) if self.clip is None else self.clip
        clipped = min(slow, len(trained))
        # A single pair keeps its frequency, as the first of several does
        angle = torch.linspace(0, math.pi, clipped, dtype=torch.float64, device=trained.device)
        kept = torch.cat((angle.new_ones(len(trained) - clipped), (1 + angle.cos()) / 2))
        return (trained * kept).to(trained.dtype)

    def leaves_alone(self, length: int) -> bool:
        return self.clip is not None and self.clip <= 1
