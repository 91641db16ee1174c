"""SSMax, the scalable softmax: an exponent that grows with the logarithm of the length.

    g(n) = s ln n                                                   Nakanishi 2025; s about 0.43 after training

Meant for models trained with it; `s` is then theirs. At s = 1 / ln(n_train) it equals `log` without its clamp.

Paper: Nakanishi 2025, arXiv:2501.19399
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class SSMax:
    s: float = 0.43

    layers_agree = True

    def __post_init__(self) -> None:
        require(0 < self.s < math.inf, f"ssmax needs s > 0, not {self.s}")

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return visible.clamp_min(1).double().log().mul(self.s).float()
