"""CosScale: queries and keys meet by their angle alone, times a constant.

    similarity(q, k) = S cos(q, k)                                  Entropy Invariance, equation 6 without its 1/sqrt(d)

Both are brought to length 1 before they are rotated; S takes the place of 1/sqrt(d), 128 in the paper, 16 with a window. Only
for models trained with it. A larger S draws all angles together, so that positions decide; Theorem 3.4's likeliest cosine is

    eta* = (sqrt((d - 3)^2 + 4 S^2) - (d - 3)) / (2 S)

Paper: Li et al. 2025 (Entropy Invariance), arXiv:2501.08570
Code: https://github.com/HT-NEKO/InfoScale
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import normalize

from lengthwise.errors import require


@dataclass(frozen=True)
class CosScale:
    scale: float = 128.0

    def __post_init__(self) -> None:
        _check(self.scale)

    def similarity(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        """Queries and keys of length 1, [..., key_size], and the factor of their product."""
        return normalize(query, dim=-1), normalize(key, dim=-1), float(self.scale)


def peak(scale: float, key_size: int) -> float:
    """eta*, where e^(S eta) (1 - eta^2)^((d-3)/2) is largest: Theorem 3.4's peak of the cosines of a trained model."""
    _check(scale)
    require(key_size >= 3, f"the peak is inside -1 ... 1 for key_size >= 3, not {key_size}")
    free = key_size - 3
    # The same root as in the theorem, without its difference of two large numbers at a small scale
    return 2 * scale / (free + math.hypot(free, 2 * scale))


def _check(scale: float) -> None:
    require(0 < scale < math.inf, f"cosscale needs scale > 0, not {scale}")
