"""Which weights dropout drops: a hash of seed, head, query and key, the same in every kernel whatever its tiles are.

A row has two words, a and b, each out of one half of a seed that is drawn anew for every forward; a key has one, c, the same in
every head: Weyl's sequence, folded once, so that it takes no equal steps. A weight is dropped when the 32 bits of a c + b are
below the rate. That is one multiplication a weight, and two weights of a row tell nothing of each other, as a and b are random.
Nothing is stored but the seed.
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


def limit_of(rate: float) -> int:
    """The hashes below it, as signed numbers, are this share of all."""
    return min(round(rate * 2**32), 2**32 - 1) - 2**31


@triton.jit
def _times(x, y):
    """Multiply modulo 2^32, which TRITON_DEBUG=1 would take for a mistake."""
    return tl.mul(x, y, sanitize_overflow=False)


@triton.jit
def _mixed(x):
    x = _times(x ^ (x >> 16), FIRST)
    x = _times(x ^ (x >> 15), SECOND)
    return x ^ (x >> 16)


@triton.jit
def row_words(SEED, bh, rows, DROPS: tl.constexpr):
    """Two words of every row of a head."""
    if DROPS:
        head = bh.to(tl.uint32)
        one = _mixed(head ^ tl.load(SEED).to(tl.uint32, bitcast=True))
        two = _mixed(head ^ tl.load(SEED + 1).to(tl.uint32, bitcast=True))
        # Each of its own: heads whose first words are those of other rows would have their masks
        return _mixed(rows.to(tl.uint32) ^ one), _mixed(rows.to(tl.uint32) ^ two)
    else:
        return rows, rows


@triton.jit
def spares(word, other, cols, limit):
    """Which weights stay; words of rows and numbers of keys arrive so that they broadcast to a tile."""
    # No key's is 0, which would leave b alone to tell
    x = tl.add(_times(cols.to(tl.uint32), STEP), FIRST, sanitize_overflow=False)
    x = tl.add(_times(x ^ (x >> 16), other), word, sanitize_overflow=False)
    return x.to(tl.int32, bitcast=True) >= limit
