"""Filling a prompt up to a length."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import BadInput
from lengthwise.tasks.material.fit_length import fit_to_length
from lengthwise.tasks.sample import token_count


class Words:
    """A token a word, and one at the end of a text."""

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(input_ids=text.split() + ["end"] * add_special_tokens)


class Pairs:
    """A token for every two letters: a text has fewer tokens than its pieces have alone."""

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[text[i : i + 2] for i in range(0, len(text), 2)])


def prompt_of(pieces: list[str]) -> str:
    return " ".join(["Read", "this:", *pieces, "What?"])


def filled(tokenizer: Any, length: int, pieces: list[str], **options: Any) -> int:
    return token_count(tokenizer, prompt_of(fit_to_length(tokenizer, length, itertools.cycle(pieces), prompt_of, **options)))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(size=st.integers(1, 9), length=st.integers(4, 200))
def test_equal_pieces_fill_as_much_as_fits(size: int, length: int) -> None:
    tokens = filled(Words(), length, [" ".join(["word"] * size)])
    assert length - size < tokens <= length


@settings(max_examples=100, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20), length=st.integers(4, 400), cut=st.booleans())
def test_a_prompt_is_never_longer_than_asked_for(sizes: list[int], length: int, cut: bool) -> None:
    tokens = filled(Words(), length, [" ".join(["word"] * size) for size in sizes], cut=cut)
    assert tokens <= length
    # A word is a token here, so a piece that may be cut leaves no gap
    assert tokens == length or not cut


def test_last_pieces_are_exchanged_for_ones_that_fit_better() -> None:
    # Five pieces of 10 leave a gap of 9, which one of 11 and four of 12 close
    pieces = [" ".join(["word"] * size) for size in (10, 10, 10, 10, 10, 10, 11, 11, 11, 11, 11, 12, 12)]
    assert filled(Words(), 4 + 59, pieces) == 4 + 59


def test_of_several_cuts_the_nearest_is_taken() -> None:
    # A word of 40 letters takes 20 tokens and does not fit; the next piece's words do
    tokens = filled(Pairs(), 50, ["a" * 40 + " end", "b c d e f g h i j k l m n o p q"], cut=True)
    assert 49 <= tokens <= 50


def test_pieces_are_taken_in_their_order() -> None:
    pieces = (f"piece {number}" for number in itertools.count())
    assert fit_to_length(Words(), 10, pieces, prompt_of) == ["piece 0", "piece 1", "piece 2"]


@pytest.mark.parametrize("piece", ["abc", "ab", "a"])
def test_pieces_that_shrink_when_joined_are_made_up_for(piece: str) -> None:
    # Alone, behind its space, "abc" takes 2 tokens; joined by spaces, too; "ab" takes 2 alone and 1.5 joined
    assert 499 <= filled(Pairs(), 500, [piece]) <= 500


def test_a_length_without_room_for_the_question_is_refused() -> None:
    with pytest.raises(BadInput, match="a prompt of 3 tokens has no room for the question, which takes 4; ask for a larger"):
        filled(Words(), 3, ["word"])


def test_a_length_of_just_the_question_needs_no_filler() -> None:
    assert fit_to_length(Words(), 4, itertools.repeat("word"), prompt_of) == []
