"""ReRoPE's distances against their definition, row by row and key by key."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from lengthwise.errors import BadInput
from lengthwise.methods.positions.rerope import ReRoPE
from tests.helpers.rows import CASES, distances_of


@pytest.mark.parametrize("window", [1, 2, 5, 12, 13])
@pytest.mark.parametrize("leak", [None, 1.0, 4.0])
def test_every_distance_is_as_defined(window: int, leak: float | None) -> None:
    for name, case in CASES.items():
        parts = ReRoPE(train_length=20, window=window, leak=leak).distances(case.visible, case.visible)
        for (entry, place), found in zip(case.rows(), distances_of(parts, case), strict=True):
            expected = {}
            for j in case.seen(entry, place):
                far = abs(place - j)
                if far >= window:
                    far = window if leak is None else window + (far - window) / leak
                if j not in case.hidden:
                    expected[j] = math.copysign(far, place - j)
            assert found == pytest.approx(expected, abs=1e-5), name


def test_a_row_narrowed_by_another_method_keeps_only_what_is_left() -> None:
    case = CASES["causal"]
    seen = replace(case.visible, start=torch.arange(13)[None] // 2)
    for (_, place), found in zip(case.rows(), distances_of(ReRoPE(20, 3).distances(seen, case.visible), case), strict=True):
        assert found == {j: min(place - j, 3) for j in range(place // 2, place + 1)}


def test_a_part_that_no_row_needs_is_left_out() -> None:
    method = ReRoPE(train_length=20, window=5)
    assert len(method.distances(CASES["causal"].visible, CASES["causal"].visible)) == 2
    assert len(method.distances(CASES["full"].visible, CASES["full"].visible)) == 3
    assert len(ReRoPE(20, 13).distances(CASES["full"].visible, CASES["full"].visible)) == 1


def test_the_window_is_half_the_training_length_unless_given() -> None:
    assert ReRoPE(train_length=256).window == 128
    assert ReRoPE(train_length=256, window=200).window == 200
    assert ReRoPE(train_length=256).leaves_alone(128)
    assert not ReRoPE(train_length=256).leaves_alone(130)


def test_the_log_scale_is_the_originals_and_off_by_default() -> None:
    n = torch.tensor([[[1, 8, 16, 64]]])
    assert ReRoPE(train_length=8, log_scale=True).inverse_temperature(n).tolist() == [[pytest.approx([1, 1, 4 / 3, 2])]]
    assert ReRoPE(train_length=8).inverse_temperature(n).tolist() == [[[1.0] * 4]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"window": 0}, "window >= 1, not 0"),
        ({"window": 65}, "a window of 65 is larger than the training length 64: far keys .* never saw"),
        ({"leak": 0.5}, r"leak >= 1, not 0\.5"),
        ({"leak": float("nan")}, "leak >= 1, not nan"),
        ({"train_length": 1}, "train_length > 1, not 1"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        ReRoPE(**{"train_length": 64, **arguments})  # type: ignore[arg-type]
