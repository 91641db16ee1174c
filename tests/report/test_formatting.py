"""Numbers and texts as pages write them."""

from __future__ import annotations

import pytest

from lengthwise.records import Cell
from lengthwise.report.formatting import interval, listed, markdown_row, percent, percent_of, shortened, times, tokens_at

CELL = Cell("m", "none", "line", "", 512, 0.93, 0.84, 0.97, 24, 512.0)


def test_scores_are_told_in_percent_with_their_interval() -> None:
    assert percent(0.846) == "85\u00a0%"
    assert interval(CELL) == "93 (84-97)"
    assert percent_of(CELL) == "93\u00a0% (84 to 97), n = 24"


def test_a_length_of_a_file_names_the_file() -> None:
    assert tokens_at(15000) == "15,000 tokens"
    assert tokens_at(5210, "200.jsonl") == "200.jsonl, 5,210 tokens"


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (256, "below the training length"),
        (512, "the training length"),
        (1434, "2.8 times the training length"),
        (8192, "16 times the training length"),
    ],
)
def test_how_far_a_length_is_beyond_training(length: int, told: str) -> None:
    assert times(length, 512) == told


def test_lists_end_with_and() -> None:
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_long_answers_are_cut() -> None:
    assert shortened("a\n b") == "a b"
    assert len(shortened("word " * 100)) == 164


def test_a_cell_of_a_markdown_table_cannot_break_out_of_it() -> None:
    assert markdown_row(["a|b", "<i>", "two\nlines", "*_[`\\"]) == "| a\\|b | \\<i> | two lines | \\*\\_\\[\\`\\\\ |"
