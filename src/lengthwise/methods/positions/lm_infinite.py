"""LM-Infinite: a row sees as far as the training length and the first few keys, these at no larger distance.

    j in visible(i)   when   |i - j| < n_train  or  j < sinks       Han et al. 2024, the lambda-shaped mask
    distance'(i, j) = min(|i - j|, n_train)

The paper keeps 10 to 100 first keys of a sequence; Entropy Invariance takes 5.

Paper: Han et al. 2024, arXiv:2308.16137
Code: https://github.com/Glaciohound/LM-Infinite
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lengthwise.attention.parts import Part, as_they_stand, first_keys
from lengthwise.attention.visible import Visible
from lengthwise.errors import require
from lengthwise.methods.base import SinksAndWindow


@dataclass(frozen=True)
class LMInfinite:
    train_length: int
    sinks: int = 10

    def __post_init__(self) -> None:
        require(self.train_length >= 1, f"lm_infinite needs train_length >= 1, not {self.train_length}")
        require(self.sinks >= 0, f"lm_infinite needs sinks >= 0, not {self.sinks}")

    @property
    def sinks_and_window(self) -> SinksAndWindow:
        return SinksAndWindow(self.sinks, self.train_length)

    def narrow(self, whole: Visible) -> Visible:
        return whole.around(1 - self.train_length, self.train_length)

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        sinks = first_keys(whole, seen, self.sinks)
        parts = [as_they_stand(seen)]
        if sinks.sees_some:
            query = torch.full_like(whole.position, self.train_length)[None]
            parts.append(Part(sinks, query, query.new_zeros((1, whole.keys))))
        return parts

    def leaves_alone(self, length: int) -> bool:
        return length <= self.train_length
