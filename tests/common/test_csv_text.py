"""CSV that a spreadsheet program shows and does not compute."""

from __future__ import annotations

import csv
import io

import pytest

from lengthwise.common.csv_text import csv_text


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd|x", "@SUM(1)", "\t=1", "@a.json\n=1", "-", "+5"])
def test_a_formula_is_shown_as_text(cell: str) -> None:
    text = io.StringIO(csv_text(["a"], [[cell]]), newline="")
    assert list(csv.reader(text)) == [["a"], [f"'{cell}"]]


@pytest.mark.parametrize(
    "cell", ["none", "@alignment.json", "@runs/a-b_c.json", "-0.5", "-1e-05", "a=b", "yarn:factor=4+log", ""]
)
def test_names_and_numbers_stay_as_they_are(cell: str) -> None:
    assert csv_text(["a", "b"], [[cell, -1.5]]) == f"a,b\n{cell},-1.5\n"


def test_a_cell_does_not_end_its_line() -> None:
    text = io.StringIO(csv_text(["a"], [["two\nlines"], ["two\r=lines"]]), newline="")
    assert list(csv.reader(text)) == [["a"], ["two\nlines"], [r"two\r=lines"]]


def test_nothing_is_an_empty_cell() -> None:
    assert csv_text(["a", "b", "c"], [[None, 2, "x,y"]]) == 'a,b,c\n,2,"x,y"\n'
