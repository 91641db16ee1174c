"""How Gaussian a sorted logit vector is: its spread, and its QQ plot against a normal.

    point r of the plot = (quantile (r + 1/2) / n of a normal, l_r)          Chi et al., Figures 2 and 5

A Gaussian vector lies on a straight line whose slope is sigma; the correlation of the points says how straight it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHOWN = 161  # points kept of a plot


def normal_quantiles(n: int) -> Tensor:  # [n], float64, descending
    quantiles: Tensor = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    return quantiles.flip(0)


def straightness(vector: Tensor) -> float | None:
    """Correlation of a sorted vector with the quantiles of a normal; None where all entries are equal."""
    if len(vector) < 2 or bool(vector[0] == vector[-1]):
        return None
    points = torch.stack([vector.double(), normal_quantiles(len(vector))])
    return float(torch.corrcoef(points)[0, 1])


def top_probability(vector: Tensor) -> float:
    """Softmax of the vector, at its largest entry."""
    return float(torch.exp(vector.max() - vector.logsumexp(-1)))


def shown_ranks(n: int, most: int = SHOWN) -> list[int]:
    """Entries that tell the plot: both ends, and between them evenly by quantile of the normal; all where there are few."""
    if n <= most:
        return list(range(n))
    end = float(normal_quantiles(n)[0])
    shares: Tensor = torch.special.ndtr(torch.linspace(-end, end, most, dtype=torch.float64))
    return sorted(set((shares * n).long().clamp(0, n - 1).tolist()))
