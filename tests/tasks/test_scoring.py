"""Scores of answers made by hand: best subspan exact match, the first and the last whole number."""

from __future__ import annotations

import pytest

from lengthwise.tasks.scoring import best_subspan_em, is_first_integer, is_last_integer, normalised


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("The  Cat, and A dog!", "cat and dog"),
        ("An apple a day", "apple day"),
        ("Theatre, another, Anna", "theatre another anna"),
        ("U.S. (1776-1789)", "us 17761789"),
        ("R\u00f6ntgen\u2019s\tray\n", "r\u00f6ntgen\u2019s ray"),
        ("the a an . *", ""),
        ("", ""),
    ],
)
def test_normalised_as_in_squad(text: str, bare: str) -> None:
    assert normalised(text) == bare


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("It was the May 18, 2018.", ["May 18, 2018"], 1.0),
        ("may 18 2018", ["June 1", "May 18, 2018"], 1.0),
        ("May 18", ["May 18, 2018"], 0.0),
        ("the colour of an orange", ["colour of orange"], 1.0),
        # A part of a word is a subspan too: that is how the score is defined
        ("cartography", ["art"], 1.0),
        ("", ["Paris"], 0.0),
        ("Paris", [], 0.0),
    ],
)
def test_one_right_answer_within_the_prediction_is_enough(prediction: str, answers: list[str], score: float) -> None:
    assert best_subspan_em(prediction, answers) == score


@pytest.mark.parametrize("nothing", ["", "*", "The", "a", "...", " the ! ", "\n"])
@pytest.mark.parametrize("prediction", ["anything at all", "", "*", "The"])
def test_a_right_answer_of_which_nothing_is_left_is_never_found(nothing: str, prediction: str) -> None:
    assert best_subspan_em(prediction, [nothing]) == 0.0
    assert best_subspan_em("it is a saltire", [nothing, "saltire"]) == 1.0
    assert best_subspan_em("it is a cross", [nothing, "saltire"]) == 0.0


@pytest.mark.parametrize(
    ("answer", "first", "last"),
    [
        ("The pass key is 123.", "123", "123"),
        ("12 or 34, no: 56!", "12", "56"),
        ("<50000>", "50000", "50000"),
        ("007", "007", "007"),
    ],
)
def test_integers_are_read_from_either_end(answer: str, first: str, last: str) -> None:
    assert [is_first_integer(answer, target) for target in (first, last, "7")] == [1.0, float(first == last), 0.0]
    assert [is_last_integer(answer, target) for target in (last, first, "7")] == [1.0, float(first == last), 0.0]


@pytest.mark.parametrize("answer", ["no idea", ""])
@pytest.mark.parametrize("target", ["1", "", "no idea"])
def test_an_answer_without_a_number_is_wrong(answer: str, target: str) -> None:
    assert is_first_integer(answer, target) == is_last_integer(answer, target) == 0.0
