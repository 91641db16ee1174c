"""Gradients of queries, temperatures and the bias table: a block of queries goes over the keys it sees.

The formulae, and what the arguments are, stand in `backward`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lengthwise.attention.triton.dropout import row_words, spares
from lengthwise.attention.triton.operands import one_variant
from lengthwise.attention.triton.tiles import (
    LOG2E,
    block_of,
    bounds,
    centre,
    edge_tile,
    edge_tiles,
    look_up,
    rows_at,
    seen_of,
    settled,
    sharpness,
    stored_rows,
    sums,
)


@triton.jit
def _weighed(p, dp, delta, word, other, cols, limit, spared, DROPS: tl.constexpr):
    """w of a tile, [queries, keys]."""
    if DROPS:
        kept = tl.where(spares(word[:, None], other[:, None], cols[None, :], limit), p, 0.0)
        return kept * (dp * spared) - p * delta[:, None]
    else:
        return p * (dp - delta[:, None])


@triton.jit
def _query_edges(
    dq, dg, left, right, q, do, lse, delta, k_from, v_from, k_n, v_n, zero, band, line, radius, scale, g, start, stop, own,
    real, hidden, lo, inner_lo, left_end, near_end, inner_hi, hi, keys, word, other, limit, spared,
    D: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, BIAS: tl.constexpr, HIDES: tl.constexpr,
    TABLE_GRAD: tl.constexpr, G_GRAD: tl.constexpr, PRECISION: tl.constexpr, DROPS: tl.constexpr,
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
        dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
        w = _weighed(p, dp, delta, word, other, cols, limit, spared, DROPS)
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
    left_lo, left_hi, right_lo, right_hi, keys, word, other, limit, spared,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    TEMPERED: tl.constexpr, SIDES: tl.constexpr, G_GRAD: tl.constexpr, PRECISION: tl.constexpr, DROPS: tl.constexpr,
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
        dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
        w = _weighed(p, dp, delta, word, other, n + tl.arange(0, BN), limit, spared, DROPS)
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


@triton.jit
def _end(at, BM: tl.constexpr, BIAS: tl.constexpr):
    """The bias of all rows at one end of the table."""
    bias = tl.zeros([BM], dtype=tl.float32)
    if BIAS:
        bias = tl.load(at) + bias
    return bias


@triton.jit
def _store(DQ, dq, b, h, rows, real, heads, queries, D: tl.constexpr, DP: tl.constexpr):
    """Store a block of rows into [batch, queries, heads, D]."""
    column = tl.arange(0, DP)
    to = DQ + ((b * queries + rows.to(tl.int64)) * heads + h)[:, None] * D + column[None, :]
    tl.store(to, dq.to(DQ.dtype.element_ty), mask=real[:, None] & (column < D)[None, :])


@one_variant
def by_query(
    Q, K, V, GRAD, LSE2, DELTA, DQ, DG, BANDS, TABLE, G, RUNS, HIDDEN, SEED,
    scale, radius, heads, group, queries, keys, offset, first,
    q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, do_b, do_h, do_m, g_b, g_h, g_m, s_b, h_b, limit, spared,
    D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, TEMPERED: tl.constexpr, HIDES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TABLE_GRAD: tl.constexpr, G_GRAD: tl.constexpr, PRECISION: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    """dq, dg and the band of one block of queries."""
    blocks = tl.cdiv(queries, BM)
    block = tl.program_id(0) % blocks
    among = tl.program_id(0) // blocks
    bh = first + among
    b = (bh // heads).to(tl.int64)
    h = (bh % heads).to(tl.int64)
    rows = block * BM + tl.arange(0, BM)
    real = rows < queries
    q = block_of(Q + b * q_b + h * q_h, rows, q_m, queries, D, DP)
    do = block_of(GRAD + b * do_b + h * do_h, rows, do_m, queries, D, DP)
    at = bh.to(tl.int64) * stored_rows(queries) + rows
    lse = tl.load(LSE2 + at)
    delta = tl.load(DELTA + at)
    g = sharpness(G + b * g_b + h * g_h, rows, real, g_m, BM, TEMPERED)
    start, stop, own, _, lo, inner_lo, left_end, near_end, inner_hi, hi = bounds(
        block, RUNS + b * s_b, HIDDEN + b * h_b, rows, real, offset, radius, queries, keys, BM, BN, FULL, BIAS, HIDES, False
    )
    word, other = row_words(SEED, bh, rows, DROPS)
    zero = centre(TABLE, h, radius)
    b_left = _end(zero - radius, BM, BIAS)
    b_right = _end(zero + radius, BM, BIAS)
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
    dq, wr, far_left, far_right = _query_far(
        dq, wr, far_left, far_right, q, do, lse, delta, k_from, v_from, k_n, v_n,
        b_left * g * LOG2E, b_right * g * LOG2E, g * (scale * LOG2E), g, inner_lo, left_end, near_end, inner_hi, keys,
        word, other, limit, spared, D, DP, BM, BN, TEMPERED, SIDES, G_GRAD, PRECISION, DROPS,
    )  # fmt: skip
    left = tl.sum(far_left, 1)
    right = tl.sum(far_right, 1)
    if G_GRAD:
        dg = tl.sum(wr, 1) * scale + b_left * left + b_right * right
    left *= g
    right *= g
    dq, dg, left, right = _query_edges(
        dq, dg, left, right, q, do, lse, delta, k_from, v_from, k_n, v_n, zero, band, line, radius, scale, g, start, stop, own,
        real, HIDDEN + b * h_b, lo, inner_lo, left_end, near_end, inner_hi, hi, keys, word, other, limit, spared,
        D, DP, BN, BIAS, HIDES, TABLE_GRAD, G_GRAD, PRECISION, DROPS,
    )  # fmt: skip
    _store(DQ, dq * scale, b, h, rows, real, heads, queries, D, DP)
    if G_GRAD:
        tl.store(DG + bh.to(tl.int64) * queries + rows, dg, mask=real)
    if TABLE_GRAD:
        tl.store(band + line, left, mask=real)
        tl.store(band + line + 2 * radius, right, mask=real)
