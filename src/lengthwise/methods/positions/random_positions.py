"""RandomPos: train on short inputs whose positions are a sorted random sample of a longer range.

    p_1 < ... < p_n  drawn without replacement from 0 ... target - 1                 Ruoss et al. 2023

It changes training data and not the attention, so it is no method for a loaded model and not in the registry: give the
collator to a trainer.

Paper: Ruoss et al. 2023, arXiv:2305.16843
Code: https://github.com/google-deepmind/randomized_positional_encodings
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import require
from lengthwise.methods.sampled_positions import Features, Generators, with_positions


def positions(length: int, target: int, generator: torch.Generator | None = None) -> Tensor:  # [length]
    """Positions of one sequence of `length` tokens out of `target` places."""
    require(target >= length, f"random positions need a target of at least the input's {length} tokens, not {target}")
    return torch.randperm(target, generator=generator)[:length].sort().values


class RandomPositionsCollator:
    """Adds `position_ids` to a batch, or to a list of features of one length; each sequence draws its own."""

    def __init__(self, target: int, seed: int = 0) -> None:
        require(target >= 1, f"random positions need a target >= 1, not {target}")
        self.target = target
        self._generators = Generators(seed)

    def __call__(self, features: Features) -> dict[str, Any]:
        return with_positions(features, lambda tokens: positions(tokens, self.target, self._generators.here()))
