"""NoPE: no rotation at all, so that keys have no place.

    theta_i = 0                                                     Kazemnejad et al. 2023

A causal model can still tell positions from how many keys a row sees, if it was trained so.

Paper: Kazemnejad et al. 2023, arXiv:2305.19466
Code: https://github.com/McGill-NLP/length-generalization
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Nope:
    def frequencies(self, trained: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        return torch.zeros_like(trained)
