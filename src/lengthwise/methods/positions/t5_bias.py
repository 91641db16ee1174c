"""T5's bias: a learned number for every head and bucket of distances, for models trained with it.

    bucket(d) = d                                                   below buckets / 2
              = exact + ln(d / exact) / ln(max_distance / exact) (buckets - exact)    from there on, the last one for ever
                                                                    Raffel et al. 2020, exact = buckets / 2

d counts tokens back from the row. With `bidirectional` half of the buckets are for keys behind it. The table starts at zero and
changes nothing until it is trained, or read from a safetensors file `weights` written by `save`. Meant for models without a
rotation: `t5_bias+nope` takes a rotary model's away.

Paper: Raffel et al. 2020, arXiv:1910.10683
Code: https://github.com/google-research/text-to-text-transfer-transformer
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from lengthwise.errors import require
from lengthwise.methods import weights as weights_file


class T5Bias(nn.Module):
    """A module, as it has a table to train; no length is left alone, not even at zero: its gradient must find it."""

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = False,
        weights: str | None = None,
    ) -> None:
        super().__init__()
        require(heads >= 1, f"t5_bias needs heads >= 1, not {heads}")
        least = 4 if bidirectional else 2
        require(buckets >= least and buckets % least == 0, f"t5_bias needs a multiple of {least} buckets, not {buckets}")
        side = buckets // 2 if bidirectional else buckets
        apart = max_distance > side // 2
        require(apart, f"t5_bias needs max_distance > {side // 2}, not {max_distance}: up to there each has its own bucket")
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.bidirectional, self.weights = bidirectional, weights
        self.table = nn.Parameter(torch.zeros(buckets, heads))
        if weights is not None:
            weights_file.load(self, weights, "table of biases", "to start at zero")

    def distance_bias(self, heads: int, radius: int) -> Tensor:  # [heads, 2 * radius + 1]
        fits = heads == self.heads
        require(fits, f"t5_bias was made for {self.heads} heads, this model has {heads}; write t5_bias:heads={heads}")
        distance = torch.arange(-radius, radius + 1, device=self.table.device)
        return self.table[self._bucket(distance)].T

    def _bucket(self, distance: Tensor) -> Tensor:
        """The row of the table for each distance, key minus query."""
        side = self.buckets // 2 if self.bidirectional else self.buckets
        behind = (distance > 0).long() * side if self.bidirectional else torch.zeros_like(distance)
        back = distance.abs() if self.bidirectional else (-distance).clamp_min(0)
        exact = side // 2
        # In float32, as the models were trained
        share = torch.log(back.clamp_min(1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (share * (side - exact)).long()).clamp_max(side - 1)
        return behind + torch.where(back < exact, back, far)

    def save(self, path: str | Path) -> None:
        weights_file.save(self, path)
