"""EABF: frequencies of the new base, temperatures by layer."""

from __future__ import annotations

import math

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.base import leaves_alone
from lengthwise.methods.positions.eabf import Eabf


def test_frequencies_are_those_of_a_model_with_the_new_base() -> None:
    own = torch.tensor([10_000.0 ** (-2 * i / 16) for i in range(8)])
    found = Eabf(train_length=64).frequencies(own, 1)
    assert found.tolist() == pytest.approx([1 / 500_000 ** (2 * i / 16) for i in range(8)], rel=1e-6)
    assert found.dtype == torch.float32
    assert Eabf(train_length=64, new_base=16.0).frequencies(torch.rand(4), 1).tolist() == pytest.approx([1, 0.5, 0.25, 0.125])


def test_a_row_is_sharpened_with_the_logarithm_of_its_length_from_the_third_layer_on() -> None:
    n = torch.tensor([[[1, 64, 128, 4096]]])
    method = Eabf(train_length=64)
    expected = [max(1.0, math.log(x) / math.log(64)) for x in (1, 64, 128, 4096)]
    assert expected[-1] == pytest.approx(2.0)
    for layer in (0, 1):
        assert method.inverse_temperature(n, layer).tolist() == [[[1.0] * 4]]
    for layer in (2, 9):
        assert method.inverse_temperature(n, layer).tolist() == [[pytest.approx(expected)]]
    assert method.inverse_temperature(n, 2)[0, 0, :2].tolist() == [1.0, 1.0]
    assert Eabf(train_length=64, skip=0).inverse_temperature(n, 0).tolist() == [[pytest.approx(expected)]]


def test_no_length_is_left_alone_since_the_base_always_changes() -> None:
    assert not leaves_alone(Eabf(train_length=64), 1)


@pytest.mark.parametrize("arguments", [{"train_length": 1}, {"new_base": 1.0}, {"new_base": float("nan")}, {"skip": -1}])
def test_impossible_arguments_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=f"eabf needs {next(iter(arguments))} .*not {next(iter(arguments.values()))}"):
        Eabf(**{"train_length": 64, **arguments})  # type: ignore[arg-type]
