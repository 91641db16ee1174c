"""RULER's scores on answers made by hand, and its own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS, scores_of_records
from lengthwise.tasks.ruler.references import any_held, joined, share_held

TOKENIZER = ByT5Tokenizer()


@pytest.mark.parametrize(
    ("prediction", "share", "held"),
    [
        ("1234567, 7654321 and the WORD", 1.0, 1.0),
        ("the word, 1234567", 2 / 3, 1.0),
        ("7654321", 1 / 3, 1.0),
        # RULER looks for the letters, not for whole words
        ("swords", 1 / 3, 1.0),
        ("1234 567", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_the_share_of_references_held_and_whether_one_is(prediction: str, share: float, held: float) -> None:
    target = joined(["1234567", "7654321", "word"])
    assert target == "1234567 | 7654321 | word"
    assert share_held(prediction, target) == pytest.approx(share)
    assert any_held(prediction, target) == held


def test_records_are_scored_again_from_their_targets() -> None:
    scores = scores_of_records()
    assert scores["ruler_niah_multivalue"]("1 and 3", "1 | 2 | 3 | 4") == 0.5
    assert scores["ruler_qa_1"]("it was Ann Bel", "Ann | Bel") == 1.0


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"input": "Text. What is it? It is"}, "Text. What is it? It is"),
        ({"input": "Text. What is it?", "answer_prefix": " It is"}, "Text. What is it? It is"),
        ({"input": "Text. What is it?", "gen_prefix": "It is"}, "Text. What is it? It is"),
        ({"input": "Text. What is it? It is", "answer_prefix": "It is"}, "Text. What is it? It is"),
    ],
)
def test_rulers_own_files_are_read(fields: dict[str, Any], prompt: str, tmp_path: Path) -> None:
    path = tmp_path / "validation.jsonl"
    path.write_text(json.dumps({"index": 0, "outputs": ["1", "2"], "length": 9, **fields}) + "\n")
    (sample,) = TASKS["ruler_niah_multivalue"].read(TOKENIZER, path)
    assert (sample.prompt, sample.target, sample.depth) == (prompt, "1 | 2", None)
    assert sample.tokens == len(prompt) + 1
    assert sample.question == "What is it? It is"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"outputs": ["1"]}, "has no key 'input'"),
        ({"input": "x"}, "has no key 'outputs'; it should hold the list of references"),
        ({"input": "x", "outputs": []}, r"'outputs' should be a list of texts, not \[\]"),
        ({"input": "x", "outputs": [3]}, r"'outputs' should be a list of texts, not \[3\]"),
    ],
)
def test_files_without_references_are_refused(fields: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "validation.jsonl"
    path.write_text(json.dumps(fields))
    with pytest.raises(BadInput, match=complaint):
        TASKS["ruler_vt"].read(TOKENIZER, path)
