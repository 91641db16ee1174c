"""Ms-PoE: positions are divided by a number that differs from head to head, so that some heads see what stands in the middle.

    distance'(i, j) = (i - j) / r_h,   r_h = r_min + (r_max - r_min) h / H          Zhang et al. 2024

`min_ratio` and `max_ratio` are r_min and r_max; the first `skip` layers are left as they are, as the released code leaves two.
That code orders heads by the number of keys that stand out to the last row of the first prompt, so what it computes depends on
what came first. Here heads keep the model's order. Heads that share keys share a ratio, since a row and its keys must be
divided by the same number: h counts the H key heads.

Paper: Zhang et al. 2024, arXiv:2403.04797
Code: https://github.com/VITA-Group/Ms-PoE
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from lengthwise.attention.parts import Part, as_they_stand
from lengthwise.attention.visible import Visible
from lengthwise.errors import require


@dataclass(frozen=True)
class MsPoE:
    key_heads: int
    min_ratio: float = 1.2
    max_ratio: float = 1.8
    skip: int = 2

    def __post_init__(self) -> None:
        require(self.key_heads >= 1, f"ms_poe needs key_heads >= 1, not {self.key_heads}")
        ordered = 1 <= self.min_ratio <= self.max_ratio < math.inf
        require(ordered, f"ms_poe needs 1 <= min_ratio <= max_ratio, not {self.min_ratio} and {self.max_ratio}")
        require(self.skip >= 0, f"ms_poe needs skip >= 0, not {self.skip}: the number of first layers left as they are")

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        part = as_they_stand(seen)
        share = torch.arange(self.key_heads, dtype=torch.float64, device=seen.position.device)[:, None] / self.key_heads
        ratio = self.min_ratio + (self.max_ratio - self.min_ratio) * share  # [key_heads, 1]
        return [Part(seen, part.query[:, None] / ratio, part.key[:, None] / ratio)]

    def acts_on(self, layer: int) -> bool:
        return layer >= self.skip

    def leaves_alone(self, length: int) -> bool:
        return self.max_ratio == 1
