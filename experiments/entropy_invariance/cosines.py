"""Cosines of the queries and keys of a GAU-alpha layer before they are rotated, and histograms of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize, silu

Array = NDArray[np.float64]
BINS = 4000  # of -1 ... 1: so fine that e^(600 cos) hardly changes within one
CENTRES = (np.arange(BINS) + 0.5) * 2 / BINS - 1


def before_rotation(unit: Any, hidden: Tensor) -> Tensor:  # [batch, tokens, hidden_size] -> [batch, tokens, tokens]
    """Of every two tokens, from what a gated attention unit is given."""
    shared = silu(unit.inward(hidden))[..., -unit.config.head_dim :]
    query, key = (normalize((shared * gamma).float(), dim=-1) for gamma in (unit.gamma_q, unit.gamma_k))
    return query @ key.transpose(-1, -2)


def histogram(cosines: Tensor, weights: Tensor | None = None) -> Array:  # [BINS]
    """How many of them are in which bin, or how much they weigh."""
    # Rounding must not carry a cosine of 1 out of the last bin
    at = ((cosines.flatten().double() + 1) * (BINS / 2)).long().clamp(0, BINS - 1)
    counted = torch.bincount(at, None if weights is None else weights.flatten().double(), minlength=BINS)
    return np.asarray(counted.double().cpu().numpy())
