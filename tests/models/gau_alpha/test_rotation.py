from __future__ import annotations

import math

import pytest
import torch

from lengthwise.models.gau_alpha import GAUAlphaConfig
from lengthwise.models.gau_alpha.rotation import GAUAlphaRotaryEmbedding, apply_rotary_pos_emb

CONFIG = GAUAlphaConfig(head_dim=6)


def test_neighbours_are_turned_as_complex_numbers() -> None:
    torch.manual_seed(0)
    states, places = torch.randn(1, 1, 4, 6), torch.tensor([[0, 1, 70, 5000]])
    cos, sin = GAUAlphaRotaryEmbedding(CONFIG)(states, places)
    turned, none = apply_rotary_pos_emb(states, states[:, :0], cos, sin)
    assert none.shape == (1, 0, 4, 6)
    for at, place in enumerate(places[0].tolist()):
        for pair in range(3):
            angle = place * 10000.0 ** (-2 * pair / 6)
            a, b = states[0, 0, at, 2 * pair : 2 * pair + 2].tolist()
            expected = complex(a, b) * complex(math.cos(angle), math.sin(angle))
            found = complex(*turned[0, 0, at, 2 * pair : 2 * pair + 2].tolist())
            assert found == pytest.approx(expected, abs=1e-3 if place == 5000 else 1e-5)


def test_only_differences_of_positions_matter() -> None:
    torch.manual_seed(1)
    query, key = torch.randn(1, 1, 1, 6).double(), torch.randn(1, 1, 1, 6).double()
    rotary = GAUAlphaRotaryEmbedding(CONFIG)
    dots = []
    for shift in (0, 13):
        turned = [
            apply_rotary_pos_emb(states, states, *rotary(states, torch.tensor([[place + shift]])))[0]
            for states, place in ((query, 9), (key, 4))
        ]
        dots.append(float((turned[0] * turned[1]).sum()))
    assert dots[0] == pytest.approx(dots[1], abs=1e-5)
    assert dots[0] != pytest.approx(float((query * key).sum()), abs=1e-3)


def test_tables_keep_float32_under_autocast() -> None:
    """In bfloat16 position 4001 is 4000."""
    rotary, places = GAUAlphaRotaryEmbedding(CONFIG), torch.tensor([[4001]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cos, _ = rotary(torch.zeros(1), places)
    assert float(cos[0, 0, 0]) == pytest.approx(math.cos(4001), abs=1e-3)
