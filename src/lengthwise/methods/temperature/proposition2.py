"""Proposition 2: the temperature that keeps the entropy, for Gaussian logits.

    t = s / sqrt(s_train^2 + 2 ln(n / n_train))                     paper 000, section 6.3 and appendix A.3

It follows from H = ln n - s^2 / (2 t^2). The sigmas belong to the sorted, then averaged logit vector of layer 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import BadInput


def proposition2(train_length: float, length: float, sigma_train: float, sigma: float) -> float:
    return sigma / math.sqrt(sigma_train**2 + 2 * math.log(length / train_length))


@dataclass(frozen=True)
class Proposition2:
    """`sigma` is taken as constant in n when not given apart from `sigma_train`."""

    train_length: int
    sigma_train: float
    sigma: float | None = None

    def __post_init__(self) -> None:
        if self.sigma_train <= 0 or (self.sigma is not None and self.sigma <= 0):
            raise BadInput(f"proposition2 needs sigmas > 0, not sigma_train={self.sigma_train}, sigma={self.sigma}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        sigma = self.sigma_train if self.sigma is None else self.sigma
        stretch = visible.double().div(self.train_length).clamp_min(1).log()
        g = torch.sqrt(self.sigma_train**2 + 2 * stretch) / sigma
        return torch.where(visible > self.train_length, g, 1.0).float()
