"""One instance of the one equation, as tensors.

logit(i, j) = g(i) * (scale * q_i . k_j + bias(position_j - position_i)),   j in visible(i)
output(i)   = sum_j softmax_j(logit(i, j)) v_j

Some methods rotate different keys of a row differently. Those keys are further runs of the same rows, `more`, each with queries
and keys of its own; the softmax still goes over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from lengthwise.attention.bias import DistanceBias
from lengthwise.attention.visible import Visible


@dataclass(frozen=True)
class Rest:
    """Further keys of the same rows, disjoint from all others, with queries and keys rotated in another way."""

    query: Tensor
    key: Tensor
    value: Tensor
    visible: Visible

    def rows(self, first: int, last: int) -> Rest:
        return replace(self, query=self.query[:, :, first:last], visible=self.visible.rows(first, last))


@dataclass(frozen=True)
class Equation:
    """The tensors of one attention: what every implementation computes; q and k arrive rotated."""

    query: Tensor  # [batch, heads, queries, key_size]
    key: Tensor  # [batch, kv_heads, keys, key_size]
    value: Tensor  # [batch, kv_heads, keys, value_size]
    visible: Visible
    scale: float = 1.0
    bias: DistanceBias | None = None
    inverse_temperature: Tensor | None = None  # g, broadcastable to [batch, heads, queries]; None is 1
    dropout: float = 0.0
    more: tuple[Rest, ...] = ()

    def __post_init__(self) -> None:
        """Give g its three dimensions."""
        g = self.inverse_temperature
        if g is not None and g.dim() < 3:
            object.__setattr__(self, "inverse_temperature", g[(None,) * (3 - g.dim())])

    @property
    def parts(self) -> list[Equation]:
        """The equation as several, one for each run of keys."""
        runs = [{f.name: getattr(rest, f.name) for f in fields(rest)} for rest in self.more]
        return [replace(self, more=()), *(replace(self, more=(), **run) for run in runs)]

    @property
    def count(self) -> Tensor:
        """Keys that each row sees in all: [batch or 1, queries]."""
        return sum((rest.visible.count for rest in self.more), self.visible.count)

    @property
    def n(self) -> Tensor:
        """The number of keys that each row sees, as temperature laws take it; see `Visible.n`."""
        return self.count[:, None] if self.more else self.visible.n

    @property
    def group(self) -> int:
        """The number of query heads that share one key head."""
        return self.query.shape[1] // self.key.shape[1]

    @property
    def tensors(self) -> list[Tensor]:
        """All that a gradient may reach."""
        found = [self.query, self.key, self.value]
        if self.bias is not None:
            found.append(self.bias.table)
        if self.inverse_temperature is not None:
            found.append(self.inverse_temperature)
        for rest in self.more:
            found += rest.query, rest.key, rest.value
        return found

    @property
    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    @property
    def one_temperature_a_head(self) -> bool:
        """True when g does not change along a sequence."""
        return self.inverse_temperature is None or self.inverse_temperature.shape[-1] == 1

    def rows(self, first: int, last: int) -> Equation:
        """The same equation for queries first ... last - 1."""
        g = self.inverse_temperature
        if g is not None and g.shape[-1] > 1:
            g = g[..., first:last]
        return replace(
            self,
            query=self.query[:, :, first:last],
            visible=self.visible.rows(first, last),
            inverse_temperature=g,
            more=tuple(rest.rows(first, last) for rest in self.more),
        )
