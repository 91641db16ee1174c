"""Gradients of the equation in O(L) memory: weights are computed again from the forward kernel's lse.

With a = scale * q.k + bias, p = exp(g a - lse), w = p (dO.v - delta), delta = dO.O, less the gradient of lse where it has one:

    dv_j = sum_i p dO_i      dk_j = scale sum_i g w q_i      dq_i = scale sum_j g w k_j
    dg_i = sum_j w a         dbias(distance) = sum g w over the pairs that stand at it

Where dropout took a weight out of the output, p is 0 in dv and dO.v is 0 in w; the others are 1 / (1 - rate) as large.

One kernel goes over blocks of keys (`by_key`: dk, dv; the heads of a group are summed inside), one over blocks of
queries (`by_query`: dq, dg, bias): seven products. Kernels of five, which add up dq in memory, took 0.97 to 1.44 times as
long on an H200 and differ from run to run. Both have the forward kernel's two kinds of tiles: near ones with table and masks,
far ones bare. The bias gradient needs no atomics: pairs nearer than the radius are written to a band [rows, 2 radius + 1],
one entry each, the others add up in two numbers a row that fill the band's ends; PyTorch sums the rows. So it is deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from lengthwise.attention.triton.by_key import by_key
from lengthwise.attention.triton.by_query import by_query
from lengthwise.attention.triton.dropout import row_words
from lengthwise.attention.triton.key_bounds import query_bounds
from lengthwise.attention.triton.launch import products
from lengthwise.attention.triton.operands import Operands, Tile, launch, one_variant, padded
from lengthwise.attention.triton.tiles import LOG2E, LOT, block_of, stored_rows

# Numbers in the band of one launch; more rows than that take several launches
BAND = 2**27


class Needs(NamedTuple):
    """Which gradients are wanted."""

    query: bool
    key: bool
    value: bool
    table: bool
    g: bool


@one_variant
def _prepare(
    OUT, GRAD, LSE, LSE2, DELTA, WORDS, SEED, heads, queries, o_b, o_h, o_m, do_b, do_h, do_m,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """lse in powers of two, +inf for a row that sees nothing or does not exist: its weights are 0; delta; dropout's words."""
    blocks = tl.cdiv(queries, BM)
    bh = tl.program_id(0) // blocks
    b = (bh // heads).to(tl.int64)
    h = (bh % heads).to(tl.int64)
    rows = tl.program_id(0) % blocks * BM + tl.arange(0, BM)
    real = rows < queries
    out = block_of(OUT + b * o_b + h * o_h, rows, o_m, queries, D, DP).to(tl.float32)
    grad = block_of(GRAD + b * do_b + h * do_h, rows, do_m, queries, D, DP).to(tl.float32)
    lse = tl.load(LSE + bh.to(tl.int64) * queries + rows, mask=real, other=float("-inf"))
    at = bh.to(tl.int64) * stored_rows(queries) + rows
    tl.store(LSE2 + at, tl.where(lse == float("-inf"), float("inf"), lse * LOG2E))
    tl.store(DELTA + at, tl.sum(out * grad, 1))
    if DROPS:
        word, other = row_words(SEED, bh, rows, DROPS)
        at += bh.to(tl.int64) * stored_rows(queries)
        tl.store(WORDS + at, word.to(tl.int32, bitcast=True))
        tl.store(WORDS + at + stored_rows(queries), other.to(tl.int32, bitcast=True))


@lru_cache
def tile_for(size: int, dtype: torch.dtype, precision: str | None) -> Tile:
    """The tiles of both kernels; measured on an H200."""
    if dtype == torch.float32:
        # Larger ones spill, of 256 numbers tens of kilobytes
        queries, keys = (32, 64) if size <= 64 else (32, 32) if size <= 128 else (16, 16)
        return Tile(queries, keys, 4, 1, precision=precision)
    # Of 256 numbers a tile of 64 rows is 32 KiB
    return Tile(64, 64, 4, 3 if size <= 64 else 2) if size <= 128 else Tile(64, 32, 4, 1)


def backward(
    operands: Operands, grad: Tensor, out: Tensor, lse: Tensor, needs: Needs, d_lse: Tensor | None = None
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of q, k, v, of the table [heads, 2 radius + 1] and of g [batch, heads, queries], the last two in float32.

    `grad` and `d_lse` are those of the output and of its lse.
    """
    query = operands.query
    batch, heads, queries, size = query.shape
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    tile = tile_for(size, query.dtype, products(query.dtype))
    stored = -(-queries // LOT.value) * LOT.value
    rows = torch.empty((2, batch, heads, stored), dtype=torch.float32, device=query.device).unbind(0)
    words = torch.empty((batch, heads, 2, stored), dtype=torch.int32, device=query.device) if operands.drops else query
    launch(
        _prepare,
        stored // LOT.value * batch * heads,
        (out, grad, lse, *rows, words, operands.slots(query)[-1]),
        (heads, queries, *out.stride()[:3], *grad.stride()[:3], size, padded(size), LOT.value, operands.drops),
        Tile(LOT.value, LOT.value, 4, 1),
    )
    add_d_lse(rows[1], lse, d_lse)
    dq = dk = dv = d_table = dg = None
    if needs.key or needs.value:
        dk, dv = _of_keys(operands, grad, rows, words, tile)
    if needs.query or needs.table or needs.g:
        dq, d_table, dg = _of_queries(operands, grad, rows, needs, tile)
    return dq, dk, dv, d_table, dg


def add_d_lse(delta: Tensor, lse: Tensor, d_lse: Tensor | None) -> None:
    """Let w = p (dO.v - delta + d_lse); rows that see nothing have no lse, and whatever its gradient is they add nothing."""
    if d_lse is not None:
        delta[..., : lse.shape[-1]] -= d_lse[0].masked_fill(lse[0] == float("-inf"), 0.0)


def _numbers(operands: Operands, *more: int) -> tuple[int | float, ...]:
    heads, queries = operands.query.shape[1:3]
    return operands.scale, operands.radius, heads, operands.group, queries, operands.keys, operands.offset, *more


def _strides(operands: Operands, grad: Tensor) -> tuple[int | float, ...]:
    """Strides, and all else that follows from the equation alone."""
    query, key, value = operands.query, operands.key, operands.value
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *grad.stride()[:3], *operands.slot_strides)
    return (*strides, *operands.dropping, query.shape[-1], padded(query.shape[-1]), *operands.given)


def _of_keys(operands: Operands, grad: Tensor, rows: Sequence[Tensor], words: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
    """dk and dv, [batch, kv_heads, keys, size], each in memory of its own, as graphs want it."""
    query, key, value = operands.query, operands.key, operands.value
    batch, kv_heads, keys, size = key.shape
    dk, dv = (torch.empty((batch, keys, kv_heads, size), dtype=key.dtype, device=key.device) for _ in range(2))
    slots = (query_bounds(operands, tile), *operands.slots(query)[:-1], words)
    launch(
        by_key,
        -(-operands.keys // tile.keys) * batch * kv_heads,
        (query, key, value, grad, *rows, dk, dv, *slots),
        (*_numbers(operands), *_strides(operands, grad), tile.queries, tile.keys, tile.precision, operands.drops),
        tile,
    )
    return dk.transpose(1, 2), dv.transpose(1, 2)


def _heads_at_once(heads: int, numbers: int) -> int:
    """How many heads a launch takes, all launches alike: a last one of a few heads would leave the GPU idle."""
    return -(-heads // min(heads, -(-heads * numbers // BAND)))


def _of_queries(
    operands: Operands, grad: Tensor, rows: Sequence[Tensor], needs: Needs, tile: Tile
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    query, key, value = operands.query, operands.key, operands.value
    batch, heads, queries, size = query.shape
    device, width = query.device, 2 * operands.radius + 1
    dq = torch.empty((batch, queries, heads, size), dtype=query.dtype, device=device)
    dg = torch.empty((batch, heads, queries), dtype=torch.float32, device=device) if needs.g else None
    at_once = _heads_at_once(batch * heads, queries * width) if needs.table else batch * heads
    band = torch.zeros((at_once, queries, width), dtype=torch.float32, device=device) if needs.table else None
    totals = []
    for first in range(0, batch * heads, at_once):
        part = min(at_once, batch * heads - first)
        if band is not None and first:
            band.zero_()
        launch(
            by_query,
            -(-queries // tile.queries) * part,
            (
                query, key, value, grad, *rows, dq, dq if dg is None else dg, dq if band is None else band,
                *operands.slots(query),
            ),
            (
                *_numbers(operands, first), *_strides(operands, grad),
                tile.queries, tile.keys, needs.table, needs.g, tile.precision, operands.drops,
            ),
            tile,
        )  # fmt: skip
        if band is not None:
            totals.append(band[:part].sum(1))
    return dq.transpose(1, 2), _over_batch(totals, batch) if totals else None, dg


def _over_batch(totals: Sequence[Tensor], batch: int) -> Tensor:  # [heads, width]
    """Sum parts of [batch * heads, width] over the batch; most often there is nothing to do."""
    whole = totals[0] if len(totals) == 1 else torch.cat(list(totals))
    return whole if batch == 1 else whole.view(batch, -1, whole.shape[-1]).sum(0)
