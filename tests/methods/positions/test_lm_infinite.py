"""LM-Infinite against its definition, row by row and key by key."""

from __future__ import annotations

import pytest

from lengthwise.errors import BadInput
from lengthwise.methods.base import SinksAndWindow
from lengthwise.methods.positions.lm_infinite import LMInfinite
from tests.helpers.rows import CASES, distances_of


@pytest.mark.parametrize("sinks", [0, 1, 3, 20])
@pytest.mark.parametrize("train_length", [1, 2, 5, 13])
def test_every_key_and_distance_is_as_defined(sinks: int, train_length: int) -> None:
    for name, case in CASES.items():
        method = LMInfinite(train_length, sinks)
        parts = method.distances(method.narrow(case.visible), case.visible)
        for (entry, place), found in zip(case.rows(), distances_of(parts, case), strict=True):
            first = case.tokens(entry, place)[:sinks]
            expected = {}
            for j in case.seen(entry, place):
                near, sink = abs(place - j) < train_length, j in first and j < place
                if (near or sink) and j not in case.hidden:
                    expected[j] = min(place - j, train_length)
            assert found == expected, name


def test_inputs_of_the_training_length_are_left_alone() -> None:
    method = LMInfinite(13)
    assert method.leaves_alone(13)
    assert not method.leaves_alone(14)
    for name in ("causal", "full"):
        case = CASES[name]
        (part,) = method.distances(method.narrow(case.visible), case.visible)
        assert distances_of([part], case) == [{j: p - j for j in case.seen(0, p)} for _, p in case.rows()]


def test_a_rolling_cache_can_ask_for_its_sinks_and_window() -> None:
    assert LMInfinite(256).sinks_and_window == SinksAndWindow(10, 256, rolls=True)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(BadInput, match="sinks >= 0, not -1"):
        LMInfinite(64, sinks=-1)
    with pytest.raises(BadInput, match="train_length >= 1, not 0"):
        LMInfinite(0)
