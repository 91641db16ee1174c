"""Proposition 1: the temperature that keeps P_max, for Gaussian logits whose largest entry does not grow.

    A t^2 - B t + C = 0, larger root                                Chi et al., section 6.2 and appendix A.2
    A = ln n + ln P,  B = ln n_train + ln P + s_train^2 / 2,  C = s^2 / 2

P and s_train belong to the sorted, then averaged logit vector of layer 0 at the training length, s to the same at the
extrapolated length (not to Algorithm 1's averages). The formula comes from P = exp(l_max / t) / (n exp(s^2 / (2 t^2))). It can
have no real root; then no temperature restores P_max under its assumptions, and we say so.

Paper: Chi et al. 2023, arXiv:2311.00684
Code: https://github.com/chijames/Attention-Alignment-Transformer-Length-Extrapolation
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.errors import require


def proposition1(train_length: float, length: float, p_max: float, sigma_train: float, sigma: float) -> float:
    """The temperature at `length`, or BadInput when the quadratic has no positive real root."""
    a, b, c = _coefficients(train_length, length, p_max, sigma_train, sigma)
    require(
        _has_root(a, b, c),
        f"Proposition 1 has no real root at length {length:g} (A = {a:.3f}, B = {b:.3f}, C = {c:.3f}): no temperature "
        "restores P_max for such Gaussian logits; calibrate with `lengthwise calibrate` instead",
    )
    return (b + math.sqrt(b * b - 4 * a * c)) / (2 * a)


def _coefficients(
    train_length: float, length: float, p_max: float, sigma_train: float, sigma: float
) -> tuple[float, float, float]:
    log_p = math.log(p_max)
    return math.log(length) + log_p, math.log(train_length) + log_p + sigma_train**2 / 2, sigma**2 / 2


def _has_root(a: float, b: float, c: float) -> bool:
    return b * b - 4 * a * c >= 0 and a > 0 and b > 0


@dataclass(frozen=True)
class Proposition1:
    """The law of n that follows from Proposition 1; `sigma` is `sigma_train` at every n unless it is given."""

    train_length: int
    p_max: float
    sigma_train: float
    sigma: float | None = None

    layers_agree = True

    def __post_init__(self) -> None:
        sigma = self.sigma_train if self.sigma is None else self.sigma
        require(0 < self.p_max <= 1, f"proposition1 needs 0 < p_max <= 1, not {self.p_max}")
        positive = 0 <= self.sigma_train < math.inf and 0 <= sigma < math.inf
        require(positive, f"proposition1 needs sigmas >= 0, not sigma_train={self.sigma_train}, sigma={sigma}")
        require(self.train_length > 0, f"proposition1 needs train_length > 0, not {self.train_length}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        beyond = visible > self.train_length
        self._refuse(visible[beyond])
        _, b, c = _coefficients(*self._at(self.train_length))
        a = visible.double().log() + math.log(self.p_max)
        # Rounding may take the discriminant of a double root below zero
        g = 2 * a / (b + (b * b - 4 * a * c).clamp_min(0).sqrt())
        return torch.where(beyond, g, 1.0).float()

    def _refuse(self, lengths: Tensor) -> None:
        """Raise BadInput that names the shortest length without a root. A grows with n: if both ends have one, all have."""
        if not len(lengths):
            return
        ends = lengths.min().item(), lengths.max().item()
        if not all(_has_root(*_coefficients(*self._at(n))) for n in ends):
            for n in torch.unique(lengths).tolist():
                proposition1(*self._at(n))

    def _at(self, n: float) -> tuple[float, float, float, float, float]:
        sigma = self.sigma_train if self.sigma is None else self.sigma
        return self.train_length, n, self.p_max, self.sigma_train, sigma
