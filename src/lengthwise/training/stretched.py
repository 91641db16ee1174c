"""CLEX while it is trained: every step reads its tokens as a sample of a longer text.

    t ~ U[max(1, L / n_train), stretch],   positions ~ a sorted sample of 0 ... t n_train - 1       Chen et al. 2024

At the training length CLEX is the model's own rotation, so nothing of it would be learnt there; so the frequencies are those at
t, and the positions are spread over the length they are for. The draw follows from the seed and the step alone: every process
and every resumed run draws the same, and both readings of a row stand at the same places.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lengthwise.attention.parts import Part
from lengthwise.attention.visible import Visible
from lengthwise.errors import require
from lengthwise.methods.positions.clex import Clex
from lengthwise.methods.positions.random_positions import positions


class StretchedClex:
    """CLEX at a length that is drawn for every step."""

    name = "Clex"
    dynamic = True

    def __init__(self, clex: Clex, stretch: float, length: int, seed: int) -> None:
        self.clex, self.seed, self.step = clex, seed, 0
        self.least, self.most = max(1.0, length / clex.train_length), stretch
        above = self.least < self.most
        require(above, f"clex draws t from {self.least:g} on at length {length}; give a --stretch above that, not {stretch:g}")

    @property
    def t(self) -> float:
        """The length of this step, in training lengths."""
        return float(self._drawn.uniform(self.least, self.most))

    def frequencies(self, own: Tensor, length: int) -> Tensor:  # [pairs] -> [pairs]
        return self.clex.at(own, self.t)

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        target = max(whole.keys, int(self.t * self.clex.train_length))
        generator = torch.Generator().manual_seed(int(self._drawn.integers(2**62)))
        place = positions(whole.keys, target, generator).to(whole.position.device)
        return [Part(seen, place[whole.position][None], place[None])]

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        return self.clex.inverse_temperature(visible, layer)

    def leaves_alone(self, length: int) -> bool:
        return False

    @property
    def _drawn(self) -> np.random.Generator:
        # The first number set apart from those that draw e
        return np.random.default_rng([1, self.seed, self.step])
