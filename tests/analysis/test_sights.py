"""How far heads look by their bias alone, by hand and against transformers' dense bias."""

from __future__ import annotations

import math

import pytest
import torch

from lengthwise.analysis.sights import sight, sights
from lengthwise.attention import DistanceBias
from lengthwise.models.anatomy import anatomy_of
from tests.conftest import TRAIN_LENGTH, make


def test_a_head_without_preference_looks_at_the_mean_distance() -> None:
    flat = DistanceBias(torch.zeros(1, 3, dtype=torch.float64))
    # Distances -2 -1 0 1, and in a causal model -3 -2 -1 0
    assert sight(flat, 4, causal=False).tolist() == [1.0]
    assert sight(flat, 4, causal=True).tolist() == [1.5]


def test_a_bias_weighs_the_distances() -> None:
    # Distances -2 ... 2 with weights 1 1 6 3 3: the last value holds beyond the table
    bias = DistanceBias(torch.tensor([[0.0, math.log(6.0), math.log(3.0)]], dtype=torch.float64))
    assert sight(bias, 5, causal=False).tolist() == pytest.approx([(2 + 1 + 3 * 1 + 3 * 2) / 14])


def test_heads_come_from_near_sighted_to_far_sighted() -> None:
    model = make("t5")
    found = sights(anatomy_of(model), longest=100)
    assert sorted((one.layer, one.head) for one in found) == [(1, head) for head in range(1, 5)]
    assert [one.sight_train for one in found] == sorted(one.sight_train for one in found)
    attention = model.encoder.block[0].layer[0].SelfAttention
    for one in found:
        for n, told in ((TRAIN_LENGTH, one.sight_train), (100, one.sight_longest)):
            with torch.no_grad():
                row = attention.compute_bias(n, n)[0, one.head - 1, n // 2].double()
            weights = [math.exp(value) for value in row.tolist()]
            expected = sum(w * abs(j - n // 2) for j, w in enumerate(weights)) / sum(weights)
            assert told == pytest.approx(expected, rel=1e-5)
        assert one.radius == 128
        with torch.no_grad():
            dense = attention.compute_bias(257, 257)[0, one.head - 1, 128]
        assert one.bias == pytest.approx(dense.tolist())


def test_layers_with_a_bias_of_their_own_are_told_apart() -> None:
    assert {one.layer for one in sights(anatomy_of(make("umt5")), 64)} == {1, 2, 3}


def test_a_rotary_model_has_none() -> None:
    assert sights(anatomy_of(make("llama")), 64) == []
