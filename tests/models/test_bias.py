"""A layer's bias as a table over distances."""

from __future__ import annotations

import torch

from lengthwise.models.bias import learned_bias, no_dense_bias
from tests.conftest import make, tokens


def test_the_table_holds_what_transformers_adds_at_every_distance() -> None:
    owner = make("t5").encoder.block[0].layer[0].SelfAttention
    table, length = learned_bias(owner).table, 300
    dense = owner.compute_bias(length, length)[0]  # [heads, queries, keys]
    radius = owner.relative_attention_max_distance
    distance = torch.arange(length) - torch.arange(length)[:, None]
    assert torch.equal(table[:, distance.clamp(-radius, radius) + radius], dense)


def test_the_dense_bias_of_an_extended_model_has_one_number() -> None:
    owner = make("t5").encoder.block[0].layer[0].SelfAttention.to(torch.bfloat16)
    bias = no_dense_bias(owner)(len(tokens(4)), 10**9)
    assert bias.shape == (1, 1, 1, 1)
    assert bias.dtype == torch.bfloat16
