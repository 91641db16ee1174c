"""One instance of the one equation, as tensors.

logit(i, j) = g(i) * (scale * q_i . k_j + bias(position_j - position_i)),   j in visible(i)
output(i)   = sum_j softmax_j(logit(i, j)) v_j
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.attention.bias import DistanceBias
from lengthwise.attention.visible import Visible


@dataclass(frozen=True)
class Equation:
    """What every implementation computes; q and k arrive rotated."""

    query: Tensor  # [batch, heads, queries, key_size]
    key: Tensor  # [batch, kv_heads, keys, key_size]
    value: Tensor  # [batch, kv_heads, keys, value_size]
    visible: Visible
    scale: float = 1.0
    bias: DistanceBias | None = None
    inverse_temperature: Tensor | None = None  # g, broadcastable to [batch, heads, queries]; None is 1
    dropout: float = 0.0

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.query.shape[1] // self.key.shape[1]

    @property
    def needs_grad(self) -> bool:
        tensors = (self.query, self.key, self.value, self.bias.table if self.bias else None, self.inverse_temperature)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)

    @property
    def one_temperature_a_head(self) -> bool:
        """True when g does not change along a sequence."""
        return self.inverse_temperature is None or self.inverse_temperature.shape[-1] == 1

    def rows(self, first: int, last: int) -> Equation:
        """The same equation for queries first ... last - 1."""
        g = self.inverse_temperature
        if g is not None and g.shape[-1] > 1:
            g = g[..., first:last]
        return replace(self, query=self.query[:, :, first:last], visible=self.visible.rows(first, last), inverse_temperature=g)
