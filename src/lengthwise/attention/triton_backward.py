"""Gradients of the equation in O(L) memory: weights are computed again from the forward kernel's lse.

With a = scale * q.k + bias, p = exp(g a - lse), w = p (dO.v - delta), delta = dO.O:

    dv_j = sum_i p dO_i      dk_j = scale sum_i g w q_i      dq_i = scale sum_j g w k_j
    dg_i = sum_j w a         dbias(distance) = sum g w over the pairs that stand at it

One kernel goes over blocks of keys (dk, dv; the heads of a group are summed inside), one over blocks of queries (dq, dg,
bias). Both have the forward kernel's two kinds of tiles: near ones with the table and masks, far ones bare. The bias gradient
needs no atomics: pairs nearer than the radius are written to a band [rows, 2 radius + 1], one entry each, the others add up in
two numbers a row that fill the band's ends; PyTorch sums the rows. So it is deterministic.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lengthwise.attention.triton_key_bounds import query_bounds
from lengthwise.attention.triton_tiles import (
    LOG2E,
    Operands,
    Tile,
    bounds,
    centre,
    edge_tile,
    edge_tiles,
    launch,
    look_up,
    one_variant,
    padded,
    rows_at,
    seen_of,
    settled,
    sharpness,
    sums,
)

# Numbers in the band of one launch; more rows than that take several launches
BAND = 2**27
# Rows of delta and lse are stored in whole lots, so that every head's begin at a 16-byte boundary
LOT = tl.constexpr(64)


@triton.jit
def _stored(queries):
    return tl.cdiv(queries, LOT) * LOT


class Needs(NamedTuple):
    """Which gradients are wanted."""

    query: bool
    key: bool
    value: bool
    table: bool
    g: bool


@one_variant
def _prepare(
    OUT, GRAD, LSE, LSE2, DELTA, heads, queries, o_b, o_h, o_m, do_b, do_h, do_m,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """lse in powers of two, +inf for a row that sees nothing or does not exist, so that its weights are 0; and delta."""
    blocks = tl.cdiv(queries, BM)
    bh = tl.program_id(0) // blocks
    b = (bh // heads).to(tl.int64)
    h = (bh % heads).to(tl.int64)
    rows = tl.program_id(0) % blocks * BM + tl.arange(0, BM)
    real = rows < queries
    column = tl.arange(0, DP)
    inside = real[:, None] & (column < D)[None, :]
    wide = rows[:, None].to(tl.int64)
    out = tl.load(OUT + b * o_b + h * o_h + wide * o_m + column[None, :], mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(GRAD + b * do_b + h * do_h + wide * do_m + column[None, :], mask=inside, other=0.0).to(tl.float32)
    lse = tl.load(LSE + bh.to(tl.int64) * queries + rows, mask=real, other=float("-inf"))
    at = bh.to(tl.int64) * _stored(queries) + rows
    tl.store(LSE2 + at, tl.where(lse == float("-inf"), float("inf"), lse * LOG2E))
    tl.store(DELTA + at, tl.sum(out * grad, 1))


@triton.jit
def _query_edges(
    dq, dg, left, right, q, do, lse, delta, k_from, v_from, k_n, v_n, zero, band, line, radius, scale, g, start, stop, own,
    real, hidden, lo, inner_lo, left_end, near_end, inner_hi, hi, keys,
    D: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, BIAS: tl.constexpr, HIDES: tl.constexpr,
    TABLE_GRAD: tl.constexpr, G_GRAD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles lo ... inner_lo, left_end ... near_end, inner_hi ... hi: with masks and the table."""
    nears = (near_end - left_end) // BN
    for t in tl.range(0, edge_tiles(lo, inner_lo, nears, inner_hi, hi, BN)):
        n = edge_tile(t, lo, inner_lo, left_end, nears, inner_hi, BN)
        cols = n + tl.arange(0, BN)
        k = rows_at(k_from, n, k_n, keys, D, DP, BN, True)
        v = rows_at(v_from, n, v_n, keys, D, DP, BN, True)
        a = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        distance = cols[None, :] - own[:, None]
        if BIAS:
            a += look_up(zero + tl.minimum(tl.maximum(distance, -radius), radius))
        seen = seen_of(cols, start, stop, hidden, keys, HIDES)
        p = tl.where(seen, tl.exp2(a * (g * LOG2E)[:, None] - lse[:, None]), 0.0)
        w = p * (tl.dot(do, tl.trans(v), input_precision=PRECISION) - delta[:, None])
        if G_GRAD:
            dg += tl.sum(w * a, 1)
        w = w * g[:, None]
        dq = settled(tl.dot(w.to(k.dtype), k, dq, input_precision=PRECISION))
        if TABLE_GRAD:
            left += tl.sum(tl.where(distance <= -radius, w, 0.0), 1)
            right += tl.sum(tl.where(distance >= radius, w, 0.0), 1)
            # Unseen pairs write the 0 that stands there already
            inside = real[:, None] & (distance > -radius) & (distance < radius)
            tl.store(band + (line[:, None] + distance + radius), w, mask=inside)
    return dq, dg, left, right


@triton.jit
def _query_far(
    dq, wr, left, right, q, do, lse, delta, k_from, v_from, k_n, v_n, b_left, b_right, c, g,
    left_lo, left_hi, right_lo, right_hi, keys,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    TEMPERED: tl.constexpr, SIDES: tl.constexpr, G_GRAD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles that every row sees with one bias a side; wr sums w q.k, left and right sum w."""
    before = (left_hi - left_lo) // BN
    for t in tl.range(0, before + (right_hi - right_lo) // BN):
        is_left = t < before
        n = tl.where(is_left, left_lo + t * BN, right_lo + (t - before) * BN)
        k = rows_at(k_from, n, k_n, keys, D, DP, BN, False)
        v = rows_at(v_from, n, v_n, keys, D, DP, BN, False)
        r = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        p = tl.exp2(r * c[:, None] - (lse - tl.where(is_left, b_left, b_right))[:, None])
        w = p * (tl.dot(do, tl.trans(v), input_precision=PRECISION) - delta[:, None])
        if G_GRAD:
            wr += sums(w * r, BM, BN)
        if SIDES:
            total = sums(w, BM, BN)
            left += tl.where(is_left, total, 0.0)
            right += tl.where(is_left, 0.0, total)
        if TEMPERED > 0:
            w = w * g[:, None]
        dq = settled(tl.dot(w.to(k.dtype), k, dq, input_precision=PRECISION))
    return dq, wr, left, right


@one_variant
def _by_query(
    Q, K, V, GRAD, LSE2, DELTA, DQ, DG, BANDS, TABLE, G, RUNS, HIDDEN,
    scale, radius, heads, group, queries, keys, offset, first,
    q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, do_b, do_h, do_m, g_b, g_h, g_m, s_b, h_b,
    D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, TEMPERED: tl.constexpr, HIDES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TABLE_GRAD: tl.constexpr, G_GRAD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq, dg and the band of one block of queries; DQ is [batch, queries, heads, D]."""
    blocks = tl.cdiv(queries, BM)
    block = tl.program_id(0) % blocks
    among = tl.program_id(0) // blocks
    bh = first + among
    b = (bh // heads).to(tl.int64)
    h = (bh % heads).to(tl.int64)
    rows = block * BM + tl.arange(0, BM)
    real = rows < queries
    wide = rows.to(tl.int64)
    column = tl.arange(0, DP)
    inside = real[:, None] & (column < D)[None, :]
    q = tl.load(Q + b * q_b + h * q_h + wide[:, None] * q_m + column[None, :], mask=inside, other=0.0)
    do = tl.load(GRAD + b * do_b + h * do_h + wide[:, None] * do_m + column[None, :], mask=inside, other=0.0)
    at = bh.to(tl.int64) * _stored(queries) + rows
    lse = tl.load(LSE2 + at)
    delta = tl.load(DELTA + at)
    g = sharpness(G + b * g_b + h * g_h, rows, real, g_m, BM, TEMPERED)
    start, stop, own, _, lo, inner_lo, left_end, near_end, inner_hi, hi = bounds(
        block, RUNS + b * s_b, rows, real, offset, radius, queries, keys, BM, BN, FULL, BIAS, HIDES
    )
    zero = centre(TABLE, h, radius)
    b_left = tl.zeros([BM], dtype=tl.float32)
    b_right = tl.zeros([BM], dtype=tl.float32)
    if BIAS:
        b_left = tl.load(zero - radius) + b_left
        b_right = tl.load(zero + radius) + b_right
    band = BANDS + (among.to(tl.int64) * queries + block * BM) * (2 * radius + 1)
    line = tl.arange(0, BM) * (2 * radius + 1)
    k_from = K + b * k_b + (h // group) * k_h
    v_from = V + b * v_b + (h // group) * v_h
    SIDES: tl.constexpr = TABLE_GRAD or (G_GRAD and BIAS)
    dq = tl.zeros([BM, DP], dtype=tl.float32)
    dg = tl.zeros([BM], dtype=tl.float32)
    wr = tl.zeros([BM, 8], dtype=tl.float32)
    far_left = tl.zeros([BM, 8], dtype=tl.float32)
    far_right = tl.zeros([BM, 8], dtype=tl.float32)
    if not HIDES:
        dq, wr, far_left, far_right = _query_far(
            dq, wr, far_left, far_right, q, do, lse, delta, k_from, v_from, k_n, v_n,
            b_left * g * LOG2E, b_right * g * LOG2E, g * (scale * LOG2E), g, inner_lo, left_end, near_end, inner_hi, keys,
            D, DP, BM, BN, TEMPERED, SIDES, G_GRAD, PRECISION,
        )  # fmt: skip
    left = tl.sum(far_left, 1)
    right = tl.sum(far_right, 1)
    if G_GRAD:
        dg = tl.sum(wr, 1) * scale + b_left * left + b_right * right
    left *= g
    right *= g
    dq, dg, left, right = _query_edges(
        dq, dg, left, right, q, do, lse, delta, k_from, v_from, k_n, v_n, zero, band, line, radius, scale, g, start, stop, own,
        real, HIDDEN + b * h_b, lo, inner_lo, left_end, near_end, inner_hi, hi, keys,
        D, DP, BN, BIAS, HIDES, TABLE_GRAD, G_GRAD, PRECISION,
    )  # fmt: skip
    to = DQ + ((b * queries + wide) * heads + h)[:, None] * D + column[None, :]
    tl.store(to, (dq * scale).to(DQ.dtype.element_ty), mask=inside)
    if G_GRAD:
        tl.store(DG + bh.to(tl.int64) * queries + rows, dg, mask=real)
    if TABLE_GRAD:
        tl.store(band + line, left, mask=real)
        tl.store(band + line + 2 * radius, right, mask=real)


@triton.jit
def _key_edges(
    dk, dv, k, v, q_from, do_from, q_m, do_m, lse_from, delta_from, g_from, g_m, runs, zero, radius, scale, offset,
    cols, shown, lo, inner_lo, near_lo, near_hi, inner_hi, hi, queries,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, TEMPERED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Query tiles lo ... inner_lo, near_lo ... near_hi, inner_hi ... hi, [keys, queries]: with masks and the table."""
    nears = (near_hi - near_lo) // BM
    for t in tl.range(0, edge_tiles(lo, inner_lo, nears, inner_hi, hi, BM)):
        m = edge_tile(t, lo, inner_lo, near_lo, nears, inner_hi, BM)
        rows = m + tl.arange(0, BM)
        real = rows < queries
        q = rows_at(q_from, m, q_m, queries, D, DP, BM, True)
        do = rows_at(do_from, m, do_m, queries, D, DP, BM, True)
        lse = tl.load(lse_from + rows)
        delta = tl.load(delta_from + rows)
        a = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale
        if FULL:
            own = rows + offset
            seen = shown[:, None]
        else:
            start = tl.load(runs + rows, mask=real, other=0)
            stop = tl.load(runs + queries + rows, mask=real, other=0)
            own = tl.load(runs + 2 * queries.to(tl.int64) + rows, mask=real, other=0)
            seen = (cols[:, None] >= start[None, :]) & (cols[:, None] < stop[None, :]) & shown[:, None]
        if BIAS:
            distance = cols[:, None] - own[None, :]
            a += look_up(zero + tl.minimum(tl.maximum(distance, -radius), radius))
        g = sharpness(g_from, rows, real, g_m, BM, TEMPERED)
        if TEMPERED > 0:
            a = a * g[None, :]
        p = tl.where(seen, tl.exp2(a * LOG2E - lse[None, :]), 0.0)
        dv = settled(tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION))
        w = p * (tl.dot(v, tl.trans(do), input_precision=PRECISION) - delta[None, :])
        if TEMPERED > 0:
            w = w * g[None, :]
        dk = settled(tl.dot(w.to(q.dtype), q, dk, input_precision=PRECISION))
    return dk, dv


@triton.jit
def _key_far(
    dk, dv, k, v, q_from, do_from, q_m, do_m, lse_from, delta_from, g_from, g_m, b_right, b_left, scale,
    right_lo, right_hi, left_lo, left_hi, queries,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, TEMPERED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Query tiles all of whose rows see every key: first those that see it far on their right, then far on their left."""
    before = (right_hi - right_lo) // BM
    for t in tl.range(0, before + (left_hi - left_lo) // BM):
        is_right = t < before
        m = tl.where(is_right, right_lo + t * BM, left_lo + (t - before) * BM)
        rows = m + tl.arange(0, BM)
        q = rows_at(q_from, m, q_m, queries, D, DP, BM, False)
        do = rows_at(do_from, m, do_m, queries, D, DP, BM, False)
        base = tl.load(lse_from + rows)
        delta = tl.load(delta_from + rows)
        r = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        bias = tl.where(is_right, b_right, b_left) * LOG2E
        g = sharpness(g_from, rows, rows < queries, g_m, BM, TEMPERED)
        p = tl.exp2(r * (g * (scale * LOG2E))[None, :] - (base - bias * g)[None, :])
        dv = settled(tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION))
        w = p * (tl.dot(v, tl.trans(do), input_precision=PRECISION) - delta[None, :])
        if TEMPERED > 0:
            w = w * g[None, :]
        dk = settled(tl.dot(w.to(q.dtype), q, dk, input_precision=PRECISION))
    return dk, dv


@one_variant
def _by_key(
    Q, K, V, GRAD, LSE2, DELTA, DK, DV, BOUNDS, TABLE, G, RUNS, HIDDEN, scale, radius, heads, group, queries, keys, offset,
    q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, do_b, do_h, do_m, g_b, g_h, g_m, s_b, h_b,
    D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, TEMPERED: tl.constexpr, HIDES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv, [batch, keys, kv_heads, D], of one block of keys, summed over the heads that share it."""
    blocks = tl.cdiv(keys, BN)
    block = tl.program_id(0) % blocks
    kv_heads = heads // group
    b = (tl.program_id(0) // blocks // kv_heads).to(tl.int64)
    kv = (tl.program_id(0) // blocks % kv_heads).to(tl.int64)
    cols = block * BN + tl.arange(0, BN)
    shown = cols < keys
    column = tl.arange(0, DP)
    wide = cols[:, None].to(tl.int64)
    inside = shown[:, None] & (column < D)[None, :]
    k = tl.load(K + b * k_b + kv * k_h + wide * k_n + column[None, :], mask=inside, other=0.0)
    v = tl.load(V + b * v_b + kv * v_h + wide * v_n + column[None, :], mask=inside, other=0.0)
    if HIDES:
        shown = shown & (tl.load(HIDDEN + b * h_b + cols, mask=shown, other=1) == 0)
    if FULL:
        # Early queries see this block far on their right, late ones far on their left; rows beyond the last key are not stored
        lo = 0
        inner_lo = 0
        inner_hi = queries // BM * BM
        hi = queries
        near_lo = tl.maximum(block * BN - radius + 1 - offset, 0) // BM * BM
        near_hi = (tl.maximum(block * BN + BN - 1 + radius - offset, 0) + BM - 1) // BM * BM
    else:
        at = BOUNDS + (tl.where(s_b > 0, b, 0) * blocks + block) * 6
        lo, inner_lo, inner_hi, hi = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
        near_lo, near_hi = tl.load(at + 4), tl.load(at + 5)
    if HIDES:
        inner_lo = (hi + BM - 1) // BM * BM
        inner_hi = inner_lo
    if not BIAS:
        near_hi = near_lo
    near_lo = tl.minimum(tl.maximum(near_lo, inner_lo), inner_hi)
    near_hi = tl.maximum(tl.minimum(near_hi, inner_hi), near_lo)
    dk = tl.zeros([BN, DP], dtype=tl.float32)
    dv = tl.zeros([BN, DP], dtype=tl.float32)
    for i in range(group):
        h = kv * group + i
        zero = centre(TABLE, h, radius)
        b_left = tl.load(zero - radius) if BIAS else 0.0
        b_right = tl.load(zero + radius) if BIAS else 0.0
        q_from = Q + b * q_b + h * q_h
        do_from = GRAD + b * do_b + h * do_h
        g_from = G + b * g_b + h * g_h
        lse_from = LSE2 + (b * heads + h) * _stored(queries)
        delta_from = DELTA + (b * heads + h) * _stored(queries)
        if not HIDES:
            dk, dv = _key_far(
                dk, dv, k, v, q_from, do_from, q_m, do_m, lse_from, delta_from, g_from, g_m, b_right, b_left, scale,
                inner_lo, near_lo, near_hi, inner_hi, queries, D, DP, BM, TEMPERED, PRECISION,
            )  # fmt: skip
        dk, dv = _key_edges(
            dk, dv, k, v, q_from, do_from, q_m, do_m, lse_from, delta_from, g_from, g_m, RUNS + b * s_b, zero, radius, scale,
            offset, cols, shown, lo, inner_lo, near_lo, near_hi, inner_hi, hi, queries,
            D, DP, BM, FULL, BIAS, TEMPERED, PRECISION,
        )  # fmt: skip
    to = ((b * keys + wide) * kv_heads + kv) * D + column[None, :]
    tl.store(DK + to, (dk * scale).to(DK.dtype.element_ty), mask=inside)
    tl.store(DV + to, dv.to(DV.dtype.element_ty), mask=inside)


def tile_for(size: int, dtype: torch.dtype) -> Tile:
    """Of both kernels; measured on an H200, 32 heads of 64."""
    if dtype == torch.float32:
        return Tile(32, 32, 4, 1, precision="ieee")
    return Tile(64, 64, 4, 2, registers=168) if size <= 64 else Tile(64, 64, 8, 2)


def backward(
    operands: Operands, grad: Tensor, out: Tensor, lse: Tensor, needs: Needs
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of q, k, v, of the table [heads, 2 radius + 1] and of g [batch, heads, queries], the last two in float32."""
    query = operands.query
    batch, heads, queries, size = query.shape
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    tile = tile_for(size, query.dtype)
    stored = -(-queries // LOT.value) * LOT.value
    rows = torch.empty((2, batch, heads, stored), dtype=torch.float32, device=query.device)
    launch(
        _prepare,
        stored // LOT.value * batch * heads,
        (out, grad, lse, *rows),
        (heads, queries, *out.stride()[:3], *grad.stride()[:3], size, padded(size), LOT.value),
        Tile(LOT.value, LOT.value, 4, 1),
    )
    dq = dk = dv = d_table = dg = None
    if needs.key or needs.value:
        dk, dv = _of_keys(operands, grad, rows, tile)
    if needs.query or needs.table or needs.g:
        dq, d_table, dg = _of_queries(operands, grad, rows, needs, tile)
    return dq, dk, dv, d_table, dg


def _numbers(operands: Operands, *more: int) -> tuple[int | float, ...]:
    heads, queries = operands.query.shape[1:3]
    return operands.scale, operands.radius, heads, operands.group, queries, operands.keys, operands.offset, *more


def _strides(operands: Operands, grad: Tensor) -> tuple[int | bool, ...]:
    """And all that follows from the equation alone."""
    query, key, value = operands.query, operands.key, operands.value
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *grad.stride()[:3], *operands.slot_strides)
    return (*strides, query.shape[-1], padded(query.shape[-1]), *operands.given)


def _of_keys(operands: Operands, grad: Tensor, rows: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
    query, key, value = operands.query, operands.key, operands.value
    batch, kv_heads, keys, size = key.shape
    dk, dv = torch.empty((2, batch, keys, kv_heads, size), dtype=key.dtype, device=key.device).unbind(0)
    launch(
        _by_key,
        -(-keys // tile.keys) * batch * kv_heads,
        (query, key, value, grad, *rows, dk, dv, query_bounds(operands, tile), *operands.slots),
        (*_numbers(operands), *_strides(operands, grad), tile.queries, tile.keys, tile.precision),
        tile,
    )
    return dk.transpose(1, 2), dv.transpose(1, 2)


def _of_queries(
    operands: Operands, grad: Tensor, rows: Tensor, needs: Needs, tile: Tile
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    query, key, value = operands.query, operands.key, operands.value
    batch, heads, queries, size = query.shape
    device, width = query.device, 2 * operands.radius + 1
    dq = torch.empty((batch, queries, heads, size), dtype=query.dtype, device=device)
    dg = torch.empty((batch, heads, queries), dtype=torch.float32, device=device) if needs.g else None
    # All launches alike: a last one of a few heads would leave the GPU idle
    launches = min(batch * heads, -(-batch * heads * queries * width // BAND)) if needs.table else 1
    at_once = -(-batch * heads // launches)
    band = torch.zeros((at_once, queries, width), dtype=torch.float32, device=device) if needs.table else None
    totals = []
    for first in range(0, batch * heads, at_once):
        part = min(at_once, batch * heads - first)
        if band is not None and first:
            band.zero_()
        launch(
            _by_query,
            -(-queries // tile.queries) * part,
            (
                query, key, value, grad, *rows, dq, dq if dg is None else dg, dq if band is None else band,
                *operands.slots,
            ),
            (
                *_numbers(operands, first), *_strides(operands, grad),
                tile.queries, tile.keys, needs.table, needs.g, tile.precision,
            ),
            tile,
        )  # fmt: skip
        if band is not None:
            totals.append(band[:part].sum(1))
    d_table = torch.cat(totals).view(batch, heads, width).sum(0) if totals else None
    return dq.transpose(1, 2), d_table, dg
