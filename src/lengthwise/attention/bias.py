"""A bias that depends on the distance alone, kept as one line of numbers a head instead of a matrix.

The T5 bias is constant once |distance| reaches a radius (91 of its 128), so a table of 2 * radius + 1 numbers a head says
everything about a bias that transformers stores as heads x queries x keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

# How far a GPU kernel's tiles, one of queries and one of keys, reach beyond the radius
MARGIN = 192


@dataclass(frozen=True)
class DistanceBias:
    """A number for each head and distance, key position - query position; beyond its ends the table goes on as it ends."""

    table: Tensor  # [heads, 2 * radius + 1]: distances -radius ... radius
    wide: Tensor | None = field(default=None, repr=False)  # see `widened`, where the maker of the table made it too

    @classmethod
    def of_widened(cls, wide: Tensor, radius: int) -> DistanceBias:
        """The bias whose table is the middle of one that is widened already."""
        more = (wide.shape[-1] - 2 * radius - 1) // 2
        return cls(wide[:, more : more + 2 * radius + 1], wide)

    @property
    def radius(self) -> int:
        return (self.table.shape[-1] - 1) // 2

    @property
    def widened(self) -> Tensor:  # [heads, 2 * (reach + MARGIN) + 1], reach = max(radius, 1)
        """The table in float32, its ends repeated as far as GPU kernels read, with its gradient."""
        if self.wide is not None:
            return self.wide
        table, more = self.table.float(), widened_reach(self.radius) - self.radius
        return torch.cat([table[:, :1].expand(-1, more), table, table[:, -1:].expand(-1, more)], -1)

    @property
    def widened_once(self) -> Tensor:
        """The same without a gradient, made once, unless the table changes in place."""
        if self.wide is not None:
            return self.wide.detach().contiguous()
        version = None if self.table.is_inference() else self.table._version
        cached: tuple[int | None, Tensor] | None = self.__dict__.get("_widened")
        if cached is None or cached[0] != version:
            cached = version, self.widened.detach()
            self.__dict__["_widened"] = cached
        return cached[1]

    def line(self, first: int, last: int) -> Tensor:  # [heads, last - first + 1]
        """The bias at every distance from `first` to `last`, both included."""
        return self.at(torch.arange(first, last + 1, device=self.table.device))

    def at(self, distance: Tensor) -> Tensor:
        """The bias at each entry of `distance`, heads first: [...] -> [heads, ...]."""
        return self.table[:, distance.clamp(-self.radius, self.radius) + self.radius]


def widened_reach(radius: int) -> int:
    """The largest distance that a widened table has."""
    return MARGIN + max(radius, 1)


def toeplitz(line: Tensor, queries: int, keys: int) -> Tensor:
    """A line over distances seen as a matrix without a copy, [..., queries, keys], its query axis reversed.

    Entry (i, j) is the bias of key j for query queries - 1 - i; the line starts at the distance of key 0 for the last query.
    Reversed, because then both strides are +1 and PyTorch has no negative ones.
    """
    return line.as_strided((*line.shape[:-1], queries, keys), (*line.stride()[:-1], 1, 1))


def add_diagonals(table: Tensor, first: int, d_bias: Tensor) -> None:
    """Add the gradient of a matrix, [heads, queries, keys], to that of its table.

    The matrix has its query axis reversed: the key of entry (i, j) stands i + j + `first` behind its query.
    """
    heads, queries, keys = d_bias.shape
    skewed = pad(d_bias, (0, queries)).flatten(1)[:, :-queries].view(heads, queries, keys + queries - 1)
    distance, radius = torch.arange(first, first + keys + queries - 1, device=d_bias.device), DistanceBias(table).radius
    table.index_add_(1, distance.clamp(-radius, radius) + radius, skewed.sum(1))
