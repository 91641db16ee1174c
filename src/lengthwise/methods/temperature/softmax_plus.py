"""Softmax plus: the log law with 512 as its base, whatever the training length.

    g(n) = ln n / ln 512                                            Su 2022 (GAU-alpha); Entropy Invariance, Table 6

Equals `log` for a model trained on 512 tokens. Meant for models trained with it, so short rows are flattened (g < 1) by
default, as there; `clamp` keeps them at 1.

Paper: Su 2021, https://kexue.fm/archives/8823
Code: https://github.com/ZhuiyiTechnology/GAU-alpha
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class SoftmaxPlus:
    base: int = 512
    clamp: bool = False

    layers_agree = True

    def __post_init__(self) -> None:
        require(self.base > 1, f"softmax_plus needs base > 1, not {self.base}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        n = visible.clamp_min(self.base if self.clamp else 1)
        return n.double().log().div(math.log(self.base)).float()
