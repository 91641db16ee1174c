"""Position interpolation against transformers' linear scaling and by hand."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.errors import BadInput
from lengthwise.methods.positions.interpolation import Interpolation


def test_frequencies_are_divided_by_the_factor() -> None:
    own = torch.tensor([1.0, 0.5, 0.0625])
    assert Interpolation(8).frequencies(own, 4096).tolist() == [0.125, 0.0625, 0.0078125]


@pytest.mark.parametrize("factor", [1.0, 2.5, 16.0])
def test_frequencies_are_those_of_transformers(factor: float) -> None:
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16)
    config.rope_parameters = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": factor}
    expected, _ = ROPE_INIT_FUNCTIONS["linear"](config, torch.device("cpu"))
    own = 10_000.0 ** (-torch.arange(8) / 8)
    torch.testing.assert_close(Interpolation(factor).frequencies(own, 1), expected, rtol=1e-6, atol=0)


def test_a_factor_of_one_changes_nothing_and_any_other_does() -> None:
    own = torch.rand(8)
    assert torch.equal(Interpolation(1).frequencies(own, 10), own)
    assert Interpolation(1).leaves_alone(10**6)
    assert not Interpolation(1.5).leaves_alone(1)


def test_as_released_keys_turn_faster_instead_of_slower() -> None:
    own = torch.tensor([1.0, 0.5, 0.0625])
    assert Interpolation(8, as_released=True).frequencies(own, 4096).tolist() == [8.0, 4.0, 0.5]
    # A token stands where eight times as many tokens would put it in the model's own rotation
    places = torch.arange(5, dtype=torch.float64)
    angles = places[:, None] * Interpolation(8, as_released=True).frequencies(own, 1).double()
    for place, row in enumerate(angles.tolist()):
        assert row == [8 * place * theta for theta in (1.0, 0.5, 0.0625)]
    assert Interpolation(1, as_released=True).leaves_alone(10**6)
    assert not Interpolation(4, as_released=True).leaves_alone(1)


@pytest.mark.parametrize("factor", [0.99, 0, -2, float("nan"), float("inf")])
def test_a_factor_below_one_is_refused(factor: float) -> None:
    with pytest.raises(BadInput, match=f"interpolation needs factor >= 1, not {factor}"):
        Interpolation(factor)
