"""Where tokens stand when a caller's `position_ids` say so.

A rotation sees differences alone: positions that count one by one through all that a row sees are as good as the keys' indices,
wherever they begin. So padding and packed sequences ask for nothing. Positions that leap, as PoSE's and RandomPos' do, must be
kept: `GivenPositions` holds them, and how far the widest row reaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.attention import Visible
from lengthwise.errors import require

IN_A_CACHE = "these position_ids leap, and a cache keeps no positions; run the whole sequence at once, without a cache"
BETWEEN = "this batch has padding between tokens, and a cache keeps no positions; pad on the left, or run without a cache"


@dataclass(frozen=True)
class GivenPositions:
    """Positions of a whole sequence, some of them left out."""

    at: Tensor  # [batch or 1, tokens]
    reach: int  # positions from the first to the last key of the widest row


def given_positions(visible: Visible, given: Tensor) -> GivenPositions | None:  # [batch or 1, queries]
    """None where no row sees a leap."""
    if visible.queries != visible.keys:
        require(not leaps(given, visible.count > 0, visible.position), IN_A_CACHE)
        require(not _counts_past_holes(visible, given), BETWEEN)
        return None
    broken = given.diff(dim=-1) != 1
    if not bool(broken.any()):
        return None
    batch = max(len(given), len(visible.start), len(visible.stop))
    first = visible.start.clamp_max(visible.keys - 1).expand(batch, -1)
    last = (visible.stop - 1).clamp_min(0).expand(batch, -1)
    given = given.expand(batch, -1)
    breaks = torch.nn.functional.pad(broken.cumsum(-1), (1, 0)).expand(batch, -1)
    real = visible.count > 0
    if not bool((real & (breaks.gather(-1, last) > breaks.gather(-1, first))).any()):
        return None
    widest = torch.where(real, given.gather(-1, last) - given.gather(-1, first) + 1, 0).amax()
    return GivenPositions(given, max(math.ceil(widest), int(visible.count.amax())))


def _counts_past_holes(visible: Visible, given: Tensor) -> bool:
    """Whether a row sees keys on both sides of hidden ones, by positions that leave these out: so the first stand nearer."""
    if visible.hidden is None:
        return False
    return bool(((visible.count < visible.stop - visible.start) & (given != visible.position)).any())


def leaps(given: Tensor, real: Tensor | None = None, index: Tensor | None = None) -> bool:
    """Whether the real ones of these tokens, of one sequence a row, do not stand one by one."""
    if given.shape[-1] < 2:
        return False
    index = torch.arange(given.shape[-1], device=given.device) if index is None else index
    shift = given - index
    real = torch.ones_like(shift, dtype=torch.bool) if real is None else real
    low = torch.where(real, shift, torch.inf).amin(-1)
    high = torch.where(real, shift, -torch.inf).amax(-1)
    return bool((low < high).any())
