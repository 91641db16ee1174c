"""Marks tie a number of a page to a key of a result file, and every way of getting one wrong is told with its line."""

import json
from pathlib import Path

import pytest

from scripts import check_numbers, generated_tables

CELLS = [
    {"task": "line", "method": "rerope:window=2,leak=3", "length": 4096, "mean": 0.904},
    {"task": "line", "method": "none", "length": 4096, "mean": 0.18},
    {"task": "topic", "method": "none", "length": 4096, "mean": 1.0},
]


@pytest.fixture
def errors(tmp_path: Path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "cells.json").write_text(
        json.dumps(
            {
                "cells": CELLS,
                "a/b": 1,
                "found": {"factor=0.5": 0.4, "head - model, all": 0.3},
                "seconds": {"eager": 3738.0, "ours": 182},
            }
        )
    )

    def check(text: str, name: str = "page.md") -> list[str]:
        page = tmp_path / name
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"<!--files cells=results/cells.json -->\n\n{text}\n")
        return list(check_numbers.check(page, tmp_path))

    return check


@pytest.mark.parametrize(
    "text",
    [
        "finds 90 %<!--= cells#cells[method=rerope:window=2,leak=3&task=line]/mean % --> of the lines",
        "finds **90.4 %**<!--= results/cells.json#cells/0/mean % -->",
        "0.90<!--= cells#cells/0/mean -->",
        "finds 40<!--= cells#found/factor=0.5 % --> %",
        "finds 30 %<!--= cells#found/head - model, all % -->",
        "takes 3,738<!--= cells#seconds/eager --> seconds",
        "is 20.5<!--= cells#seconds/eager / cells#seconds/ours --> times as fast",
        "gains 72<!--= cells#cells/0/mean - cells#cells/1/mean % --> points",
        "a dropout of 0.1<!--= given --> and 95 % intervals",
        "`tau=0.95` in code, [a table](https://example.org/0.95), 15,000 tokens, version 5.22.2\n\n    0.7264 in a listing",
    ],
)
def test_what_is_right_passes(errors, text):
    assert errors(text) == []


def test_an_experiment_may_leave_marks_out_but_not_have_wrong_ones(errors):
    assert errors("0.9 of the lines", "experiments/README.md") == []
    assert len(errors("91 %<!--= cells#cells/0/mean % -->", "experiments/README.md")) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("91 %<!--= cells#cells/0/mean % -->", "91 is printed, 90.40 is in cells#cells/0/mean %"),
        ("0.905<!--= cells#cells/0/mean -->", "0.905 is printed, 0.90400"),
        ("1<!--= cells#cells[task=line]/mean -->", "2 entries fit"),
        ("1<!--= cells#nothing -->", "KeyError: 'nothing'"),
        ("1<!--= gone.json#x -->", "FileNotFoundError"),
        ("1<!--= cells#seconds/eager + cells#seconds/ours -->", "is not `FILE#KEY`"),
        ("words<!--= cells#cells/0/mean -->", "follows no number"),
        ("It takes 0.9 of the time.", "0.9 names no result file"),
        ("| 12 % | 1 |", "12 % names no result file"),
        ("0.9 before a listing\n\n    0.8\n\n```\n0.7\n```\n", "0.9 names no result file"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(errors, text, said):
    (error,) = errors(text)
    assert error.startswith("page.md:3: ")
    assert said in error


def test_a_number_after_a_listing_is_not_taken_for_code(errors):
    (error,) = errors("    make demo\n\n```\n0.7\n```\n\ntakes 0.9 of the time")
    assert error.startswith("page.md:9: 0.9 names no result file")


def test_a_dated_log_may_keep_numbers_of_its_day_but_its_marks_are_checked(errors):
    assert errors("0.9 of the time", "log.md") == []
    assert len(errors("2<!--= cells#cells/0/mean -->", "log.md")) == 1


def test_a_generated_table_must_be_what_its_function_writes(errors, monkeypatch):
    monkeypatch.setitem(generated_tables.TABLES, "speed", lambda: "| 0.5 s |")
    stale = "<!--generated speed -->\n| 0.6 s |\n<!--/generated -->"
    assert "the table speed is out of date" in errors(stale)[0]
    assert errors(check_numbers.with_tables(stale)) == []


def test_the_pages_of_this_repository_hold(capsys):
    assert check_numbers.main([]) == 0, capsys.readouterr().out
