"""A layer's bias as a table over distances."""

from __future__ import annotations

import pytest
import torch

from lengthwise.models.bias import learned_bias, table_instead_of_matrix
from tests.conftest import make


def test_the_table_holds_what_transformers_adds_at_every_distance() -> None:
    owner = make("t5").encoder.block[0].layer[0].SelfAttention
    table, length = learned_bias(owner).table, 300
    dense = owner.compute_bias(length, length)[0]  # [heads, queries, keys]
    radius = owner.relative_attention_max_distance
    distance = torch.arange(length) - torch.arange(length)[:, None]
    assert torch.equal(table[:, distance.clamp(-radius, radius) + radius], dense)


@pytest.mark.parametrize("name", ["t5", "mt5", "umt5", "switch"])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_instead_of_a_matrix_there_is_a_line_over_distances(name: str, stack: str) -> None:
    owner = make(name).get_submodule(stack).block[0].layer[0].SelfAttention.to(torch.bfloat16)
    line = table_instead_of_matrix(owner)(7, 10**9)
    reach = (line.shape[-1] - 1) // 2
    assert line.dtype == torch.float32
    assert torch.equal(line, owner.compute_bias(1, 2 * reach + 1, past_seen_tokens=reach).float())
    line.sum().backward()
    assert owner.relative_attention_bias.weight.grad.abs().sum() > 0
