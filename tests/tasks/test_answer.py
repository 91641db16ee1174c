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
        ("", "Paris", 0, 0),
    ],
)
def test_scores(prediction: str, target: str, held: float, exact: float) -> None:
    assert (answer.score(prediction, target), answer.exact(prediction, target)) == (held, exact)


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
    }
    assert lengthwise("report", tmp_path / "run", "--out", tmp_path / "page.html").status == 0
    page = (tmp_path / "page.html").read_text()
    assert "answer (your own files)" in page
    assert "official" not in page
