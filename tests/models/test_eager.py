"""The plain attention of this package's own models."""

from __future__ import annotations

import torch
from torch import nn

from lengthwise.models.eager import eager_attention_forward


def test_logits_are_scaled_before_bias_and_mask_are_added() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 3, 4, generator=generator) for _ in range(3))
    bias = torch.randn(1, 2, 3, 3, generator=generator)
    mask = torch.zeros(1, 1, 3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), torch.finfo(torch.float32).min)
    output, weights = eager_attention_forward(nn.Module().eval(), query, key, value, mask, 0.3, 0.5, position_bias=bias)
    expected = nn.functional.scaled_dot_product_attention(query, key, value, bias + mask, scale=0.3)
    torch.testing.assert_close(output, expected.transpose(1, 2))
    assert bool((weights.triu(1) == 0).all())
