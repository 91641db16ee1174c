"""ReRoPE: keys beyond a window are all seen at one distance, the window's.

    distance'(i, j) = |i - j|                     below w           Su 2023
                    = w                           from there on,    leaky: w + (|i - j| - w) / leak

Before and behind the row alike where a mask is bidirectional. `window` is w, by default half the training length. `log_scale`
adds the original's g = max(1, ln n / ln n_train).

Paper: Su 2023, https://kexue.fm/archives/9708
Code: https://github.com/bojone/rerope
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.attention.parts import Part, as_they_stand, near_and_far, with_keys
from lengthwise.attention.visible import Visible
from lengthwise.errors import require


@dataclass(frozen=True)
class ReRoPE:
    train_length: int
    window: int = None  # type: ignore[assignment]  # a number once the method is made
    leak: float | None = None
    log_scale: bool = False

    layers_agree = True

    def __post_init__(self) -> None:
        require(self.train_length > 1, f"rerope needs train_length > 1, not {self.train_length}")
        if self.window is None:
            object.__setattr__(self, "window", self.train_length // 2)
        require(self.window >= 1, f"rerope needs window >= 1, not {self.window}")
        require(
            self.window <= self.train_length,
            f"a window of {self.window} is larger than the training length {self.train_length}: "
            "far keys would stand at a distance the model never saw",
        )
        divides = self.leak is None or 1 <= self.leak < math.inf
        require(divides, f"rerope needs leak >= 1, not {self.leak}: distances beyond the window are divided by it")

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        near, before, behind = near_and_far(seen, self.window)
        return with_keys([as_they_stand(near), self._far(before, side=1), self._far(behind, side=-1)])

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        if not self.log_scale:
            return torch.ones_like(visible, dtype=torch.float32)
        return visible.clamp_min(self.train_length).double().log().div(math.log(self.train_length)).float()

    def leaves_alone(self, length: int) -> bool:
        return length <= self.window

    def _far(self, visible: Visible, side: int) -> Part:
        """Keys before the row (side 1) or behind it (side -1), at a distance that no longer grows, or grows slowly."""
        row, key = visible.position[None], torch.arange(visible.keys, device=visible.position.device)[None]
        edge = side * self.window
        if self.leak is None:
            return Part(visible, torch.full_like(row, edge), torch.zeros_like(key))
        return Part(visible, edge + (row - edge) / self.leak, key / self.leak)
