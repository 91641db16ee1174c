"""Self-Extend's distances against their definition, row by row and key by key."""

from __future__ import annotations

import math

import pytest

from lengthwise.errors import BadInput
from lengthwise.methods.positions.self_extend import SelfExtend
from tests.helpers.rows import CASES, Case, distances_of


@pytest.mark.parametrize(("group", "window"), [(1, 1), (2, 2), (2, 5), (3, 4), (4, 8)])
def test_every_distance_is_as_defined_from_the_start_of_its_own_sequence(group: int, window: int) -> None:
    for name, case in CASES.items():
        parts = SelfExtend(20, group, window).distances(case.visible, case.visible)
        for (entry, place), found in zip(case.rows(), distances_of(parts, case), strict=True):
            tokens, expected = case.tokens(entry, place), {}
            for j in case.seen(entry, place):
                i, m = tokens.index(place), tokens.index(j)
                far = i // group - m // group + math.copysign(window - window // group, i - m)
                if j not in case.hidden:
                    expected[j] = i - m if abs(i - m) < window else far
            assert found == expected, name


def test_no_distance_leaves_the_training_length_up_to_what_the_group_allows() -> None:
    longest = (20 - 8) * 4 + 8
    for length, farthest in ((longest, 19), (longest + 1, 20)):
        case = Case(((0,) * length,), causal=True, queries=1)
        (found,) = distances_of(SelfExtend(train_length=20, group=4, window=8).distances(case.visible, case.visible), case)
        assert max(found.values()) == farthest


def test_the_window_is_a_quarter_of_the_training_length_and_the_group_eight() -> None:
    assert SelfExtend(train_length=4096) == SelfExtend(4096, group=8, window=1024)
    assert SelfExtend(train_length=16).window == 8
    assert SelfExtend(train_length=4096).leaves_alone(1024)
    assert not SelfExtend(train_length=4096).leaves_alone(1025)
    assert SelfExtend(train_length=4096, group=1).leaves_alone(10**6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"group": 0}, "group >= 1, not 0"),
        ({"group": 17, "window": 16}, "a group of 17 is larger than the window of 16"),
        ({"window": 64}, "a window of 64 leaves nothing of the training length 64 for far keys"),
        ({"window": 0}, "a group of 8 is larger than the window of 0"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        SelfExtend(**{"train_length": 64, **arguments})
