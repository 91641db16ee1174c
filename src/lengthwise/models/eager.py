"""transformers' `eager` attention for the models of this package, with a bias beside the mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Every weight written down."""
    # CosScale makes logits of hundreds, which 8 bits would round to whole numbers
    with torch.autocast(query.device.type, enabled=False):
        logits = query.float() @ key.float().transpose(2, 3) * scaling
    for added in (position_bias, attention_mask):
        logits = logits if added is None else logits + added
    weights = logits.softmax(-1, dtype=torch.float32).to(value.dtype)
    weights = nn.functional.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights
