"""YaRN: slow frequencies are interpolated, fast ones kept, and the attention is sharpened by a fixed amount.

    dim(r)   = d ln(n_train / (2 pi r)) / (2 ln base)               the pair that turns r times within the training length
    ramp_i   = (i - low) / (high - low) within 0 ... 1,   low = floor(dim(beta_fast)),  high = ceil(dim(beta_slow))
    theta'_i = ramp_i theta_i / s + (1 - ramp_i) theta_i            Peng et al. 2023
    g        = (0.1 ln s + 1)^2

g is the same for every length, short inputs included; `temperature=false` leaves it out and keeps the frequencies, for a
calibrated temperature to take its place. `base` is the model's own, and follows from theta_1 when nobody says it. With
`dynamic` no factor is given: s is how many times longer than the training length the input is, and 1 up to it, which is left
alone; a layer with a window of the model's own goes by the keys that a row sees there. As in the paper g multiplies the whole
logit; transformers puts its root on cos and sin, which is the same unless a model rotates only a part of every key.

Paper: Peng et al. 2023, arXiv:2309.00071
Code: https://github.com/jquesnelle/yarn
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Yarn:
    factor: float | None = None
    train_length: int = field(kw_only=True)
    base: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    temperature: bool = True
    dynamic: bool = False

    layers_agree = True

    def __post_init__(self) -> None:
        known = self.factor is not None or self.dynamic
        require(known, "method 'yarn' needs factor; write yarn:factor=..., or yarn:dynamic=true for one that follows the input")
        alone = self.factor is None or not self.dynamic
        require(
            alone, f"yarn:dynamic=true takes its factor from each input, and factor={self.factor} too; leave one of them out"
        )
        fits = self.factor is None or 1 <= self.factor < math.inf
        require(fits, f"yarn needs factor >= 1, not {self.factor}: inputs get that many times longer")
        require(self.base is None or 1 < self.base < math.inf, f"yarn needs base > 1, not {self.base}")
        ordered = 0 < self.beta_slow < self.beta_fast < math.inf
        require(ordered, f"yarn needs 0 < beta_slow < beta_fast, not {self.beta_slow} and {self.beta_fast}")
        shortest = 2 * math.pi * self.beta_slow
        turns = self.train_length > shortest
        require(
            turns, f"yarn needs train_length > {shortest:.3g}, not {self.train_length}: no pair turns {self.beta_slow:g} times"
        )

    @property
    def stock_rotation(self) -> dict[str, object] | None:
        """The `rope_parameters` of a config.json that do this in a stock checkpoint; None if dynamic or of unknown base."""
        factor = self.factor
        if self.base is None or factor is None:
            return None
        stretched = {"rope_type": "yarn", "rope_theta": self.base, "factor": factor}
        betas = (
            {"beta_fast": self.beta_fast, "beta_slow": self.beta_slow} if (self.beta_fast, self.beta_slow) != (32, 1) else {}
        )
        told = {**stretched, "original_max_position_embeddings": self.train_length, **betas}
        # SGLang multiplies YaRN's own factor by another
        return told if self.temperature else {**told, "attention_factor": 1.0, "attn_factor": 1 / (0.1 * math.log(factor) + 1)}

    def frequencies(self, trained: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        low, high = self._bounds(trained)
        index = torch.arange(len(trained), dtype=torch.float64, device=trained.device)
        ramp = ((index - low) / (high - low)).clamp(0, 1)
        return (trained * (1 - ramp * (1 - 1 / self._stretch(length)))).to(trained.dtype)

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:  # [..., rows] -> [..., rows or 1]
        if not self.temperature:
            return torch.ones_like(visible, dtype=torch.float32)
        if self.factor is not None:
            return torch.full_like(visible, (0.1 * math.log(self.factor) + 1) ** 2, dtype=torch.float32)
        stretch = visible.amax(-1, keepdim=True).clamp_min(self.train_length).double() / self.train_length
        return (0.1 * stretch.log() + 1).square().float()

    def leaves_alone(self, length: int) -> bool:
        return self._stretch(length) == 1

    def _stretch(self, length: int) -> float:
        return max(1.0, length / self.train_length) if self.factor is None else self.factor

    def _bounds(self, trained: Tensor) -> tuple[float, float]:
        """(low, high), never equal, so that the ramp has a slope."""
        d = 2 * len(trained)
        base = self.base
        if base is None:
            theta = float(trained[1]) if len(trained) > 1 else 0.0
            require(0 < theta < 1, "yarn cannot tell the base from this model's frequencies; write yarn:base=...")
            base = theta ** -len(trained)
        low, high = (
            d * math.log(self.train_length / (2 * math.pi * turns)) / (2 * math.log(base))
            for turns in (self.beta_fast, self.beta_slow)
        )
        first = max(math.floor(low), 0)
        return first, max(min(math.ceil(high), d - 1), first + 0.001)
