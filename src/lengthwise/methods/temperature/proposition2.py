"""Proposition 2: the temperature that keeps the entropy, for Gaussian logits.

    t = s / sqrt(s_train^2 + 2 ln(n / n_train))                     Chi et al., section 6.3 and appendix A.3

It follows from H = ln n - s^2 / (2 t^2). The sigmas belong to the sorted, then averaged logit vector of layer 0.

Paper: Chi et al. 2023, arXiv:2311.00684
Code: https://github.com/chijames/Attention-Alignment-Transformer-Length-Extrapolation
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import require


def proposition2(train_length: float, length: float, sigma_train: float, sigma: float) -> float:
    return sigma / math.sqrt(sigma_train**2 + 2 * math.log(length / train_length))


@dataclass(frozen=True)
class Proposition2:
    """The law of n that follows from Proposition 2; `sigma` is `sigma_train` at every n unless it is given."""

    train_length: int
    sigma_train: float
    sigma: float | None = None

    layers_agree = True

    def __post_init__(self) -> None:
        sigma = self.sigma_train if self.sigma is None else self.sigma
        positive = 0 < self.sigma_train < math.inf and 0 < sigma < math.inf
        require(positive, f"proposition2 needs sigmas > 0, not sigma_train={self.sigma_train}, sigma={sigma}")
        require(self.train_length > 0, f"proposition2 needs train_length > 0, not {self.train_length}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        sigma = self.sigma_train if self.sigma is None else self.sigma
        stretch = visible.double().div(self.train_length).clamp_min(1).log()
        g = torch.sqrt(self.sigma_train**2 + 2 * stretch) / sigma
        return torch.where(visible > self.train_length, g, 1.0).float()
