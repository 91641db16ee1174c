"""Which weights dropout drops: a hash of seed, head, query and key, the same in every kernel whatever its tiles are.

A row has two words out of a seed that is drawn anew for every forward; a key's number, twice multiplied and shifted between
them, gives 32 bits a weight. It is dropped when they are below the rate. Nothing is stored but the seed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Of Weyl's sequence, then of Wellons' search for integer hashes of least bias
STEP, FIRST, SECOND = (tl.constexpr(word) for word in (0x9E3779B1, 0x7FEB352D, 0x846CA68B))


def drawn(device: torch.device) -> Tensor:
    """A seed from PyTorch's generator of that device: torch.manual_seed and checkpoints repeat it."""
    return torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device=device)


def limit(rate: float) -> int:
    """The hashes below it, as signed numbers, are this share of all."""
    return min(round(rate * 2**32), 2**32 - 1) - 2**31


@triton.jit
def _mixed(x):
    x = (x ^ (x >> 16)) * FIRST
    x = (x ^ (x >> 15)) * SECOND
    return x ^ (x >> 16)


@triton.jit
def row_words(SEED, bh, rows, DROPS: tl.constexpr):
    """Two words of every row of a head."""
    if DROPS:
        one = tl.load(SEED).to(tl.uint32, bitcast=True)
        two = tl.load(SEED + 1).to(tl.uint32, bitcast=True)
        first = _mixed(rows.to(tl.uint32) ^ _mixed(bh.to(tl.uint32) ^ one))
        return first, _mixed(first ^ two)
    else:
        return rows, rows


@triton.jit
def spares(first, second, cols, limit):
    """Which weights stay; words of rows and numbers of keys arrive so that they broadcast to a tile."""
    x = cols.to(tl.uint32) * STEP + first
    x = (x ^ (x >> 16)) * FIRST ^ second
    x = (x ^ (x >> 15)) * SECOND
    return x.to(tl.int32, bitcast=True) >= limit
