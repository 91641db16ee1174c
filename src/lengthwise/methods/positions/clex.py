"""CLEX: frequencies follow a trainable differential equation in the length, which starts out as NTK.

    d ln theta / dt = prior'(t) + W_down silu(W_up (ln theta + prior(t)))       Chen et al. 2024
    prior_i(t)      = ln theta_i(1) - 2i/(d-2) ln(2t - 1)                       NTK with factor 2t - 1
    g               = ln N / ln n_train,   N keys of the sequence's widest row

t is the input's length in training lengths, rounded up, and 1 up to the training length; training may ask for any t >= 1 with
`at`. W_down starts at zero; the prior is integrated exactly and the network by `steps` Runge-Kutta steps a training length, so
that untrained CLEX is NTK itself. As in the released code g is one number for all rows of a sequence and is not clamped: inputs
shorter than the training length are flattened. `log_scale=false` leaves g out. `weights` is a safetensors file made by `save`.

Paper: Chen et al. 2024, arXiv:2310.16450
Code: https://github.com/DAMO-NLP-SG/CLEX
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from lengthwise.errors import require
from lengthwise.methods import weights as weights_file


class Clex(nn.Module):
    """A module and no dataclass, as it has parameters to train. `width` is the network's, by default d."""

    dynamic = True

    layers_agree = True

    def __init__(
        self,
        train_length: int,
        rotary_size: int,
        width: int | None = None,
        seed: int = 0,
        steps: int = 10,
        log_scale: bool = True,
        weights: str | None = None,
    ) -> None:
        super().__init__()
        width = rotary_size if width is None else width
        require(train_length > 1, f"clex needs train_length > 1, not {train_length}")
        even = rotary_size > 0 and rotary_size % 2 == 0
        require(even, f"clex needs an even rotary_size, not {rotary_size}: it is rotated in pairs")
        require(width > 0, f"clex needs width > 0, not {width}")
        require(steps > 0, f"clex needs steps > 0 a training length, not {steps}")
        self.train_length, self.rotary_size, self.width, self.seed = train_length, rotary_size, width, seed
        self.steps, self.log_scale, self.weights = steps, log_scale, weights
        self.pairs = rotary_size // 2
        self.up = nn.Parameter(torch.empty(width, self.pairs))
        self.down = nn.Parameter(torch.zeros(self.pairs, width))
        nn.init.kaiming_uniform_(self.up, a=math.sqrt(5), generator=torch.Generator().manual_seed(seed))
        if weights is not None:
            weights_file.load(self, weights, "CLEX weights", "to start from NTK")

    def frequencies(self, trained: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        return self.at(trained, max(1, math.ceil(length / self.train_length)))

    def at(self, trained: Tensor, t: float) -> Tensor:
        """The frequencies at t >= 1 training lengths; gradients reach both matrices."""
        pairs = len(trained)
        fits = pairs == self.pairs
        require(fits, f"clex was made for {self.pairs} pairs, this model rotates {pairs}; write clex:rotary_size={2 * pairs}")
        require(1 <= t < math.inf, f"clex is defined from t = 1, the training length, not at {t}")
        require(bool((trained > 0).all()), "clex needs a logarithm of every frequency and this model has some that are 0")
        share = torch.arange(pairs, dtype=trained.dtype, device=trained.device) / max(pairs - 1, 1)  # 2i/(d-2)
        return trained * (2 * t - 1) ** -share * self._departure(trained.log(), share, t).exp()

    def _departure(self, log_trained: Tensor, share: Tensor, t: float) -> Tensor:
        """z = ln theta - prior at t, from z = 0 at 1."""
        up, down = self.up.to(log_trained), self.down.to(log_trained)

        def slope(time: float, z: Tensor) -> Tensor:
            prior = log_trained - share * math.log(2 * time - 1)
            return down @ nn.functional.silu(up @ (z + 2 * prior))

        count = math.ceil((t - 1) * self.steps)
        z = torch.zeros_like(log_trained)
        for step in range(count):
            h = (t - 1) / count
            time = 1 + step * h
            k1 = slope(time, z)
            k2 = slope(time + h / 2, z + h / 2 * k1)
            k3 = slope(time + h / 2, z + h / 2 * k2)
            k4 = slope(time + h, z + h * k3)
            z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return z

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:  # [..., rows] -> [..., 1]
        widest = visible.amax(-1, keepdim=True).clamp_min(1)
        if not self.log_scale:
            return torch.ones_like(widest, dtype=torch.float32)
        return widest.double().log().div(math.log(self.train_length)).float()

    def leaves_alone(self, length: int) -> bool:
        return length <= self.train_length

    def extra_repr(self) -> str:
        sizes = f"train_length={self.train_length}, rotary_size={self.rotary_size}"
        return f"{sizes}, log_scale={self.log_scale}, weights={self.weights}"

    def save(self, path: str | Path) -> None:
        weights_file.save(self, path)
