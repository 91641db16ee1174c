"""Filling a prompt up to a length."""

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
from lengthwise.tasks.material import fit_length
from lengthwise.tasks.material.fit_length import LONG, Cut, by_last_letter, by_letter, by_word, fit_to_length, tokens_per_letter
from lengthwise.tasks.material.token_counts import token_count


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
    fitted = fit_to_length(tokenizer, length, itertools.cycle(pieces), prompt_of, **options)
    assert fitted.prompt == prompt_of(fitted.pieces)
    assert fitted.tokens == token_count(tokenizer, fitted.prompt)
    return fitted.tokens


@settings(max_examples=100, deadline=None, derandomize=True)
@given(size=st.integers(1, 9), length=st.integers(4, 200))
def test_equal_pieces_fill_as_much_as_fits(size: int, length: int) -> None:
    tokens = filled(Words(), length, [" ".join(["word"] * size)])
    assert length - size < tokens <= length


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    length=st.integers(4, 400),
    cut=st.sampled_from([None, by_word]),
)
def test_a_prompt_is_never_longer_than_asked_for(sizes: list[int], length: int, cut: Cut | None) -> None:
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
    tokens = filled(Pairs(), 50, ["a" * 40 + " end", "b c d e f g h i j k l m n o p q"], cut=by_word)
    assert 49 <= tokens <= 50


def test_pieces_are_taken_in_their_order() -> None:
    pieces = (f"piece {number}" for number in itertools.count())
    assert fit_to_length(Words(), 10, pieces, prompt_of).pieces == ["piece 0", "piece 1", "piece 2"]


@pytest.mark.parametrize("piece", ["abc", "ab", "a"])
def test_pieces_that_shrink_when_joined_are_made_up_for(piece: str) -> None:
    # Alone, behind its space, "abc" takes 2 tokens; joined by spaces, too; "ab" takes 2 alone and 1.5 joined
    assert 499 <= filled(Pairs(), 500, [piece]) <= 500


def test_a_length_without_room_for_the_question_is_refused() -> None:
    with pytest.raises(BadInput, match="a prompt of 3 tokens has no room for the question, which takes 4; ask for a larger"):
        filled(Words(), 3, ["word"])


def test_a_length_of_just_the_question_needs_no_filler() -> None:
    assert fit_to_length(Words(), 4, itertools.repeat("word"), prompt_of).pieces == []


@pytest.mark.parametrize(
    ("cut", "parts"),
    [
        (by_word, ["To", "To be", "To be\nseen"]),
        (by_letter, ["T", "To", "To ", "To b", "To be", "To be\n", "To be\ns", "To be\nse", "To be\nsee", "To be\nseen"]),
        (by_last_letter, ["n", "en", "een", "seen", "\nseen", "e\nseen", "be\nseen", " be\nseen", "o be\nseen", "To be\nseen"]),
    ],
)
def test_what_may_be_kept_of_a_piece(cut: Cut, parts: list[str]) -> None:
    assert cut("To be\nseen") == parts
    assert cut("") == []


@pytest.mark.parametrize("length", [5, 40, 41, 63, 999])
@pytest.mark.parametrize("backwards", [False, True])
def test_lines_that_may_be_cut_fill_a_prompt_of_bytes_to_the_last_one(length: int, backwards: bool) -> None:
    tokenizer, lines = ByT5Tokenizer(), [f"line {k} of many" for k in range(100)]

    def prompt_of(kept: list[str]) -> str:
        return "a:\n" + "".join(f"{line}\n" for line in (reversed(kept) if backwards else kept))

    cut = by_last_letter if backwards else by_letter
    kept = fit_to_length(tokenizer, length, itertools.cycle(lines), prompt_of, glue="\n", cut=cut).pieces
    # Nothing of a next line fits in what a line break takes
    assert len(tokenizer(prompt_of(kept)).input_ids) in ({length} if kept else {4, 5})
    whole = kept[:-1]
    assert whole == list(itertools.islice(itertools.cycle(lines), len(whole)))
    if kept:
        following = lines[len(whole) % 100]
        assert following.endswith(kept[-1]) if backwards else following.startswith(kept[-1])


def test_lines_that_may_be_cut_leave_no_gap(pieces: Any) -> None:
    code = ["    return self._value", "", "x = [1, 2]"]
    for length in range(20, 60):
        fitted = fit_to_length(pieces, length, itertools.cycle(code), "\n".join, glue="\n", cut=by_letter)
        assert length - 1 <= fitted.tokens <= length


@pytest.mark.parametrize("cut", [None, by_word])
@pytest.mark.parametrize("seed", range(5))
def test_a_long_prompt_is_counted_once_or_twice(seed: int, cut: Cut | None, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def count(tokenizer: Any, text: str) -> int:
        counted.append(text)
        return token_count(tokenizer, text)

    monkeypatch.setattr(fit_length, "token_count", count)
    randomness, words = random.Random(seed), ["x", "word", "something", "disestablishment"]
    pieces = [" ".join(randomness.choices(words, k=randomness.randint(1, 40))) for _ in range(500)]
    fitted = fit_to_length(Words(), 2 * LONG, itertools.cycle(pieces), prompt_of, cut=cut)
    assert 0.98 * 2 * LONG <= fitted.tokens <= 2 * LONG
    empty, *whole = counted
    assert empty == prompt_of([])
    assert len(whole) <= 2


@pytest.mark.parametrize(("early", "late"), [(1, 4), (4, 1)])
def test_a_long_prompt_whose_estimate_misleads_is_filled_all_the_same(early: int, late: int) -> None:
    # Every eighth piece is tokenised for the estimate, and only those are of one kind
    pieces = ["x " * 8 * early if k % 8 == 0 else "word word " * late for k in range(64)]
    for length in (LONG, 2 * LONG):
        assert 0.98 * length <= filled(Words(), length, [piece.strip() for piece in pieces]) <= length


def test_tokens_per_letter() -> None:
    assert tokens_per_letter(Words(), ["one two", "three"], " ") == 3 / 14
