"""Filling a prompt up to a length, and reading numbers out of answers."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks.sample import endless, first_integer, fitted, last_integer, sentences, token_count


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


def test_a_prompt_is_counted_with_its_special_tokens() -> None:
    assert token_count(Words(), "one two three") == 4
    assert token_count(ByT5Tokenizer(), "four") == 5


@settings(max_examples=100, deadline=None, derandomize=True)
@given(size=st.integers(1, 9), length=st.integers(4, 200))
def test_no_other_number_of_equal_pieces_comes_nearer(size: int, length: int) -> None:
    piece = " ".join(["word"] * size)
    chosen = fitted(Words(), length, itertools.repeat(piece), prompt_of)
    off = abs(token_count(Words(), prompt_of(chosen)) - length)
    for other in (len(chosen) - 1, len(chosen) + 1):
        if other >= 0:
            assert off <= abs(token_count(Words(), prompt_of([piece] * other)) - length)


def test_pieces_are_taken_in_their_order() -> None:
    pieces = (f"piece {number}" for number in itertools.count())
    assert fitted(Words(), 10, pieces, prompt_of) == ["piece 0", "piece 1", "piece 2"]


def test_pieces_that_shrink_when_joined_are_made_up_for() -> None:
    # Alone, behind its space, "abc" takes 2 tokens; joined by spaces, too; "ab" takes 2 alone and 1.5 joined
    for piece in ("abc", "ab", "a"):
        chosen = fitted(Pairs(), 500, itertools.repeat(piece), prompt_of)
        assert token_count(Pairs(), prompt_of(chosen)) == pytest.approx(500, abs=1)


def test_a_length_without_room_for_the_question_is_refused() -> None:
    with pytest.raises(BadInput, match="a prompt of 3 tokens has no room for the question, which takes 4; ask for a larger"):
        fitted(Words(), 3, itertools.repeat("word"), prompt_of)


def test_a_length_of_just_the_question_needs_no_filler() -> None:
    assert fitted(Words(), 4, itertools.repeat("word"), prompt_of) == []


def test_text_is_split_behind_the_ends_of_sentences() -> None:
    text = "One ends. Two asks?\nThree shouts!  Four has 3.5 parts\n"
    assert sentences(text) == ["One ends.", "Two asks?", "Three shouts!", "Four has 3.5 parts\n"]
    assert sentences("") == []


def test_pieces_run_on_in_their_order_and_then_repeat() -> None:
    pieces = ["a", "b", "c", "d"]
    begun = set()
    for seed in range(20):
        taken = "".join(itertools.islice(endless(pieces, random.Random(seed)), 11))
        assert taken in "abcd" * 4
        begun.add(taken[0])
    assert begun == set(pieces)


@pytest.mark.parametrize(
    ("answer", "first", "last"),
    [
        ("The pass key is 123.", "123", "123"),
        ("12 or 34, no: 56!", "12", "56"),
        ("<50000>", "50000", "50000"),
        ("007", "007", "007"),
        ("no idea", None, None),
        ("", None, None),
    ],
)
def test_integers_are_read_from_either_end(answer: str, first: str | None, last: str | None) -> None:
    assert first_integer(answer) == first
    assert last_integer(answer) == last
