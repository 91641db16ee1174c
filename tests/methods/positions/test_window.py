"""The window against its definition, row by row and key by key."""

from __future__ import annotations

import pytest

from lengthwise.errors import BadInput
from lengthwise.methods.positions.window import Window
from tests.helpers.rows import CASES, keys_of


@pytest.mark.parametrize("size", [1, 2, 5, 12, 13, 40])
def test_every_row_sees_the_keys_nearer_than_the_size(size: int) -> None:
    for name, case in CASES.items():
        found = keys_of(Window(size).narrow(case.visible), case)
        for (entry, place), keys in zip(case.rows(), found, strict=True):
            assert keys == {j for j in case.seen(entry, place) if abs(place - j) < size and j not in case.hidden}, name


def test_a_causal_row_sees_as_many_keys_as_the_size_says() -> None:
    assert Window(4).narrow(CASES["causal"].visible).count.tolist() == [[1, 2, 3] + [4] * 10]
    assert Window(4).narrow(CASES["full"].visible).count.tolist() == [[4, 5, 6] + [7] * 7 + [6, 5, 4]]


def test_inputs_no_longer_than_the_window_are_left_alone() -> None:
    assert Window(13).leaves_alone(13)
    assert not Window(13).leaves_alone(14)


def test_the_size_is_the_training_length_unless_given() -> None:
    assert Window(train_length=256).size == 256
    assert Window(100, train_length=256).size == 100


def test_a_window_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match="size >= 1, not 0"):
        Window(0)
    with pytest.raises(BadInput, match=r"a window of 300 is larger than the training length 256: .* never saw"):
        Window(300, train_length=256)
    with pytest.raises(BadInput, match="write window:size="):
        Window()
