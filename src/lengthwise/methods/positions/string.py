"""STRING: far keys are drawn near by a fixed shift, onto distances that the model was trained on more often.

    distance'(i, j) = |i - j|                       below S         An et al. 2024
                    = |i - j| - S + W               from there on

Before and behind the row alike where a mask is bidirectional. `shift` is S, by default a third of the training length, and
`window` is W, by default 128 or at most half of S. It is meant for inputs up to the training length; the S - W tokens beyond it
come for nothing. `temperature` adds g = (0.1 ln 2 + 1)^2, which the released code has for Llama and the paper has not.

Paper: An et al. 2024 (STRING), arXiv:2410.18745
Code: https://github.com/HKUNLP/STRING
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.attention.parts import Part, as_they_stand, near_and_far, with_keys
from lengthwise.attention.visible import Visible
from lengthwise.errors import require


@dataclass(frozen=True)
class String:
    train_length: int
    shift: int = None  # type: ignore[assignment]  # a number once the method is made
    window: int = None  # type: ignore[assignment]  # likewise
    temperature: bool = False

    layers_agree = True

    def __post_init__(self) -> None:
        if self.shift is None:
            object.__setattr__(self, "shift", self.train_length // 3)
        if self.window is None:
            object.__setattr__(self, "window", min(128, self.shift // 2))
        require(
            1 <= self.shift < self.train_length,
            f"string needs a shift from 1 to below the training length {self.train_length}, not {self.shift}",
        )
        require(
            0 <= self.window <= self.shift,
            f"string needs a window from 0 to the shift of {self.shift}, not {self.window}: far keys are drawn near",
        )

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        near, before, behind = (as_they_stand(keys) for keys in near_and_far(seen, self.shift))
        nearer = self.shift - self.window
        before, behind = replace(before, query=before.query - nearer), replace(behind, query=behind.query + nearer)
        return with_keys([near, before, behind])

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        g = (0.1 * math.log(2) + 1) ** 2 if self.temperature else 1.0
        return torch.full_like(visible, g, dtype=torch.float32)

    def leaves_alone(self, length: int) -> bool:
        return length <= self.shift or self.window == self.shift
