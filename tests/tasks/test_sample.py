"""What tasks share: splitting into sentences, and repeating them without end."""

from __future__ import annotations

import itertools
import random

import pytest

from lengthwise.errors import BadInput
from lengthwise.tasks.sample import check_depth, endless_from_anywhere, sentences


@pytest.mark.parametrize("depth", [-0.1, 1.5, float("nan")])
def test_a_depth_beyond_the_prompt_is_refused(depth: float) -> None:
    with pytest.raises(BadInput, match=f"depth is {depth}; it runs from 0"):
        check_depth(depth)


def test_text_is_split_behind_the_ends_of_sentences() -> None:
    text = "One ends. Two asks?\nThree shouts!  Four has 3.5 parts\n"
    assert sentences(text) == ["One ends.", "Two asks?", "Three shouts!", "Four has 3.5 parts\n"]
    assert sentences("") == []


def test_pieces_run_on_in_their_order_and_then_repeat() -> None:
    pieces = ["a", "b", "c", "d"]
    begun = set()
    for seed in range(20):
        taken = "".join(itertools.islice(endless_from_anywhere(pieces, random.Random(seed)), 11))
        assert taken in "abcd" * 4
        begun.add(taken[0])
    assert begun == set(pieces)
