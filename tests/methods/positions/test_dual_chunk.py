"""Dual chunk attention's distances against their definition, row by row and key by key."""

from __future__ import annotations

import pytest

from lengthwise.errors import BadInput
from lengthwise.methods.positions.dual_chunk import DualChunk
from tests.helpers.rows import CASES, Case, distances_of


def distance(i: int, j: int, chunk: int, window: int) -> int:
    """From query i to a key j that is not behind it."""
    size = chunk - window
    chunks_apart = i // size - j // size
    row = (i % size, min(i % size + size, chunk), min(2 * size - 1, chunk))[min(chunks_apart, 2)]
    return row - j % size


@pytest.mark.parametrize(("chunk", "window"), [(1, 0), (3, 1), (5, 1), (5, 2), (6, 2), (12, 4), (20, 9)])
def test_every_distance_is_as_defined_from_the_start_of_its_own_sequence(chunk: int, window: int) -> None:
    for name, case in CASES.items():
        parts = DualChunk(20, chunk, window).distances(case.visible, case.visible)
        for (entry, place), found in zip(case.rows(), distances_of(parts, case), strict=True):
            tokens, expected = case.tokens(entry, place), {}
            for j in case.seen(entry, place):
                i, m = tokens.index(place), tokens.index(j)
                if j not in case.hidden:
                    expected[j] = distance(i, m, chunk, window) if m <= i else -distance(m, i, chunk, window)
            assert found == expected, name


def test_near_keys_stand_where_they_are_and_none_beyond_the_chunk() -> None:
    case, method = Case(((0,) * 100,), causal=True, queries=100), DualChunk(64, chunk=24, window=5)
    for place, found in enumerate(distances_of(method.distances(case.visible, case.visible), case)):
        assert all(found[j] == place - j for j in range(max(0, place - 5), place + 1))
        assert 0 <= min(found.values()) <= max(found.values()) <= 24


def test_chunk_and_window_are_those_of_the_released_code_unless_given() -> None:
    method = DualChunk(train_length=4096)
    assert (method.chunk, method.window) == (3072, 512)
    assert DualChunk(4096, chunk=4095, window=1023).window == 1023
    assert DualChunk(4096, chunk=100).window == 49


def test_inputs_of_one_chunk_are_left_alone() -> None:
    method, case = DualChunk(64, chunk=24, window=5), Case(((0,) * 25,), causal=True, queries=25)
    assert method.leaves_alone(25)
    assert not method.leaves_alone(26)
    rows = distances_of(method.distances(case.visible, case.visible), case)
    assert rows == [{j: place - j for j in range(place + 1)} for place in range(25)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"chunk": 65}, "a chunk of 65 is longer than the training length 64: .* never saw"),
        ({"chunk": 16, "window": 8}, "a window from 0 to below half of the chunk, 16, not 8"),
        ({"window": -1}, "not -1"),
        ({"chunk": 0}, "chunk >= 1, not 0"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        DualChunk(**{"train_length": 64, **arguments})
