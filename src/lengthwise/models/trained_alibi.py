"""ALiBi that a model of this package was trained with: -slope_h |distance|, kept and offered as T5 keeps its learned bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init

from lengthwise.errors import require

# Most tokens: extended models read the bias from a table of so many distances each way
REACH = 2**16


class AlibiSlopes(nn.Module):
    """One number a head, where T5 has its table. No checkpoint holds it: config.alibi_factors carries a baked temperature."""

    weight: Tensor

    def __init__(self, slopes: Sequence[float], factors: Sequence[float] | None = None) -> None:
        super().__init__()
        self.trained = tuple(slopes)
        self.factors = (1.0,) * len(slopes) if factors is None else tuple(factors)
        self.register_buffer("weight", torch.tensor(self.slopes), persistent=False)

    @property
    def slopes(self) -> tuple[float, ...]:
        return tuple(slope * factor for slope, factor in zip(self.trained, self.factors, strict=True))

    def sharpen(self, factors: Sequence[float]) -> None:
        """Multiply every slope, now and in a copy that is made with these `factors`."""
        self.factors = tuple(old * new for old, new in zip(self.factors, factors, strict=True))
        self.weight.copy_(torch.tensor(self.slopes))

    def restore(self) -> None:
        """After transformers has made the buffer anew, for a loaded model."""
        init.copy_(self.weight, torch.tensor(self.slopes))

    def bias(self, queries: int, keys: int, before: int, device: torch.device | None = None) -> Tensor:
        """[1, heads, queries, keys]; `before` tokens stand before the first query."""
        device = self.weight.device if device is None else device
        own = torch.arange(queries, device=device) + before
        distance = torch.arange(keys, device=device) - own[:, None]
        return -self.weight.to(device)[None, :, None, None] * distance.abs()


def check_factors(config: Any) -> None:
    layers, heads, factors = config.num_hidden_layers, config.num_attention_heads, config.alibi_factors
    fits = factors is None or [len(row) for row in factors] == [heads] * layers
    require(fits, f"alibi_factors must be {layers} lists, one a layer, of {heads} numbers; leave it out for those of ALiBi")


def factors_of(config: Any, layer: int) -> Sequence[float] | None:
    return None if config.alibi_factors is None else config.alibi_factors[layer]
