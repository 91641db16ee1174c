"""Exact attention over a few queries at a time: every slot of the equation, statistics, O(L) extra memory.

It needs no kernel of our own and runs on any device. `scan` goes over the same blocks for statistics at several temperatures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.attention.bias import DistanceBias, toeplitz
from lengthwise.attention.equation import Equation
from lengthwise.attention.statistics import RowStatistics
from lengthwise.attention.visible import Visible

# One block of logits, in numbers: 256 queries of 8,192 keys. Larger blocks leave the cache of a CPU core; a GPU wants more.
CPU_BLOCK = 2**21
CUDA_BLOCK = 2**27


def blockwise(equation: Equation, statistics: bool = False) -> tuple[Tensor, RowStatistics | None]:
    """Exact attention over a few queries at a time; every slot, statistics; gradients are blocks_gradient.py's."""
    shape, equation = equation.query.shape[:3], folded(equation)
    batch, heads, queries, _ = equation.query.shape
    output = equation.query.new_zeros(batch, heads, queries, equation.value.shape[-1])
    rows = [equation.query.new_empty((batch, heads, queries), dtype=torch.float32) for _ in range(3)]
    regions = regions_of(equation)
    # A second buffer of a block's size, for weights beside their logits
    spare = buffer(equation, regions) if statistics else output
    for region, block in logit_blocks(equation, regions):
        l_max = block.amax(-1, keepdim=True)
        block.sub_(l_max)
        weights = torch.exp(block, out=view(spare, block.shape) if statistics else block)
        total = weights.sum(-1, keepdim=True)
        if statistics:
            expected = torch.linalg.vecdot(weights, block)[..., None] / total
            for field, result in zip(rows, (1 / total, l_max + total.log(), total.log() - expected), strict=True):
                field[region.index] = result[..., 0].flip(-1)
        mixed = torch.bmm(weights, of_heads(equation, equation.value, region)) / total
        output[region.index] = mixed.flip(1).to(output.dtype)
    empty = (equation.visible.count == 0)[:, None].expand(batch, heads, queries)
    row_statistics = RowStatistics(*rows)
    if bool(empty.any()):
        output.masked_fill_(empty[..., None], 0.0)
        row_statistics = row_statistics.without(empty)
    return output.view(*shape, output.shape[-1]), row_statistics.map(lambda field: field.view(shape)) if statistics else None


def scan(equation: Equation, inverse_temperatures: Tensor) -> RowStatistics:  # fields [temperatures, batch, heads, queries]
    """Statistics at several temperatures in one pass over the logits, values untouched.

    `inverse_temperatures`, >= 0, is broadcastable to [temperatures, batch, heads, queries] and takes the place of the
    equation's own.
    """
    whole = (inverse_temperatures.shape[0], *equation.query.shape[:3])
    g = inverse_temperatures.float().expand(whole)
    equation = folded(replace(equation, inverse_temperature=None))
    shape = (whole[0], *equation.query.shape[:3])
    g = g.reshape(shape)
    fields = [equation.query.new_empty(shape, dtype=torch.float32) for _ in range(3)]
    regions = regions_of(equation)
    spare = buffer(equation, regions)
    flat = bool((g == 0).any())
    for region, block in logit_blocks(equation, regions):
        l_max = block.amax(-1)
        block.sub_(l_max[..., None])
        weights = view(spare, block.shape)
        # At g = 0 every key has the same weight, be its logit as low as it may: hidden ones must be taken out
        hidden = block < torch.finfo(block.dtype).min / 2 if flat and not region.whole else None
        for t in range(shape[0]):
            sharpness = g[t][region.index].flip(-1)  # [heads, queries]
            torch.exp(torch.mul(block, sharpness[..., None], out=weights), out=weights)
            if hidden is not None:
                weights.masked_fill_(hidden, 0.0)
            total = weights.sum(-1)
            expected = sharpness * torch.linalg.vecdot(weights, block) / total
            for field, result in zip(fields, (1 / total, sharpness * l_max + total.log(), total.log() - expected), strict=True):
                field[t][region.index] = result.flip(-1)
    empty = (equation.visible.count == 0)[:, None].expand(shape)
    return RowStatistics(*fields).without(empty).map(lambda field: field.view(whole))


def folded(equation: Equation) -> Equation:
    """Turn batch entries that share one mask into further heads of one entry: few large products instead of many small."""
    batch, heads = equation.query.shape[:2]
    visible, g, bias = equation.visible, equation.inverse_temperature, equation.bias
    if batch == 1 or len(visible.start) > 1 or (visible.hidden is not None and len(visible.hidden) > 1):
        return equation
    query, key, value = (tensor.flatten(0, 1)[None] for tensor in (equation.query, equation.key, equation.value))
    if g is not None:
        g = g.expand(batch, heads, -1).flatten(0, 1)[None]
    if bias is not None:
        bias = DistanceBias(bias.table.repeat(batch, 1))
    return replace(equation, query=query, key=key, value=value, inverse_temperature=g, bias=bias)


@dataclass(frozen=True)
class Region:
    """Which part of the tensors a block of logits belongs to."""

    batch: int
    heads: slice
    rows: slice
    keys: slice  # all that any of the rows sees
    whole: bool  # every row sees all of them
    first: int  # position of the first row
    last: int

    @property
    def index(self) -> tuple[int, slice, slice]:
        return self.batch, self.heads, self.rows

    @property
    def size(self) -> int:
        """How many logits the block has."""
        return math.prod(part.stop - part.start for part in (self.heads, self.rows, self.keys))

    def by_heads(self, equation: Equation) -> list[Region]:
        """Split the block into a few heads at a time."""
        group, heads = equation.group, self.heads.stop
        groups = CUDA_BLOCK * heads // max(1, self.size * group) if equation.query.is_cuda else 1
        step = group * max(1, groups)
        return [replace(self, heads=slice(h, min(h + step, heads))) for h in range(0, heads, step)]


def logit_blocks(equation: Equation, regions: Sequence[Region]) -> Iterator[tuple[Region, Tensor]]:
    """Blocks of masked logits, [heads, queries, keys], the queries reversed; keys that no row of a block sees are left out."""
    query = equation.query.float() * (equation.scale if _scaled_later(equation) else _scale(equation).float())
    # One buffer for all blocks: fresh ones would cost a CPU more in page faults than in arithmetic
    scratch = buffer(equation, regions)
    for region in regions:
        visible = equation.visible.entry(region.batch).rows(region.rows.start, region.rows.stop)
        yield region, _logits(equation, query, region, visible, scratch)


def buffer(equation: Equation, regions: Sequence[Region]) -> Tensor:
    return equation.query.new_empty(max((region.size for region in regions), default=0), dtype=torch.float32)


def regions_of(equation: Equation) -> list[Region]:
    """The regions of all blocks. Each has whole groups of heads, so that a key head is read once."""
    # On the host: asking a GPU for one number a block would keep it waiting
    seen, (batch, heads, queries, _) = equation.visible.cpu, equation.query.shape
    step, regions = _rows_at_once(equation), []
    for b in range(batch):
        entry = seen.entry(b)
        whole = [_region(b, heads, entry.rows(first, first + step), first) for first in range(0, queries, step)]
        regions += [part for region in whole if region is not None for part in region.by_heads(equation)]
    return regions


def _region(batch: int, heads: int, rows: Visible, first: int) -> Region | None:
    real = rows.count[0] > 0
    if not bool(real.any()):
        return None
    start, stop = rows.start[0], rows.stop[0]
    low, high = int(start[real].min()), int(stop[real].max())
    whole = rows.hidden is None and bool((start <= low).all()) and bool((stop >= high).all())
    all_heads, queries, keys = slice(0, heads), slice(first, first + rows.queries), slice(low, high)
    return Region(batch, all_heads, queries, keys, whole, int(rows.position[0]), int(rows.position[-1]))


def _logits(equation: Equation, query: Tensor, region: Region, visible: Visible, scratch: Tensor) -> Tensor:
    """`query` carries scale and, but for a temperature that changes along biased rows, g."""
    reversed_query = query[region.index].flip(1)
    key = of_heads(equation, equation.key, region).transpose(-1, -2)
    g = equation.inverse_temperature
    logits = view(scratch, (*reversed_query.shape[:2], key.shape[-1]))
    if equation.bias is None:
        torch.bmm(reversed_query, key, out=logits)
    else:
        torch.baddbmm(_bias(equation, equation.bias, region, visible), reversed_query, key, out=logits)
        if _scaled_later(equation) and g is not None:
            logits.mul_(of_rows(g, region).flip(-1)[..., None])
    if not region.whole:
        hidden = ~visible.mask(region.keys.start, region.keys.stop)[0].flip(0)
        logits.masked_fill_(hidden, torch.finfo(logits.dtype).min)
    return logits


def _bias(equation: Equation, bias: DistanceBias, region: Region, visible: Visible) -> Tensor:  # [heads, rows, keys]
    """The bias of a block times g, where g is one number a head; rows reversed."""
    low, high, g = region.keys.start, region.keys.stop, equation.inverse_temperature
    table = bias.table[region.heads].float()
    if g is not None and equation.one_temperature_a_head:
        table = table * of_rows(g, region)
    bias = DistanceBias(table)
    if equation.visible.cpu.in_line:
        return toeplitz(bias.line(low - region.last, high - 1 - region.first), visible.queries, high - low)
    own = visible.position.flip(0)[:, None]
    return bias.at(torch.arange(low, high, device=own.device) - own)


def view(scratch: Tensor, shape: tuple[int, ...]) -> Tensor:
    return scratch[: math.prod(shape)].view(shape)


def of_rows(g: Tensor, region: Region) -> Tensor:  # [heads or 1, rows or 1]
    batch, heads, rows = (size > 1 for size in g.shape)
    picked = g[region.batch if batch else 0][region.heads if heads else slice(None)]
    return (picked[:, region.rows] if rows else picked).float()


def of_heads(equation: Equation, tensor: Tensor, region: Region) -> Tensor:  # [heads, keys, size]
    group = equation.group
    shared = slice(region.heads.start // group, -(-region.heads.stop // group))
    return tensor[region.batch, shared, region.keys].float().repeat_interleave(group, 0)


def _scale(equation: Equation) -> Tensor:
    """scale * g, shaped to multiply the queries."""
    g = equation.inverse_temperature
    scale = torch.tensor(equation.scale, device=equation.query.device)
    return scale if g is None else (scale * g)[..., None]


def _scaled_later(equation: Equation) -> bool:
    # g reaches the bias through its line only while it is one number a head
    return equation.bias is not None and not equation.one_temperature_a_head


def _rows_at_once(equation: Equation) -> int:
    keys, queries = max(equation.visible.keys, 1), equation.visible.queries
    if not equation.query.is_cuda:
        return max(1, min(queries, 256, CPU_BLOCK // (keys * equation.group)))
    # No more rows than each sees keys: they would see together what is hidden from most of them
    width = max(128, int(equation.visible.cpu.count.max()))
    return max(1, min(queries, 1024, width, CUDA_BLOCK // (keys * equation.group)))
