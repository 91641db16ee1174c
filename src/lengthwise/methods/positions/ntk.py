"""NTK: a larger base slows low frequencies down by the factor and leaves the highest one as it is.

    base' = base s^(d/(d-2)),   that is   theta'_i = theta_i s^(-2i/(d-2))      bloc97 2023

With `dynamic`, s follows the input: s n / n_train - (s - 1), and 1 up to the training length, which is left alone. There the
factor may be left out and is 1, so that s is how many times longer the input is, as transformers' dynamic rotation has it.
n counts the keys that the widest row of a layer sees: a narrow window of the model's own leaves its layer as it is.

Paper: bloc97 2023, https://www.reddit.com/r/LocalLLaMA/comments/14lz7j5/
Paper: emozilla 2023 (dynamic), https://www.reddit.com/r/LocalLLaMA/comments/14mrgpr/
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Ntk:
    factor: float | None = None
    train_length: int = field(kw_only=True)
    dynamic: bool = False

    def __post_init__(self) -> None:
        known = self.factor is not None or self.dynamic
        require(known, "method 'ntk' needs factor; write ntk:factor=..., or ntk:dynamic=true for one that follows the input")
        require(
            1 <= self._given_factor < math.inf, f"ntk needs factor >= 1, not {self.factor}: inputs get that many times longer"
        )
        require(self.train_length > 0, f"ntk needs train_length > 0, not {self.train_length}")

    @property
    def stock_rotation(self) -> dict[str, object] | None:
        """The `rope_parameters` of a config.json that follow the input; without `dynamic` another base does."""
        return {"rope_type": "dynamic", "factor": self._given_factor} if self.dynamic else None

    def frequencies(self, trained: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        # 2i/(d-2) from 0 to 1; a single pair has nothing but the highest frequency
        share = torch.arange(len(trained), dtype=torch.float64, device=trained.device) / max(len(trained) - 1, 1)
        return (trained * self._stretch(length) ** -share).to(trained.dtype)

    def leaves_alone(self, length: int) -> bool:
        return self._stretch(length) == 1

    @property
    def _given_factor(self) -> float:
        return 1.0 if self.factor is None else self.factor

    def _stretch(self, length: int) -> float:
        if not self.dynamic:
            return self._given_factor
        return self._given_factor * max(length, self.train_length) / self.train_length - (self._given_factor - 1)
