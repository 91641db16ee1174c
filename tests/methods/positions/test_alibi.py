"""ALiBi against transformers' Bloom and the paper's numbers."""

from __future__ import annotations

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from lengthwise.attention.bias import DistanceBias
from lengthwise.methods.base import leaves_alone
from lengthwise.methods.positions.alibi import Alibi


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 20, 71])
def test_the_bias_of_the_last_row_is_blooms(heads: int) -> None:
    keys = 9
    bloom = build_alibi_tensor(torch.ones(1, keys), heads, torch.float32)[:, 0]  # [heads, keys], slope * key
    table = DistanceBias(Alibi().distance_bias(heads, radius=16))
    distance = torch.arange(keys) - (keys - 1)
    # Bloom's is the same but for a constant along the row, which the softmax does not see
    torch.testing.assert_close(table.at(distance), bloom - bloom[:, -1:], rtol=1e-6, atol=1e-7)


def test_the_slopes_of_eight_heads_halve() -> None:
    table = Alibi().distance_bias(8, radius=2)
    assert table.shape == (8, 5)
    for head in range(8):
        slope = 0.5 ** (head + 1)
        assert table[head].tolist() == [-2 * slope, -slope, 0, -slope, -2 * slope]


def test_twelve_heads_take_every_other_slope_of_sixteen_after_those_of_eight() -> None:
    slopes = -Alibi().distance_bias(12, radius=1)[:, 0]
    expected = [2.0**-h for h in range(1, 9)] + [2.0 ** (-8 * h / 16) for h in (1, 3, 5, 7)]
    assert slopes.tolist() == pytest.approx(expected)


def test_no_length_is_left_alone() -> None:
    assert not leaves_alone(Alibi(), 1)
