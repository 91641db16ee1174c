"""The task for questions of one's own: whole words within an answer, and the first line alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.tasks import answer
from tests.conftest import Said


@pytest.mark.parametrize(
    ("prediction", "target", "held", "exact"),
    [
        ("Paris", "Paris", 1, 1),
        ("  paris.\nNext question", "Paris", 1, 1),
        ("It is Paris, I think", "paris", 1, 0),
        ("the  Bay\tof Biscay", "bay of biscay", 1, 0),
        ("15", "5", 0, 0),
        ("150 or 5", "5", 1, 0),
        ("C", "C++", 0, 0),
        ("use C++ here", "C++", 1, 0),
        ("答案是北京市", "北京", 1, 0),
        ("parisian", "Paris", 0, 0),
        ("\u0433\u043e\u0440\u043e\u0434\u0430", "\u0434\u0430", 0, 0),
        ("\u0434\u0430, \u0433\u043e\u0440\u043e\u0434", "\u0434\u0430", 1, 0),
        ("Ana\u00efs", "Ana", 0, 0),
        ("cafe\u0301", "caf\u00e9", 1, 1),
        ("", "Paris", 0, 0),
        ("3.5", "5", 0, 0),
        ("It is 5.", "5", 1, 0),
        ("1,500", "500", 0, 0),
        ("500, 600", "500", 1, 0),
        ("-5", "5", 0, 0),
        ("it is \u22125", "5", 0, 0),
        ("-5", "-5", 1, 1),
        ("3-5 of them", "5", 1, 0),
        ("a-5", "5", 1, 0),
        ("\u0915\u092e\u0940", "\u0915\u092e", 0, 0),
        ("...", "", 1, 0),
    ],
)
def test_scores(prediction: str, target: str, held: float, exact: float) -> None:
    assert (answer.score(prediction, target), answer.exact(prediction, target)) == (held, exact)


@pytest.mark.parametrize(
    ("prediction", "target", "f1"),
    [
        ("The Bay of Biscay.\nNext question", "bay of Biscay", 1.0),
        ("Biscay", "the bay of Biscay", 0.5),
        ("the the bay bay", "bay", 2 / 3),
        ("Paris", "Rome", 0.0),
        ("", "Rome", 0.0),
        ("the", "a", 0.0),
        ("A", "a", 1.0),
        # Where the line is the target, letter for letter as Unicode compares them, all of its words are
        ("un cafe\u0301", "un caf\u00e9", 1.0),
        ("STRASSE", "Stra\u00dfe", 1.0),
    ],
)
def test_the_f1_of_words(prediction: str, target: str, f1: float) -> None:
    assert answer.f1(prediction, target) == pytest.approx(f1)


def test_a_run_of_an_earlier_version_has_no_f1_and_is_read(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps({"prompt": "What is the capital of France?", "target": "Paris"}) + "\n")
    command = ("evaluate", "embedded", "--data", tmp_path / "mine.jsonl", "--out", tmp_path / "run", "--json")
    assert lengthwise(*command).status == 0
    records = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    (tmp_path / "run" / "records.jsonl").write_text("".join(f"{line}\n" for line in records if "answer_f1" not in line))
    said = lengthwise(*command)
    assert said.status == 0, said.err
    assert {cell["task"] for cell in json.loads(said.out)["cells"]} == {"answer", "answer_exact"}


def test_it_makes_no_questions_of_its_own() -> None:
    with pytest.raises(BadInput, match="give --data FILE, and no lengths"):
        answer.samples(None, 512, 1, 0)


def test_a_file_alone_is_asked_as_it_is_and_called_ones_own(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps({"prompt": "What is the capital of France?", "target": "Paris"}) + "\n")
    said = lengthwise("evaluate", "embedded", "--data", tmp_path / "mine.jsonl", "--out", tmp_path / "run", "--json")
    assert said.status == 0, said.err
    cells: list[dict[str, Any]] = json.loads(said.out)["cells"]
    assert {(cell["task"], cell["data"], cell["n"]) for cell in cells} == {
        ("answer", "mine.jsonl", 1),
        ("answer_exact", "mine.jsonl", 1),
        ("answer_f1", "mine.jsonl", 1),
    }
    assert lengthwise("report", tmp_path / "run", "--out", tmp_path / "page.html").status == 0
    page = (tmp_path / "page.html").read_text()
    assert "answer (your own files)" in page
    assert "official" not in page
