"""DPE's distances against their definition, row by row, key by key and pair by pair."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lengthwise.errors import BadInput
from lengthwise.methods.positions.dpe import DPE
from tests.helpers.rows import CASES, distances_of


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("scales", "window", "by_pair"), [("1-4", 3, [1, 1, 4, 4]), ("2-3-5", 4, [2, 2, 3, 5]), ("6", 1, [6] * 4)]
)
def test_every_distance_is_as_defined_in_every_pair(name: str, scales: str, window: int, by_pair: list[int]) -> None:
    case = CASES[name]
    parts = DPE(20, rotary_size=8, scales=scales, window=window).distances(case.visible, case.visible)
    for pair, scale in enumerate(by_pair):
        for (entry, place), found in zip(case.rows(), distances_of(parts, case, pair=pair), strict=True):
            tokens, expected = case.tokens(entry, place), {}
            for j in case.seen(entry, place):
                i, m = tokens.index(place), tokens.index(j)
                far = i // scale - m // scale + math.copysign(window - window // scale, i - m)
                if j not in case.hidden:
                    expected[j] = i - m if abs(i - m) < window else far
            assert found == expected


def test_scales_and_window_are_the_authors_for_llama_3_unless_given() -> None:
    method = DPE(train_length=8192, rotary_size=128)
    assert (method.scales, method.window) == ("4-4-2-16-32-32-16-128", 1024)
    assert DPE(train_length=64, rotary_size=16).window == 16
    assert method.leaves_alone(1024)
    assert not method.leaves_alone(1025)
    assert DPE(64, 16, scales="1-1").leaves_alone(10**6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scales": "4-x"}, "whole numbers joined by -, as in 4-4-2-16, not '4-x'"),
        ({"scales": "4-0"}, "scales >= 1, not 4-0"),
        ({"window": 64}, "a window from 1 to below the training length 64, not 64"),
        ({"window": 0}, "a window from 1 to below the training length 64, not 0"),
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, str | int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        DPE(**{"train_length": 64, "rotary_size": 16, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            '{"scales": [4, 0], "window": 8, "train_length": 64}',
            "not a list of whole numbers from 1 on",
        ),
        ('{"scales": [4], "window": 8}', "it has no 'train_length'"),
        ('{"scales": [4], "window": 64, "train_length": 64}', "a window from 1 to below the training length 64, not 64"),
        ('{"scales": [4], "window": 8, "train_length": 128}', "training length of 128, and this model's is 64"),
        ("[4, 4]", "it is not a JSON object"),
        (None, "no file of scales"),
    ],
)
def test_files_that_hold_no_scales_are_refused(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "scales.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match=words):
        DPE.load(64, 16, scales=str(path))


def test_a_file_of_scales_is_what_its_numbers_are_and_is_known_by_them(tmp_path: Path) -> None:
    (tmp_path / "scales.json").write_text('{"scales": [4, 2], "window": 8, "train_length": 64}')
    read, given = DPE.load(64, 16, scales=str(tmp_path / "scales.json")), DPE.load(64, 16, scales="4-2", window=8)
    assert (read.scales, read.window) == (given.scales, given.window)
    assert read.to_json() == {"dpe": {"scales": "4-2", "window": 8}}
    assert given.to_json() is None
