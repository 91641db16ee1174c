"""Log-length: multiply the logits by the logarithm of the length.

    g(n) = ln n                                                     Chiang and Cholak 2022; Entropy Invariance, Table 6

Meant for models trained with it; on a model that was not, it is no identity at any training length.

Paper: Chiang and Cholak 2022, arXiv:2202.12172
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LogLength:
    layers_agree = True

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return visible.clamp_min(1).double().log().float()
