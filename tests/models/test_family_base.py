"""The plain attention of this package's own models, and ALiBi that they were trained with."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lengthwise.errors import BadInput
from lengthwise.models.family_base import AlibiSlopes, FamilyAttention, check_alibi_factors, eager_attention_forward


def test_the_bias_falls_by_its_slope_with_every_token_of_distance() -> None:
    config = SimpleNamespace(positions="alibi", alibi_factors=None)
    attention = FamilyAttention(config, 0, [0.5, 0.25])
    bias = attention.compute_bias(2, 4, past_seen_tokens=2)
    assert torch.equal(attention.compute_bias(2, 4), bias)
    assert bias[0, 0].tolist() == [[-1.0, -0.5, 0.0, -0.5], [-1.5, -1.0, -0.5, 0.0]]
    assert torch.equal(bias[0, 1], bias[0, 0] / 2)


def test_factors_multiply_and_make_the_same_slopes_again() -> None:
    slopes = AlibiSlopes([0.5, 0.25], [2.0, 1.0])
    slopes.sharpen([3.0, 4.0])
    assert slopes.slopes == (3.0, 1.0)
    assert slopes.weight.tolist() == AlibiSlopes([0.5, 0.25], slopes.factors).weight.tolist() == [3.0, 1.0]


def test_factors_that_do_not_fit_the_layers_are_refused() -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2}
    config = SimpleNamespace(**sizes, alibi_factors=[[1.0, 2.0], [3.0, 4.0]])
    check_alibi_factors(config)
    config.positions = "alibi"
    assert FamilyAttention(config, 1, [1.0, 1.0]).relative_attention_bias.slopes == (3.0, 4.0)
    with pytest.raises(BadInput, match="alibi_factors must be 2 lists, one a layer, of 2 numbers"):
        check_alibi_factors(SimpleNamespace(**sizes, alibi_factors=[[1.0], [2.0]]))


def test_logits_are_scaled_before_bias_and_mask_are_added() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 3, 4, generator=generator) for _ in range(3))
    bias = torch.randn(1, 2, 3, 3, generator=generator)
    mask = torch.zeros(1, 1, 3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), torch.finfo(torch.float32).min)
    output, weights = eager_attention_forward(nn.Module().eval(), query, key, value, mask, 0.3, 0.5, position_bias=bias)
    expected = nn.functional.scaled_dot_product_attention(query, key, value, bias + mask, scale=0.3)
    torch.testing.assert_close(output, expected.transpose(1, 2))
    assert bool((weights.triu(1) == 0).all())
