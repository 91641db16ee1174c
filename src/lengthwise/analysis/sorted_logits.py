"""The sorted, then averaged logit vector of a layer (Chi et al., section 6.1).

    every row's logits sorted from the largest to the smallest, then averaged entry by entry over the rows

In an encoder all rows see all n keys, and entry r is the mean of the r-th largest logits. A causal row sees fewer: it is
stretched to the n keys of the widest, entry r taking the row's quantile (r + 1/2) / n, and rows that see no more than
`least_share` of the widest are left out. A block of rows is sorted at a time; only sums are kept.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lengthwise.attention import Equation, autocast
from lengthwise.attention.reference import logits
from lengthwise.calibration.measure import row_weights

# Logits sorted at a time
CPU_BLOCK, CUDA_BLOCK = 2**22, 2**25


def sorted_mean(equation: Equation, least_share: float = 0.0) -> Tensor:  # [heads, keys of the widest row], float64
    """Of every head, over the rows of the whole batch."""
    batch, heads, queries, _ = equation.query.shape
    weights = row_weights(equation.count, least_share).expand(batch, 1, queries)[..., None]
    width = int(equation.count.max())
    total = torch.zeros(heads, width, dtype=torch.float64, device=equation.query.device)
    block = CUDA_BLOCK if equation.query.is_cuda else CPU_BLOCK
    step = max(1, block // (batch * heads * equation.visible.keys))
    for first in range(0, queries, step):
        some = equation.rows(first, min(first + step, queries))
        hidden = ~some.visible.mask()[:, None]
        with autocast.off(equation.query.device.type):
            rows = _descending(logits(some).masked_fill(hidden, float("-inf")))[..., :width]
        rows = _stretched(rows, some.count).masked_fill(weights[:, :, first : first + step] == 0, 0.0)
        total += rows.sum((0, 2), dtype=torch.float64)
    return total / weights.sum()


def _descending(rows: Tensor) -> Tensor:
    if rows.device.type != "cpu":
        return rows.sort(-1, descending=True).values
    # On a CPU numpy sorts numbers five times as fast as torch, which keeps their places, too
    return torch.from_numpy(np.sort(rows.numpy(), -1)).flip(-1)


def _stretched(rows: Tensor, n: Tensor) -> Tensor:
    """Rows whose first n entries count, n [batch or 1, rows], as if each had as many as the widest."""
    width = rows.shape[-1]
    if bool((n == width).all()):
        return rows
    entry = torch.arange(width, device=rows.device)
    quantile = ((2 * entry + 1) * n[..., None]) // (2 * width)  # [batch or 1, rows, width]
    return rows.gather(-1, quantile[:, None].expand(rows.shape))
