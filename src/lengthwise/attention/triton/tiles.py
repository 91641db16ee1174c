"""What the Triton kernels share: tiles of keys, the bias table, and the bounds of a block of queries.

A block of queries meets *near* tiles, which need the table or a mask, and *far* ones, all of whose keys every row sees with one
bias a side. Tables arrive `DistanceBias.widened`, so that near tiles without a mask read them without a clamp.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lengthwise.attention.bias import MARGIN

INTERPRETED = bool(triton.knobs.runtime.interpret)

# A row's maximum before it has seen anything: finite, because -inf - -inf is NaN
NOTHING = tl.constexpr(-1.0e30)
LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)
# What a frozen sum may reach: leaves room for values up to 2^27
LARGEST = tl.constexpr(1.2676506002282294e30)
BEYOND = tl.constexpr(MARGIN)
ASSEMBLY = tl.constexpr(not INTERPRETED)
# Rows of delta and lse are stored in whole lots, so that every head's begin at a 16-byte boundary
LOT = tl.constexpr(64)


@triton.jit
def stored_rows(queries):
    """The number of rows of delta and lse that a head has in memory."""
    return tl.cdiv(queries, LOT) * LOT


@triton.jit
def sums(x, BM: tl.constexpr, BN: tl.constexpr):
    """Sums of a tile's rows, [BM, 8]: columns 8 apart sit in one thread of the tensor cores' layout: none are exchanged."""
    return tl.sum(tl.reshape(x, [BM, BN // 8, 8]), 1)


@triton.jit
def tops(x, BM: tl.constexpr, BN: tl.constexpr):
    """The largest of a tile's rows, likewise."""
    return tl.max(tl.reshape(x, [BM, BN // 8, 8]), 1)


@triton.jit
def bits(p):
    """Weights as integers, which have the same order: Hopper finds the largest of three integers at once, of two floats."""
    return p.to(tl.int32, bitcast=True)


@triton.jit
def weights(b):
    return b.to(tl.float32, bitcast=True)


@triton.jit
def rows_at(source, n, stride, count, D: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, EDGE: tl.constexpr):
    """Rows n ... n + BN - 1 of [count, D], as [BN, DP]; zeros beyond D and, at an EDGE, beyond the last row."""
    inner = tl.arange(0, BN)
    column = tl.arange(0, DP)
    at = source + n.to(tl.int64) * stride + (inner[:, None] * stride + column[None, :])
    if EDGE:
        return tl.load(at, mask=(n + inner < count)[:, None] & (column < D)[None, :], other=0.0)
    elif D != DP:
        return tl.load(at, mask=(column < D)[None, :], other=0.0)
    else:
        return tl.load(at)


@triton.jit
def block_of(source, rows, stride, count, D: tl.constexpr, DP: tl.constexpr):
    """The rows that a program stays with, as [rows, DP]; zeros beyond D and from `count` on."""
    column = tl.arange(0, DP)
    at = source + rows.to(tl.int64)[:, None] * stride + column[None, :]
    return tl.load(at, mask=(rows < count)[:, None] & (column < D)[None, :], other=0.0)


@triton.jit
def look_up(at):
    """Table entries without a detour: Triton would copy a tile of them to shared memory, as it does with keys."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];", "=f,l", [at.to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.load(at)


@triton.jit
def settled(acc):
    """acc as it is, once its products are done.

    Left in flight across a loop's end they make ptxas run all matrix products of a kernel one by one (its C7510 and C7515).
    """
    if ASSEMBLY:
        return tl.inline_asm_elementwise("mov.f32 $0, $1;", "=f,f", [acc], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return acc


@triton.jit
def again(number):
    """The same number, unknown to the compiler: a second try then loads what it needs instead of keeping it in registers."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [number], dtype=tl.int32, is_pure=False, pack=1)
    else:
        return number


@triton.jit
def centre(TABLE, h, radius):
    """Where a head's bias at distance 0 stands."""
    return TABLE + h * (2 * (radius + BEYOND) + 1) + (radius + BEYOND)


@triton.jit
def sharpness(at, rows, real, g_m, BM: tl.constexpr, TEMPERED: tl.constexpr):
    """g of a block's rows, 1 where there is none. One number a head takes no register a row."""
    if TEMPERED == 2:
        return tl.load(at + rows.to(tl.int64) * g_m, mask=real, other=1.0)
    elif TEMPERED == 1:
        return tl.zeros([BM], tl.float32) + tl.load(at)
    else:
        return tl.full([BM], 1.0, tl.float32)


@triton.jit
def edge_tile(t, lo, inner_lo, near_lo, nears, inner_hi, BN: tl.constexpr):
    """Where the t-th tile of lo ... inner_lo, `nears` from near_lo on, inner_hi ... begins."""
    before = (inner_lo - lo) // BN
    behind = inner_hi + (t - before - nears) * BN
    return tl.where(t < before, lo + t * BN, tl.where(t < before + nears, near_lo + (t - before) * BN, behind))


@triton.jit
def edge_tiles(lo, inner_lo, nears, inner_hi, hi, BN: tl.constexpr):
    """The number of tiles that `edge_tile` counts."""
    return (inner_lo - lo) // BN + nears + tl.maximum(hi - inner_hi + BN - 1, 0) // BN


@triton.jit
def seen_of(cols, start, stop, hidden, keys, HIDES: tl.constexpr):
    """[rows, keys]: which keys of a tile each row sees."""
    seen = (cols[None, :] >= start[:, None]) & (cols[None, :] < stop[:, None])
    if HIDES:
        seen = seen & (tl.load(hidden + cols, mask=cols < keys, other=1) == 0)[None, :]
    return seen


@triton.jit
def sees_nothing(runs, rows, real, queries, FULL: tl.constexpr):
    """Which rows of a block see no key at all."""
    if FULL:
        return rows < 0
    else:
        start = tl.load(runs + rows, mask=real, other=0)
        return tl.load(runs + queries + rows, mask=real, other=0) <= start


@triton.jit
def has_holes(hidden, keys):
    """Whether some of a sequence's hidden keys are within a run: the number behind them all tells."""
    return tl.load(hidden + keys) != 0


@triton.jit
def bounds(
    block, runs, hidden, rows, real, offset, radius, queries, keys,
    BM: tl.constexpr, BN: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr, HIDES: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Each row's run and place, then the block's tiles.

    Any row sees lo ... hi, all rows inner_lo ... inner_hi, and of those left_end ... near_end are near. MASKED, or with keys
    hidden within runs: no inner ones.
    """
    if FULL:
        start = tl.zeros_like(rows)
        stop = tl.zeros_like(rows) + keys
        own = rows + offset
        lo = 0
        inner_lo = 0
        inner_hi = keys // BN * BN
        hi = keys
        own_first = offset + block * BM
        own_last = tl.minimum(own_first + BM, offset + queries) - 1
    else:
        start = tl.load(runs + rows, mask=real, other=0)
        stop = tl.load(runs + queries + rows, mask=real, other=0)
        own = tl.load(runs + 2 * queries.to(tl.int64) + rows, mask=real, other=0)
        live = real & (stop > start)
        big = 1073741824
        first = tl.min(tl.where(live, start, big), 0)
        hi = tl.max(tl.where(live, stop, 0), 0)
        latest = tl.max(tl.where(live, start, 0), 0)
        earliest = tl.min(tl.where(live, stop, big), 0)
        lo = tl.minimum(first, hi) // BN * BN
        inner_lo = tl.maximum((tl.minimum(latest, hi) + BN - 1) // BN * BN, lo)
        inner_hi = tl.maximum(tl.minimum(earliest, hi) // BN * BN, inner_lo)
        own_first = tl.min(tl.where(real, own, big), 0)
        own_last = tl.max(tl.where(real, own, -big), 0)
        # Rows that see nothing, or do not exist, go along with the others, so that a block needs no mask for them and holds
        # no infinities; what they give is not kept
        start = tl.where(live, start, 0)
        stop = tl.where(live, stop, keys)
    end = (hi + BN - 1) // BN * BN
    if MASKED:
        inner_lo = end
        inner_hi = end
    elif HIDES:
        masked = has_holes(hidden, keys)
        inner_lo = tl.where(masked, end, inner_lo)
        inner_hi = tl.where(masked, end, inner_hi)
    if BIAS:
        near_lo = tl.maximum(own_first - radius + 1, 0) // BN * BN
        near_hi = (tl.maximum(own_last + radius, 0) + BN - 1) // BN * BN
    else:
        near_lo = tl.maximum(own_first, 0) // BN * BN
        near_hi = near_lo
    # At least one tile is near: it gives the far loop its maximum
    left_end = tl.minimum(tl.maximum(near_lo, inner_lo), tl.maximum(inner_hi - BN, inner_lo))
    near_end = tl.minimum(tl.maximum(near_hi, left_end + BN), inner_hi)
    return start, stop, own, own_first, lo, inner_lo, left_end, near_end, inner_hi, hi


@triton.jit
def seeded(
    own, own_first, real, left_end, near_end, BM: tl.constexpr, BN: tl.constexpr, FULL: tl.constexpr, BIAS: tl.constexpr
):
    """Which near tiles take the masked way first, so that the others need not: (where they begin, how many).

    One at the diagonal, where biases of distance are largest; all of them where the rows do not stand one after the other.
    """
    nears = (near_end - left_end) // BN
    seed = left_end
    if BIAS:
        middle = (own_first + BM // 2) // BN * BN
        seed = tl.maximum(tl.minimum(middle, near_end - BN), left_end)
        if FULL:
            nears = tl.minimum(nears, 1)
        else:
            astray = tl.max(tl.where(real & (own != own_first + tl.arange(0, BM)), 1, 0), 0)
            seed = tl.where(astray > 0, left_end, seed)
            nears = tl.where(astray > 0, nears, tl.minimum(nears, 1))
    return seed, nears
