"""PoSE: train on short inputs whose second part is moved to a random later place.

    p = 0 ... c - 1,  c + u ... n - 1 + u,   c ~ U{1 ... (n+1)/2},  u ~ U{0 ... target - n}       Zhu et al. 2024

It changes training data and not the attention, so it is no method for a loaded model and not in the registry: give the
collator to a trainer, then evaluate with the method (PI, NTK, YaRN) the model was trained with.

Paper: Zhu et al. 2024, arXiv:2309.10400
Code: https://github.com/dwzhu-pku/PoSE
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import require
from lengthwise.methods.sampled_positions import Features, Generators, with_positions


def positions(length: int, target: int, generator: torch.Generator | None = None) -> Tensor:  # [length]
    """Positions of one sequence of `length` tokens that is to learn distances up to `target`."""
    require(target >= length, f"pose needs a target of at least the input's {length} tokens, not {target}")
    first = int(torch.randint(1, (length + 1) // 2 + 1, (), generator=generator)) if length > 0 else 0
    shift = int(torch.randint(0, target - length + 1, (), generator=generator))
    place = torch.arange(length)
    return torch.where(place < first, place, place + shift)


class PoSECollator:
    """Adds `position_ids` to a batch, or to a list of features of one length; each sequence draws its own."""

    def __init__(self, target: int, seed: int = 0) -> None:
        require(target >= 1, f"pose needs a target >= 1, not {target}")
        self.target = target
        self._generators = Generators(seed)

    def __call__(self, features: Features) -> dict[str, Any]:
        return with_positions(features, lambda tokens: positions(tokens, self.target, self._generators.here()))
