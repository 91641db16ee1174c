"""The script that holds our scorers against published scores, on a folder in LongEval's layout with our own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.check_longeval_scores import main

LINES = [
    # number asked for, answer, number read out of it by the publisher
    (12, "The <REGISTER_CONTENT> in line a-b is <12>.", 12),
    (34, "Line 7 holds 34", 34),
    (56, "56, or was it 65?", 65),
    (7890, "It is 7,890, Parsed or not", 890),
]
TOPICS = [
    ("The age of trees", "['The first topic was \"the age of trees\".']"),
    ("The taste of rain", '["It\'s THE TASTE OF RAIN!"]'),
    ("The end of summer", "['The end of a summer']"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for folder in ("lines", "topics", "predictions/lines/parrot", "predictions/topics/parrot"):
        (tmp_path / folder).mkdir(parents=True)
    lines = [
        {"prompt": "What is it?", "expected_number": number, "random_idx": ["a-b", 0], "num_lines": 2} for number, _, _ in LINES
    ]
    topics = [{"prompt": "What was first?", "topics": [label, "Another"]} for label, _ in TOPICS]
    (tmp_path / "lines" / "2_lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "topics" / "2_topics.jsonl").write_text("\n".join(map(json.dumps, topics)))
    said = "".join(f"Label: {a}, Predict: {b}, Parsed: {c}, prompt length: 9\n" for a, b, c in LINES)
    (tmp_path / "predictions" / "lines" / "parrot" / "2_response.txt").write_text(said + "Accuracy: 0.5")
    said = "".join(f"Label: {a}, Predict: {b}, prompt length: 9\n" for a, b in TOPICS)
    (tmp_path / "predictions" / "topics" / "parrot" / "2_response.txt").write_text(said)
    return tmp_path


def test_scores_that_agree_end_well(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(data)]) == 0
    table = [row.split() for row in capsys.readouterr().out.splitlines()]
    assert table[1:] == [["parrot", "line", "2", "0.50", "0.50", "0"], ["parrot", "topic", "2", "0.67", "-", "-"]]


@pytest.mark.parametrize(("old", "new"), [("Accuracy: 0.5", "Accuracy: 0.75"), ("Parsed: 65", "Parsed: 56")])
def test_a_score_or_a_verdict_that_differs_fails(old: str, new: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "predictions" / "lines" / "parrot" / "2_response.txt"
    path.write_text(path.read_text().replace(old, new))
    assert main(["--data", str(data)]) == 1
    assert capsys.readouterr().out.splitlines()[1].endswith("differs")


def test_predictions_for_other_cases_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "predictions" / "lines" / "parrot" / "2_response.txt"
    path.write_text(path.read_text().replace("Label: 34,", "Label: 35,"))
    assert main(["--data", str(data)]) == 2
    assert "does not answer the cases of its size, in their order" in capsys.readouterr().err


def test_a_folder_without_predictions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    assert "has no predictions/lines/MODEL/SIZE_response.txt" in capsys.readouterr().err
