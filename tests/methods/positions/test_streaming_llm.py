"""StreamingLLM against a rolling cache and against its definition."""

from __future__ import annotations

import pytest

from lengthwise.attention.parts import Part
from lengthwise.errors import BadInput
from lengthwise.methods.base import SinksAndWindow
from lengthwise.methods.positions.streaming_llm import StreamingLLM
from tests.helpers.rows import CASES, Case, distances_of


def parts_of(method: StreamingLLM, case: Case) -> list[Part]:
    return method.distances(method.narrow(case.visible), case.visible)


@pytest.mark.parametrize("sinks", [0, 1, 3, 9])
@pytest.mark.parametrize("window", [1, 2, 5, 13])
@pytest.mark.parametrize("reindex", [True, False])
def test_every_key_and_distance_is_as_defined(sinks: int, window: int, reindex: bool) -> None:
    for name, case in CASES.items():
        parts = parts_of(StreamingLLM(22, sinks, window, reindex), case)
        for (entry, place), found in zip(case.rows(), distances_of(parts, case), strict=True):
            tokens = case.tokens(entry, place)
            expected = {}
            for m, j in enumerate(tokens):
                if j not in case.seen(entry, place) or j in case.hidden:
                    continue
                i = tokens.index(place)
                if abs(i - m) < window:
                    expected[j] = i - m
                elif m < sinks and m < i:
                    expected[j] = min(i, sinks + window - 1) - m if reindex else i - m
            assert found == expected, name


@pytest.mark.parametrize(("sinks", "window"), [(0, 4), (2, 3), (4, 1), (4, 6)])
def test_a_causal_row_sees_what_a_rolling_cache_holds_where_it_holds_it(sinks: int, window: int) -> None:
    """The cache of the paper: append, drop the oldest key that is no sink, number what is left from 0."""
    case = CASES["causal"]
    rows = distances_of(parts_of(StreamingLLM(10, sinks, window), case), case)
    cache: list[int] = []
    for place, found in enumerate(rows):
        cache.append(place)
        if len(cache) > sinks + window:
            del cache[sinks]
        assert found == {token: len(cache) - 1 - slot for slot, token in enumerate(cache)}


def test_decoding_one_token_agrees_with_the_last_row_of_the_whole() -> None:
    method = StreamingLLM(8, sinks=2, window=5)
    whole = distances_of(parts_of(method, CASES["causal"]), CASES["causal"])
    assert distances_of(parts_of(method, CASES["decoding"]), CASES["decoding"]) == whole[-1:]


def test_sinks_and_window_fill_the_training_length_unless_given() -> None:
    method = StreamingLLM(train_length=256)
    assert (method.sinks, method.window) == (4, 252)
    assert StreamingLLM(train_length=256, sinks=0).window == 256


def test_what_it_leaves_alone_keeps_every_key_at_its_distance() -> None:
    method = StreamingLLM(13 + 4, sinks=4)
    assert method.leaves_alone(13)
    assert not method.leaves_alone(14)
    for name in ("causal", "full"):
        parts = parts_of(method, CASES[name])
        assert len(parts) == 1
        assert distances_of(parts, CASES[name]) == [
            {j: place - j for j in CASES[name].seen(0, place)} for _, place in CASES[name].rows()
        ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sinks": -1}, "sinks >= 0, not -1"),
        ({"window": 0}, "window >= 1, not 0"),
        ({"window": 61}, "4 sinks and a window of 61 are larger than the training length 64: .* never saw"),
        ({"sinks": 64}, "64 sinks leave no window in a training length of 64"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        StreamingLLM(**{"train_length": 64, **arguments})


def test_a_cache_may_drop_what_lies_between_unless_sinks_keep_their_true_distance() -> None:
    assert StreamingLLM(256, window=60).sinks_and_window == SinksAndWindow(4, 60, rolls=True, in_line=True)
    assert StreamingLLM(256, window=60, reindex=False).sinks_and_window == SinksAndWindow(4, 60, rolls=False)
