"""STRING's distances against their definition, row by row and key by key."""

from __future__ import annotations

import math

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.positions.string import String
from tests.helpers.rows import CASES, distances_of


@pytest.mark.parametrize(("shift", "window"), [(1, 0), (3, 1), (5, 5), (8, 2)])
def test_every_distance_is_as_defined(shift: int, window: int) -> None:
    for name, case in CASES.items():
        parts = String(20, shift, window).distances(case.visible, case.visible)
        for (entry, place), found in zip(case.rows(), distances_of(parts, case), strict=True):
            expected = {}
            for j in case.seen(entry, place):
                far = abs(place - j)
                if j not in case.hidden:
                    expected[j] = math.copysign(far if far < shift else far - shift + window, place - j)
            assert found == expected, name


def test_a_third_of_the_training_length_is_shifted_unless_given() -> None:
    method = String(train_length=131_072)
    assert (method.shift, method.window) == (43_690, 128)
    assert String(train_length=60) == String(60, shift=20, window=10)
    assert method.leaves_alone(43_690)
    assert not method.leaves_alone(43_691)
    assert String(60, shift=20, window=20).leaves_alone(10**6)


def test_the_temperature_is_the_released_codes_and_off_by_default() -> None:
    n = torch.tensor([[[1, 8, 64]]])
    assert String(60).inverse_temperature(n).tolist() == [[[1.0] * 3]]
    # cos and sin of queries and of keys times 0.1 ln 2 + 1
    assert String(60, temperature=True).inverse_temperature(n).tolist() == [[pytest.approx([1.143434] * 3, abs=1e-6)]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shift": 0}, "a shift from 1 to below the training length 64, not 0"),
        ({"shift": 64}, "a shift from 1 to below the training length 64, not 64"),
        ({"shift": 20, "window": 21}, "a window from 0 to the shift of 20, not 21: far keys are drawn near"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        String(**{"train_length": 64, **arguments})  # type: ignore[arg-type]
