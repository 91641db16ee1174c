"""Row statistics at several temperatures in one pass over the logits; values are never read.

A tile of raw logits a = scale * q.k + bias is computed once and serves up to four temperatures. With g >= 0 the maximum of
g * a is g * max a, so one maximum m serves all of them. Each keeps two sums in powers of two, over d = a - m:

    l = sum 2^(g d log2 e),   e = sum 2^(g d log2 e) d,   entropy = ln l - g e / l

Near and far tiles, the frozen maximum and its second try are the forward kernel's.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lengthwise.attention.triton.launch import products
from lengthwise.attention.triton.operands import Operands, Tile, launch, one_variant, padded
from lengthwise.attention.triton.tiles import (
    LARGEST,
    LN2,
    LOG2E,
    NOTHING,
    again,
    bounds,
    centre,
    edge_tile,
    edge_tiles,
    look_up,
    rows_at,
    seeded,
    seen_of,
    sees_nothing,
    sums,
    tops,
)

AT_ONCE = 4


@triton.jit
def _temper(total, e, d, seen, g, shift, BM: tl.constexpr, BN: tl.constexpr):
    """One temperature's sums, moved by `shift` to the new maximum, plus a masked tile; d is 0 where nothing is seen."""
    alpha = tl.exp2(g * shift)
    p = tl.where(seen, tl.exp2(d * g[:, None]), 0.0)
    e = alpha[:, None] * (e + shift[:, None] * total) + sums(p * d, BM, BN)
    return alpha[:, None] * total + sums(p, BM, BN), e


@triton.jit
def _edges(
    m, l0, l1, l2, l3, e0, e1, e2, e3, g0, g1, g2, g3, q, k_from, k_n, zero, radius, scale, start, stop, own, hidden,
    lo, inner_lo, seed, nears, inner_hi, hi, keys,
    T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BIAS: tl.constexpr, HIDES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles at the edges, as in the forward kernel: with masks, the table and a running maximum."""
    for t in tl.range(0, edge_tiles(lo, inner_lo, nears, inner_hi, hi, BN)):
        n = edge_tile(t, lo, inner_lo, seed, nears, inner_hi, BN)
        k = rows_at(k_from, n, k_n, keys, D, DP, BN, True)
        a = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        cols = n + tl.arange(0, BN)
        if BIAS:
            distance = cols[None, :] - own[:, None]
            a += look_up(zero + tl.minimum(tl.maximum(distance, -radius), radius))
        seen = seen_of(cols, start, stop, hidden, keys, HIDES)
        m_new = tl.maximum(m, tl.max(tl.where(seen, a, NOTHING), 1))
        d = tl.where(seen, a - m_new[:, None], 0.0)
        shift = m - m_new
        l0, e0 = _temper(l0, e0, d, seen, g0, shift, BM, BN)
        if T > 1:
            l1, e1 = _temper(l1, e1, d, seen, g1, shift, BM, BN)
        if T > 2:
            l2, e2 = _temper(l2, e2, d, seen, g2, shift, BM, BN)
        if T > 3:
            l3, e3 = _temper(l3, e3, d, seen, g3, shift, BM, BN)
        m = m_new
    return m, l0, l1, l2, l3, e0, e1, e2, e3


@triton.jit
def _add(total, e, d, g, BM: tl.constexpr, BN: tl.constexpr):
    p = tl.exp2(d * g[:, None])
    return total + sums(p, BM, BN), e + sums(p * d, BM, BN)


@triton.jit
def _inner(
    m, top, l0, l1, l2, l3, e0, e1, e2, e3, g0, g1, g2, g3, q, k_from, k_n, b_left, b_right, at, look, scale,
    left_lo, left_hi, right_lo, right_hi, keys,
    T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    NEAR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles that every row sees, with the maximum m that the edges gave; top is how far logits rose above it."""
    left = (left_hi - left_lo) // BN
    for t in tl.range(0, left + (right_hi - right_lo) // BN):
        is_left = t < left
        n = tl.where(is_left, left_lo + t * BN, right_lo + (t - left) * BN)
        k = rows_at(k_from, n, k_n, keys, D, DP, BN, False)
        r = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if NEAR:
            d = r * scale + look_up((at + n) + look) - m[:, None]
        else:
            d = r * scale - (m - tl.where(is_left, b_left, b_right))[:, None]
        top = tl.maximum(top, tops(d, BM, BN))
        l0, e0 = _add(l0, e0, d, g0, BM, BN)
        if T > 1:
            l1, e1 = _add(l1, e1, d, g1, BM, BN)
        if T > 2:
            l2, e2 = _add(l2, e2, d, g2, BM, BN)
        if T > 3:
            l3, e3 = _add(l3, e3, d, g3, BM, BN)
    return top, l0, l1, l2, l3, e0, e1, e2, e3


@triton.jit
def _sharpness(G, t, g_t, at, real):
    return tl.load(G + t * g_t + at, mask=real, other=1.0) * LOG2E


@triton.jit
def _measure(
    Q, K, TABLE, G, RUNS, HIDDEN, block, bh, scale, radius, heads, group, queries, keys, offset,
    q_b, q_h, q_m, k_b, k_h, k_n, g_t, g_b, g_h, g_m, s_b, h_b,
    T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, HIDES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Maximum, how far logits rose above it, and the sums of a block of queries. SAFE: every tile the masked way."""
    b = (bh // heads).to(tl.int64)
    h = (bh % heads).to(tl.int64)
    rows = block * BM + tl.arange(0, BM)
    real = rows < queries
    wide = rows.to(tl.int64)
    column = tl.arange(0, DP)
    inside = real[:, None] & (column < D)[None, :]
    q = tl.load(Q + b * q_b + h * q_h + wide[:, None] * q_m + column[None, :], mask=inside, other=0.0)
    of_row = b * g_b + h * g_h + wide * g_m
    g0 = _sharpness(G, 0, g_t, of_row, real)
    g1 = _sharpness(G, 1, g_t, of_row, real) if T > 1 else g0
    g2 = _sharpness(G, 2, g_t, of_row, real) if T > 2 else g0
    g3 = _sharpness(G, 3, g_t, of_row, real) if T > 3 else g0
    start, stop, own, own_first, lo, inner_lo, left_end, near_end, inner_hi, hi = bounds(
        block, RUNS + b * s_b, HIDDEN + b * h_b, rows, real, offset, radius, queries, keys, BM, BN, FULL, BIAS, HIDES, SAFE
    )
    seed, nears = seeded(own, own_first, real, left_end, near_end, BM, BN, FULL, BIAS)
    zero = centre(TABLE, h, radius)
    b_left = tl.load(zero - radius) if BIAS else 0.0
    b_right = tl.load(zero + radius) if BIAS else 0.0
    k_from = K + b * k_b + (h // group) * k_h
    m = tl.full([BM], NOTHING, dtype=tl.float32)
    top = tl.zeros([BM, 8], dtype=tl.float32)
    l0 = tl.zeros([BM, 8], dtype=tl.float32)
    l1, l2, l3, e0, e1, e2, e3 = l0, l0, l0, l0, l0, l0, l0
    m, l0, l1, l2, l3, e0, e1, e2, e3 = _edges(
        m, l0, l1, l2, l3, e0, e1, e2, e3, g0, g1, g2, g3, q, k_from, k_n, zero, radius, scale, start, stop, own,
        HIDDEN + b * h_b, lo, inner_lo, seed, nears, inner_hi, hi, keys, T, D, DP, BM, BN, BIAS, HIDES, PRECISION,
    )  # fmt: skip
    if not SAFE:
        look = tl.arange(0, BN)[None, :] - tl.arange(0, BM)[:, None]
        if BIAS:
            top, l0, l1, l2, l3, e0, e1, e2, e3 = _inner(
                m, top, l0, l1, l2, l3, e0, e1, e2, e3, g0, g1, g2, g3, q, k_from, k_n, b_left, b_right, zero - own_first,
                look, scale, left_end, seed, seed + nears * BN, near_end, keys, T, D, DP, BM, BN, True, PRECISION,
            )  # fmt: skip
        top, l0, l1, l2, l3, e0, e1, e2, e3 = _inner(
            m, top, l0, l1, l2, l3, e0, e1, e2, e3, g0, g1, g2, g3, q, k_from, k_n, b_left, b_right, zero,
            look, scale, inner_lo, left_end, near_end, inner_hi, keys, T, D, DP, BM, BN, False, PRECISION,
        )  # fmt: skip
    return m, top, l0, l1, l2, l3, e0, e1, e2, e3, g0, g1, g2, g3


@triton.jit
def _write(at, field, real, nothing, m, top, total, e, g):
    """P_max, lse and entropy, one field each; `nothing` are rows that see no key."""
    whole = tl.sum(total, 1)
    empty = (whole == 0.0) | nothing
    safe = tl.where(empty, 1.0, whole)
    base = tl.where(empty, 0.0, m) * g * LN2
    rest = tl.log2(safe) * LN2
    tl.store(at, tl.where(empty, 0.0, tl.exp2(tl.max(top, 1) * g) / safe), mask=real)
    tl.store(at + field, tl.where(empty, float("-inf"), base + rest), mask=real)
    tl.store(at + 2 * field, tl.where(empty, 0.0, rest - g * LN2 * tl.sum(e, 1) / safe), mask=real)


@one_variant
def _scan(
    Q, K, ROWS, TABLE, G, RUNS, HIDDEN, scale, radius, heads, group, queries, keys, offset,
    q_b, q_h, q_m, k_b, k_h, k_n, g_t, g_b, g_h, g_m, s_b, h_b, field,
    T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, HIDES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """ROWS is [3, temperatures, batch, heads, queries], from this launch's first temperature on; fields are `field` apart."""
    blocks = tl.cdiv(queries, BM)
    bh = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    rows = block * BM + tl.arange(0, BM)
    real = rows < queries
    m, top, l0, l1, l2, l3, e0, e1, e2, e3, g0, g1, g2, g3 = _measure(
        Q, K, TABLE, G, RUNS, HIDDEN, block, bh, scale, radius, heads, group, queries, keys, offset,
        q_b, q_h, q_m, k_b, k_h, k_n, g_t, g_b, g_h, g_m, s_b, h_b, T, D, DP, FULL, BIAS, HIDES, BM, BN, PRECISION, False,
    )  # fmt: skip
    largest = tl.maximum(tl.maximum(tl.sum(l0, 1), tl.sum(l1, 1)), tl.maximum(tl.sum(l2, 1), tl.sum(l3, 1)))
    if tl.max(tl.where(real & ~(largest < LARGEST), 1, 0), 0) > 0:
        m, top, l0, l1, l2, l3, e0, e1, e2, e3, g0, g1, g2, g3 = _measure(
            Q, K, TABLE, G, RUNS, HIDDEN, again(block), again(bh), scale, radius, heads, group, queries, keys, offset,
            q_b, q_h, q_m, k_b, k_h, k_n, g_t, g_b, g_h, g_m, s_b, h_b, T, D, DP, FULL, BIAS, HIDES, BM, BN, PRECISION, True,
        )  # fmt: skip
    temperature = (tl.num_programs(0) // blocks).to(tl.int64) * queries
    at = ROWS + bh.to(tl.int64) * queries + rows
    nothing = sees_nothing(RUNS + (bh // heads).to(tl.int64) * s_b, rows, real, queries, FULL)
    _write(at, field, real, nothing, m, top, l0, e0, g0)
    if T > 1:
        _write(at + temperature, field, real, nothing, m, top, l1, e1, g1)
    if T > 2:
        _write(at + 2 * temperature, field, real, nothing, m, top, l2, e2, g2)
    if T > 3:
        _write(at + 3 * temperature, field, real, nothing, m, top, l3, e3, g3)


def tile_for(size: int, dtype: torch.dtype) -> Tile:
    stages = 2 if size <= 128 else 1
    return Tile(64, 32, 4, stages, precision=products(dtype)) if dtype == torch.float32 else Tile(128, 64, 4, 3)


def scan(operands: Operands, inverse_temperatures: Tensor) -> Tensor:  # [3, temperatures, batch, heads, queries]
    """P_max, lse and entropy at `inverse_temperatures`, >= 0, [temperatures, batch or 1, heads or 1, queries or 1], float32."""
    query, key = operands.query, operands.key
    batch, heads, queries, size = query.shape
    count, tile = inverse_temperatures.shape[0], tile_for(size, query.dtype)
    rows = torch.empty((3, count, batch, heads, queries), dtype=torch.float32, device=query.device)
    for first in range(0, count, AT_ONCE):
        g = inverse_temperatures[first : first + AT_ONCE]
        one = operands._replace(g=g[0])
        (full, bias, _, hides), (table, _, *masks, _) = one.given, one.slots(query)
        launch(
            _scan,
            -(-queries // tile.queries) * batch * heads,
            # A view of one temperature would do for the pointer; the whole says where the others lie
            (query, key, rows[:, first:], table, g, *masks),
            (
                one.scale, one.radius, heads, one.group, queries, one.keys, one.offset,
                *query.stride()[:3], *key.stride()[:3], g.stride(0), *one.slot_strides, rows.stride(0),
                len(g), size, padded(size), full, bias, hides, tile.queries, tile.keys, tile.precision,
            ),
            tile,
        )  # fmt: skip
    return rows
