"""Log: sharpen in proportion to the logarithm of the length.

    g(n) = ln n / ln n_train                                        Su 2021; Yao et al. 2021; Chi et al.'s baseline

The temperature log_n(n_train) of Chi et al.'s tables. Rows that see fewer keys than the training length keep g = 1 unless
`clamp` is off.

Paper: Su 2021, https://kexue.fm/archives/8823
Paper: Yao et al. 2021, arXiv:2105.11115
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Log:
    train_length: int
    clamp: bool = True

    layers_agree = True

    def __post_init__(self) -> None:
        require(self.train_length > 1, f"log needs train_length > 1, not {self.train_length}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        n = visible.clamp_min(self.train_length if self.clamp else 1)
        return n.double().log().div(math.log(self.train_length)).float()
