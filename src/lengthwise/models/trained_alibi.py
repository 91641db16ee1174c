"""ALiBi that a model of this package was trained with: -slope_h |distance|, kept and offered as T5 keeps its learned bias."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import initialization as init

# Most tokens: extended models read the bias from a table of so many distances each way
REACH = 2**16


class AlibiSlopes(nn.Module):
    """One number a head, where T5 has its table."""

    weight: Tensor

    def __init__(self, slopes: Sequence[float]) -> None:
        super().__init__()
        self.slopes = tuple(slopes)
        self.register_buffer("weight", torch.tensor(self.slopes), persistent=False)

    def restore(self) -> None:
        """After transformers has made the buffer anew, for a loaded model."""
        init.copy_(self.weight, torch.tensor(self.slopes))

    def bias(self, queries: int, keys: int, before: int, device: torch.device | None = None) -> Tensor:
        """[1, heads, queries, keys]; `before` tokens stand before the first query."""
        device = self.weight.device if device is None else device
        own = torch.arange(queries, device=device) + before
        distance = torch.arange(keys, device=device) - own[:, None]
        return -self.weight.to(device)[None, :, None, None] * distance.abs()
