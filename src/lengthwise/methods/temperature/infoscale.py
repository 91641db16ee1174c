"""InfoScale: keep a row's entropy what it was at training length.

    g(n) = sqrt((1 - n^(-2/d)) / (1 - n_train^(-2/d)))              Entropy Invariance, Table 6, epsilon = 0

Derived for keys on a sphere in d dimensions; `key_size` is d, the key size of one head. Shorter inputs than the training
length keep g = 1 unless `clamp` is off, because the law would flatten them.

Paper: Li et al. 2025 (Entropy Invariance), arXiv:2501.08570
Code: https://github.com/HT-NEKO/InfoScale
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class InfoScale:
    train_length: int
    key_size: int
    clamp: bool = True

    layers_agree = True

    def __post_init__(self) -> None:
        require(self.train_length > 1, f"infoscale needs train_length > 1, not {self.train_length}")
        require(self.key_size > 0, f"infoscale needs key_size > 0, not {self.key_size}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        n = visible.clamp_min(self.train_length) if self.clamp else visible.clamp_min(2)
        trained = _sphere(torch.tensor(self.train_length), self.key_size)
        return torch.sqrt(_sphere(n, self.key_size) / trained.to(n.device)).float()


def _sphere(n: Tensor, key_size: int) -> Tensor:
    return 1 - n.double() ** (-2 / key_size)
