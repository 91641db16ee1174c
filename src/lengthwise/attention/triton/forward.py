"""The equation in one fused GPU loop: temperature, distance bias, masks and row statistics at flash speed, O(L) memory.

A bias of distance is constant once |distance| reaches its radius (T5: 91), so a block of queries meets two kinds of key tiles.
*Near* ones, a handful, need the table or a mask. One of them runs first, with the usual running maximum. *Far* ones, all the
rest, are a bare flash loop in powers of two, one multiply-add and one exponential a logit:

    p = 2^(c r - (m - b)),    r = q.k,   c = g scale log2 e,   b = g bias log2 e, one number a side

With FROZEN the loops after the first tiles keep the maximum m that those gave. Any m gives the same softmax as long as nothing
overflows: bfloat16 and float32 weights reach 2^127, so a row fails only when a later logit exceeds every earlier one by 69 nats
or more; its block is then computed again with the running maximum. Nothing is approximated. float16 has no such room: its
maximum runs throughout.

Statistics need sum p d, d = log2 p, and the largest p: entropy = ln 2 (log2 l - sum p d / l), l = sum p. All sums over a tile's
columns stay in the thread that computed them ([BM, 8] partial sums) and meet across threads once, at the end. Dropout takes
weights out of the output alone, after they were summed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lengthwise.attention.triton.dropout import row_words, spares
from lengthwise.attention.triton.launch import FIELDS, NO_ROWS, multiprocessors, products, shared_memory
from lengthwise.attention.triton.operands import Operands, Tile, launch, one_variant, padded
from lengthwise.attention.triton.tiles import (
    LARGEST,
    LN2,
    LOG2E,
    NOTHING,
    again,
    bits,
    bounds,
    centre,
    edge_tile,
    edge_tiles,
    look_up,
    rows_at,
    seeded,
    seen_of,
    sees_nothing,
    settled,
    sharpness,
    sums,
    tops,
    weights,
)


@triton.jit
def _edges(
    acc, m, total, e, q, k_from, v_from, k_n, v_n, zero, radius, c, gb, start, stop, own, hidden,
    lo, inner_lo, seed, nears, inner_hi, hi, keys, word, other, limit,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BIAS: tl.constexpr, HIDES: tl.constexpr, ENTROPY: tl.constexpr, PRECISION: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Tiles lo ... inner_lo, `nears` from seed on, inner_hi ... hi: masks, table, running maximum; any tile may come here."""
    for t in tl.range(0, edge_tiles(lo, inner_lo, nears, inner_hi, hi, BN)):
        n = edge_tile(t, lo, inner_lo, seed, nears, inner_hi, BN)
        k = rows_at(k_from, n, k_n, keys, D, DP, BN, True)
        x = tl.dot(q, tl.trans(k), input_precision=PRECISION) * c[:, None]
        cols = n + tl.arange(0, BN)
        if BIAS:
            distance = cols[None, :] - own[:, None]
            x += look_up(zero + tl.minimum(tl.maximum(distance, -radius), radius)) * gb[:, None]
        x = tl.where(seen_of(cols, start, stop, hidden, keys, HIDES), x, float("-inf"))
        m_new = tl.maximum(m, tl.max(x, 1))
        # -inf becomes a number whose power is 0 all the same: 0 * -inf would be NaN in the entropy
        d = tl.maximum(x - m_new[:, None], -1.0e4)
        p = tl.exp2(d)
        shift = m - m_new
        alpha = tl.exp2(shift)
        if ENTROPY:
            e = alpha[:, None] * (e + shift[:, None] * total) + sums(p * d, BM, BN)
        total = total * alpha[:, None] + sums(p, BM, BN)
        acc = acc * alpha[:, None]
        if DROPS:
            p = tl.where(spares(word[:, None], other[:, None], cols[None, :], limit), p, 0.0)
        v = rows_at(v_from, n, v_n, keys, D, DP, BN, True)
        acc = settled(tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION))
        m = m_new
    return acc, m, total, e


@triton.jit
def _weigh(
    r, m, total, e, top, bias, at, look, gb, c,
    BM: tl.constexpr, BN: tl.constexpr, NEAR: tl.constexpr, ENTROPY: tl.constexpr, FROZEN: tl.constexpr,
):  # fmt: skip
    """Weights of a tile from its products r, and alpha, by which acc must be multiplied. NEAR: the bias is the table's."""
    if NEAR:
        r = r * c[:, None] + look_up(at + look) * gb[:, None]
        slope = tl.full([BM], 1.0, tl.float32)
        bias = tl.zeros_like(m)
    else:
        slope = c
    if FROZEN:
        alpha = tl.zeros_like(m)
        base = m - bias
    else:
        m_new = tl.maximum(m, tl.max(r, 1) * slope + bias)
        shift = m - m_new
        alpha = tl.exp2(shift)
        base = m_new - bias
        if ENTROPY:
            e = alpha[:, None] * (e + shift[:, None] * total)
        total = total * alpha[:, None]
        m = m_new
    d = r - base[:, None] if NEAR else r * c[:, None] - base[:, None]
    p = tl.exp2(d)
    total += sums(p, BM, BN)
    if ENTROPY:
        e += sums(p * d, BM, BN)
        if FROZEN:
            # Of weights, not of logits: they are compared while the next exponentials are computed
            top = tl.maximum(top, tops(bits(p), BM, BN))
    return p, alpha, m, total, e, top


@triton.jit
def _inner(
    acc, m, total, e, top, q, k_from, v_from, k_n, v_n, left_bias, right_bias, at, look, gb, c,
    left_lo, left_hi, right_lo, right_hi, keys, word, other, limit,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, NEAR: tl.constexpr,
    ENTROPY: tl.constexpr, FROZEN: tl.constexpr, PRECISION: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Tiles left_lo ... left_hi and right_lo ... right_hi, all of whose keys every row sees, in one loop."""
    left = (left_hi - left_lo) // BN
    for t in tl.range(0, left + (right_hi - right_lo) // BN):
        is_left = t < left
        n = tl.where(is_left, left_lo + t * BN, right_lo + (t - left) * BN)
        k = rows_at(k_from, n, k_n, keys, D, DP, BN, False)
        r = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        bias = tl.where(is_left, left_bias, right_bias) * gb
        p, alpha, m, total, e, top = _weigh(
            r, m, total, e, top, bias, at + n, look, gb, c, BM, BN, NEAR, ENTROPY, FROZEN
        )  # fmt: skip
        if not FROZEN:
            acc = acc * alpha[:, None]
        if DROPS:
            p = tl.where(spares(word[:, None], other[:, None], (n + tl.arange(0, BN))[None, :], limit), p, 0.0)
        v = rows_at(v_from, n, v_n, keys, D, DP, BN, False)
        acc = settled(tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION))
    return acc, m, total, e, top


@triton.jit
def _attend(
    Q, K, V, TABLE, G, RUNS, HIDDEN, SEED, block, bh, scale, radius, heads, group, queries, keys, offset,
    q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_m, s_b, h_b, limit,
    D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, TEMPERED: tl.constexpr, HIDES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, ENTROPY: tl.constexpr, FROZEN: tl.constexpr, PRECISION: tl.constexpr,
    DROPS: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """Unnormalised output, maximum, sums and largest logit of a block of queries. SAFE: every tile the masked way."""
    b = (bh // heads).to(tl.int64)
    h = (bh % heads).to(tl.int64)
    rows = block * BM + tl.arange(0, BM)
    real = rows < queries
    wide = rows.to(tl.int64)
    column = tl.arange(0, DP)
    inside = real[:, None] & (column < D)[None, :]
    q = tl.load(Q + b * q_b + h * q_h + wide[:, None] * q_m + column[None, :], mask=inside, other=0.0)
    gb = sharpness(G + b * g_b + h * g_h, rows, real, g_m, BM, TEMPERED) * LOG2E
    c = gb * scale
    if TEMPERED > 0 and not FROZEN:
        # The running maximum of c r is c times that of r only where c >= 0; a sign costs nothing
        c = tl.abs(gb * scale)
        q = tl.where((gb * scale < 0)[:, None], -q, q)
    start, stop, own, own_first, lo, inner_lo, left_end, near_end, inner_hi, hi = bounds(
        block, RUNS + b * s_b, HIDDEN + b * h_b, rows, real, offset, radius, queries, keys, BM, BN, FULL, BIAS, HIDES, SAFE
    )
    word, other = row_words(SEED, bh, rows, DROPS)
    seed, nears = seeded(own, own_first, real, left_end, near_end, BM, BN, FULL, BIAS)
    zero = centre(TABLE, h, radius)
    left_bias = tl.load(zero - radius) if BIAS else 0.0
    right_bias = tl.load(zero + radius) if BIAS else 0.0
    k_from = K + b * k_b + (h // group) * k_h
    v_from = V + b * v_b + (h // group) * v_h
    acc = tl.zeros([BM, DP], dtype=tl.float32)
    m = tl.full([BM], NOTHING, dtype=tl.float32)
    total = tl.zeros([BM, 8], dtype=tl.float32)
    e = tl.zeros([BM, 8], dtype=tl.float32)
    # The largest weight, where m is frozen
    top = bits(tl.full([BM, 8], 1.0, dtype=tl.float32))
    acc, m, total, e = _edges(
        acc, m, total, e, q, k_from, v_from, k_n, v_n, zero, radius, c, gb, start, stop, own, HIDDEN + b * h_b,
        lo, inner_lo, seed, nears, inner_hi, hi, keys, word, other, limit,
        D, DP, BM, BN, BIAS, HIDES, ENTROPY, PRECISION, DROPS,
    )  # fmt: skip
    if not SAFE:
        # Said this way, a thread reads all its entries at constant offsets from one pointer
        look = tl.arange(0, BN)[None, :] - tl.arange(0, BM)[:, None]
        if BIAS:
            acc, m, total, e, top = _inner(
                acc, m, total, e, top, q, k_from, v_from, k_n, v_n, left_bias, right_bias, zero - own_first, look, gb, c,
                left_end, seed, seed + nears * BN, near_end, keys, word, other, limit,
                D, DP, BM, BN, True, ENTROPY, FROZEN, PRECISION, DROPS,
            )  # fmt: skip
        acc, m, total, e, top = _inner(
            acc, m, total, e, top, q, k_from, v_from, k_n, v_n, left_bias, right_bias, zero, look, gb, c,
            inner_lo, left_end, near_end, inner_hi, keys, word, other, limit,
            D, DP, BM, BN, False, ENTROPY, FROZEN, PRECISION, DROPS,
        )  # fmt: skip
    return acc, m, total, e, top


@one_variant
def _forward(
    Q, K, V, OUT, ROWS, TABLE, G, RUNS, HIDDEN, SEED, scale, radius, heads, group, queries, keys, offset,
    q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_m, s_b, h_b, limit, spared,
    D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, TEMPERED: tl.constexpr, HIDES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, WANT: tl.constexpr, FROZEN: tl.constexpr, PRECISION: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    """OUT is [batch, queries, heads, D]. ROWS, [fields, batch, heads, queries]: lse for WANT 1; P_max, lse, entropy for 2."""
    blocks = tl.cdiv(queries, BM)
    bh = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    rows = block * BM + tl.arange(0, BM)
    real = rows < queries
    acc, m, total, e, top = _attend(
        Q, K, V, TABLE, G, RUNS, HIDDEN, SEED, block, bh, scale, radius, heads, group, queries, keys, offset,
        q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_m, s_b, h_b, limit,
        D, DP, FULL, BIAS, TEMPERED, HIDES, BM, BN, WANT == 2, FROZEN, PRECISION, DROPS, False,
    )  # fmt: skip
    if FROZEN:
        if tl.max(tl.where(real & ~(tl.sum(total, 1) < LARGEST), 1, 0), 0) > 0:
            acc, m, total, e, top = _attend(
                Q, K, V, TABLE, G, RUNS, HIDDEN, SEED, again(block), again(bh), scale, radius, heads, group, queries, keys,
                offset,
                q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_m, s_b, h_b, limit,
                D, DP, FULL, BIAS, TEMPERED, HIDES, BM, BN, WANT == 2, FROZEN, PRECISION, DROPS, True,
            )  # fmt: skip
    column = tl.arange(0, DP)
    whole = tl.sum(total, 1)
    empty = (whole == 0.0) | sees_nothing(RUNS + (bh // heads).to(tl.int64) * s_b, rows, real, queries, FULL)
    safe = tl.where(empty, 1.0, whole)
    line = (bh // heads).to(tl.int64) * queries + rows
    to = OUT + (line * heads + bh % heads)[:, None] * D + column[None, :]
    out = tl.where(empty[:, None], 0.0, acc * ((spared if DROPS else 1.0) / safe)[:, None])
    tl.store(to, out.to(OUT.dtype.element_ty), mask=real[:, None] & (column < D)[None, :])
    at = ROWS + bh.to(tl.int64) * queries + rows
    if WANT == 2:
        field = (tl.num_programs(0) // blocks).to(tl.int64) * queries
        tl.store(at, tl.where(empty, 0.0, weights(tl.max(top, 1)) / safe), mask=real)
        at += field
        tl.store(at + field, tl.where(empty, 0.0, (tl.log2(safe) - tl.sum(e, 1) / safe) * LN2), mask=real)
    if WANT > 0:
        tl.store(at, tl.where(empty, float("-inf"), (m + tl.log2(safe)) * LN2), mask=real)


@lru_cache
def tile_for(size: int, dtype: torch.dtype, precision: str | None, shared: int = 2**20, few: bool = False) -> Tile:
    """Measured on an H200, 32 heads of 64: two blocks of 8 warps share a multiprocessor, one computes while the other waits.

    `few`: of such blocks there are fewer than multiprocessors.
    """
    if dtype == torch.float32 and size > 128:
        return Tile(32, 32, 8, 1, precision=precision)
    if dtype == torch.float32:
        # Of 128 numbers they take 192 and 112 KiB; a block has 227 on Hopper, 163 on an A100, 99 on Ada
        if shared >= (96 if size <= 64 else 192) * 1024:
            return Tile(128, 64, 8, 2, precision=precision)
        small = size > 64 and shared < 112 * 1024
        return Tile(32, 32, 4, 1, precision=precision) if small else Tile(64, 32, 4, 2, precision=precision)
    frozen = dtype == torch.bfloat16
    if size <= 128 and (few or size > 64):
        return Tile(64, 64, 4, 3, frozen=frozen)
    # Of 256 numbers: queries 64 KiB, keys and values 32 each, twice
    return Tile(128, 64, 8, 3, registers=128, frozen=frozen) if size <= 64 else Tile(128, 64, 8, 2, frozen=frozen)


class Launch(NamedTuple):
    """A kernel and all that it is launched with, and where it writes."""

    out: Tensor  # [batch, queries, heads, size]
    rows: Tensor | None
    kernel: Any
    programs: int
    tensors: tuple[Tensor, ...]
    numbers: tuple[Any, ...]
    tile: Tile


def prepared(operands: Operands, want: int) -> Launch:
    """The launch of the forward kernel."""
    query, key, value = operands.query, operands.key, operands.value
    batch, heads, queries, size = query.shape
    few = -(-queries // 128) * batch * heads < multiprocessors(query.device)
    tile = tile_for(size, query.dtype, products(query.dtype), shared_memory(query.device), few)
    out = torch.empty((batch, queries, heads, size), dtype=query.dtype, device=query.device)
    rows = None
    if want != NO_ROWS:
        rows = torch.empty((FIELDS[want], batch, heads, queries), dtype=torch.float32, device=query.device)
    tensors = (query, key, value, out, out if rows is None else rows, *operands.slots(query))
    numbers = (
        operands.scale, operands.radius, heads, operands.group, queries, operands.keys, operands.offset,
        *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *operands.slot_strides, *operands.dropping,
        size, padded(size), *operands.given, tile.queries, tile.keys, want, tile.frozen, tile.precision, operands.drops,
    )  # fmt: skip
    return Launch(out, rows, _forward, -(-queries // tile.queries) * batch * heads, tensors, numbers, tile)


def forward(operands: Operands, want: int = NO_ROWS) -> tuple[Tensor, Tensor | None]:
    """Output [batch, heads, queries, size], its memory in the order a model goes on with, [batch, queries, heads, size].

    Beside it, [fields, batch, heads, queries]: nothing, lse, or P_max, lse and entropy, as `want` says.
    """
    out, rows, *launched = prepared(operands, want)
    launch(*launched)
    return out.transpose(1, 2), rows
