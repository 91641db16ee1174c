"""Which queries see a block of keys, for the gradient kernel that goes over keys: runs say it the other way round."""

from __future__ import annotations

import torch
from torch import Tensor

from lengthwise.attention.triton.operands import Operands, Tile

BIG = 2**30
# Pairs of a key block and a query block that are looked at together
FLAGS = 2**24


def query_bounds(operands: Operands, tile: Tile) -> Tensor:
    """`bounds_of` an equation's runs, made once a mask."""
    if operands.runs is None:
        return operands.query  # never read
    # A graph has made them
    found: Tensor | None = operands.kept.get("bounds")
    if found is not None:
        return found
    key = ("query bounds", operands.radius, tile)
    if key not in operands.kept:
        operands.kept[key] = bounds_of(operands.runs, operands.keys, operands.radius, tile)
    made: Tensor = operands.kept[key]
    return made


def bounds_of(runs: Tensor, keys: int, radius: int, tile: Tile) -> Tensor:
    """[batch or 1, key blocks, 6]: rows of which any sees the block, of which all do, and that are near."""
    bounds = _key_bounds(runs, radius, tile, keys)
    n = torch.arange(0, keys, tile.keys, device=runs.device)[:, None]  # [key blocks, 1]
    parts = torch.split(n, max(1, FLAGS // bounds[0].numel()))
    return torch.cat([_turned_at(part, bounds, runs.shape[-1], tile) for part in parts], 1)


def _key_bounds(runs: Tensor, radius: int, tile: Tile, keys: int) -> tuple[Tensor, ...]:
    """Six of [batch or 1, query blocks]: keys that any row of a block sees, that all do, and that are near."""
    start, stop, position = runs.unbind(1)
    blocks = -(-start.shape[-1] // tile.queries)
    more = blocks * tile.queries - start.shape[-1]

    def cut(values: Tensor, fill: int) -> Tensor:
        return torch.nn.functional.pad(values, (0, more), value=fill).view(-1, blocks, tile.queries)

    empty, n = stop <= start, tile.keys
    # A row that sees nothing has weights of 0 wherever it goes along
    latest = cut(torch.where(empty, 0, start), 0).amax(-1)
    earliest = cut(torch.where(empty, BIG, stop), BIG).amin(-1)
    lo = cut(torch.where(empty, BIG, start), BIG).amin(-1).clamp_max(keys) // n * n
    last = cut(torch.where(empty, 0, stop), 0).amax(-1)
    inner_lo = torch.minimum(-(-latest.clamp_max(keys) // n) * n, -(-last // n) * n).maximum(lo)
    inner_hi = (earliest.clamp_max(keys) // n * n).maximum(inner_lo)
    near_lo = (cut(position, BIG).amin(-1) - radius) // n * n
    near_hi = -(-(cut(position, -BIG).amax(-1) + radius + 1) // n) * n
    return lo, inner_lo, inner_hi, torch.where(last == 0, lo, last), near_lo, near_hi


def _turned_at(n: Tensor, bounds: tuple[Tensor, ...], queries: int, tile: Tile) -> Tensor:
    """The bounds of rows for the key blocks that begin at `n`."""
    lo, inner_lo, inner_hi, hi, near_lo, near_hi = (bound[:, None] for bound in bounds)
    end, blocks = n + tile.keys, lo.shape[-1]
    index = torch.arange(blocks, device=lo.device)
    seen = (end > lo) & (n < hi)  # [batch or 1, key blocks, query blocks]
    full = seen & (inner_lo <= n) & (end <= inner_hi)
    if queries % tile.queries:
        full[..., -1] = False

    def first(where: Tensor) -> Tensor:
        return torch.where(where, index, blocks).amin(-1)

    def behind(where: Tensor) -> Tensor:
        return torch.where(where, index + 1, 0).amax(-1)

    last, inner_low = behind(seen), first(full)
    # One run of whole blocks; should there be another, it takes the masked way
    inner_high = torch.minimum(first(~full & (index >= inner_low[..., None])), last)
    rows = [torch.minimum(first(seen), last), torch.minimum(inner_low, last), inner_high, last]
    near = first(n < near_hi), behind(end > near_lo)
    return (torch.stack([*rows, *near], -1) * tile.queries).int()
