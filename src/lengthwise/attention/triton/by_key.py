"""Gradients of keys and values: a block of keys goes over the queries that see it, in all heads of its group.

The formulae, and what the arguments are, stand in `backward`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lengthwise.attention.triton.dropout import spares
from lengthwise.attention.triton.operands import one_variant
from lengthwise.attention.triton.tiles import (
    LOG2E,
    block_of,
    centre,
    edge_tile,
    edge_tiles,
    has_holes,
    look_up,
    rows_at,
    settled,
    sharpness,
    stored_rows,
)


@triton.jit
def _weighed(
    dv, p, v, do, delta, cols, rows, words_from, queries, limit, spared, PRECISION: tl.constexpr, DROPS: tl.constexpr
):  # fmt: skip
    """dv with a tile's weights, [keys, queries], and w."""
    if DROPS:
        word = tl.load(words_from + rows).to(tl.uint32, bitcast=True)
        other = tl.load(words_from + stored_rows(queries) + rows).to(tl.uint32, bitcast=True)
        kept = tl.where(spares(word[None, :], other[None, :], cols[:, None], limit), p, 0.0)
        dv = settled(tl.dot(kept.to(do.dtype), do, dv, input_precision=PRECISION))
        dp = tl.dot(v, tl.trans(do), input_precision=PRECISION)
        # What is dropped is so once, in p: asked again it would have to be remembered
        return dv, kept * (dp * spared) - p * delta[None, :]
    else:
        dv = settled(tl.dot(p.to(do.dtype), do, dv, input_precision=PRECISION))
        dp = tl.dot(v, tl.trans(do), input_precision=PRECISION)
        return dv, p * (dp - delta[None, :])


@triton.jit
def _key_edges(
    dk, dv, k, v, q_from, do_from, q_m, do_m, lse_from, delta_from, g_from, g_m, runs, zero, radius, scale, offset,
    cols, shown, lo, inner_lo, near_lo, near_hi, inner_hi, hi, queries, words_from, limit, spared,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, TEMPERED: tl.constexpr,
    PRECISION: tl.constexpr, DROPS: tl.constexpr,
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
        distance = cols[:, None] - own[None, :]
        if BIAS:
            a += look_up(zero + tl.minimum(tl.maximum(distance, -radius), radius))
        g = sharpness(g_from, rows, real, g_m, BM, TEMPERED)
        if TEMPERED > 0:
            a = a * g[None, :]
        p = tl.where(seen, tl.exp2(a * LOG2E - lse[None, :]), 0.0)
        dv, w = _weighed(dv, p, v, do, delta, cols, rows, words_from, queries, limit, spared, PRECISION, DROPS)
        if TEMPERED > 0:
            w = w * g[None, :]
        dk = settled(tl.dot(w.to(q.dtype), q, dk, input_precision=PRECISION))
    return dk, dv


@triton.jit
def _key_far(
    dk, dv, k, v, q_from, do_from, q_m, do_m, lse_from, delta_from, g_from, g_m, b_right, b_left, scale,
    right_lo, right_hi, left_lo, left_hi, queries, cols, words_from, limit, spared,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, TEMPERED: tl.constexpr, PRECISION: tl.constexpr, DROPS: tl.constexpr,
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
        dv, w = _weighed(dv, p, v, do, delta, cols, rows, words_from, queries, limit, spared, PRECISION, DROPS)
        if TEMPERED > 0:
            w = w * g[None, :]
        dk = settled(tl.dot(w.to(q.dtype), q, dk, input_precision=PRECISION))
    return dk, dv


@triton.jit
def _tiles(
    at, block, hidden, radius, queries, keys, offset,
    FULL: tl.constexpr, BIAS: tl.constexpr, HIDES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Which queries meet a block of keys, as `bounds` tells which keys meet a block of queries."""
    if FULL:
        # Early queries see this block far on their right, late ones far on their left; rows beyond the last key are not stored
        lo = 0
        inner_lo = 0
        inner_hi = queries // BM * BM
        hi = queries
        near_lo = tl.maximum(block * BN - radius + 1 - offset, 0) // BM * BM
        near_hi = (tl.maximum(block * BN + BN - 1 + radius - offset, 0) + BM - 1) // BM * BM
    else:
        lo, inner_lo, inner_hi, hi = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
        near_lo, near_hi = tl.load(at + 4), tl.load(at + 5)
    if HIDES:
        end = (hi + BM - 1) // BM * BM
        masked = has_holes(hidden, keys)
        inner_lo = tl.where(masked, end, inner_lo)
        inner_hi = tl.where(masked, end, inner_hi)
    if not BIAS:
        near_hi = near_lo
    near_lo = tl.minimum(tl.maximum(near_lo, inner_lo), inner_hi)
    near_hi = tl.maximum(tl.minimum(near_hi, inner_hi), near_lo)
    return lo, inner_lo, near_lo, near_hi, inner_hi, hi


@one_variant
def by_key(
    Q, K, V, GRAD, LSE2, DELTA, DK, DV, BOUNDS, TABLE, G, RUNS, HIDDEN, WORDS,
    scale, radius, heads, group, queries, keys, offset,
    q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, do_b, do_h, do_m, g_b, g_h, g_m, s_b, h_b, limit, spared,
    D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, TEMPERED: tl.constexpr, HIDES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """dk and dv, [batch, keys, kv_heads, D], of one block of keys, summed over the heads that share it."""
    blocks = tl.cdiv(keys, BN)
    block = tl.program_id(0) % blocks
    kv_heads = heads // group
    among = tl.program_id(0) // blocks
    b = (among // kv_heads).to(tl.int64)
    kv = (among % kv_heads).to(tl.int64)
    cols = block * BN + tl.arange(0, BN)
    shown = cols < keys
    column = tl.arange(0, DP)
    inside = shown[:, None] & (column < D)[None, :]
    k = block_of(K + b * k_b + kv * k_h, cols, k_n, keys, D, DP)
    v = block_of(V + b * v_b + kv * v_h, cols, v_n, keys, D, DP)
    if HIDES:
        shown = shown & (tl.load(HIDDEN + b * h_b + cols, mask=shown, other=1) == 0)
    lo, inner_lo, near_lo, near_hi, inner_hi, hi = _tiles(
        BOUNDS + (tl.where(s_b > 0, b, 0) * blocks + block) * 6, block, HIDDEN + b * h_b, radius, queries, keys, offset,
        FULL, BIAS, HIDES, BM, BN,
    )  # fmt: skip
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
        lse_from = LSE2 + (b * heads + h) * stored_rows(queries)
        delta_from = DELTA + (b * heads + h) * stored_rows(queries)
        words_from = WORDS + (b * heads + h) * 2 * stored_rows(queries)
        dk, dv = _key_far(
            dk, dv, k, v, q_from, do_from, q_m, do_m, lse_from, delta_from, g_from, g_m,
            b_right, b_left, scale, inner_lo, near_lo, near_hi, inner_hi, queries, cols, words_from, limit, spared,
            D, DP, BM, TEMPERED, PRECISION, DROPS,
        )  # fmt: skip
        dk, dv = _key_edges(
            dk, dv, k, v, q_from, do_from, q_m, do_m, lse_from, delta_from,
            g_from, g_m, RUNS + b * s_b, zero, radius, scale, offset, cols, shown, lo, inner_lo, near_lo, near_hi, inner_hi, hi,
            queries, words_from, limit, spared, D, DP, BM, FULL, BIAS, TEMPERED, PRECISION, DROPS,
        )  # fmt: skip
    to = ((b * keys + cols[:, None].to(tl.int64)) * kv_heads + kv) * D + column[None, :]
    tl.store(DK + to, (dk * scale).to(DK.dtype.element_ty), mask=inside)
    if DROPS:
        dv = dv * spared
    tl.store(DV + to, dv.to(DV.dtype.element_ty), mask=inside)
