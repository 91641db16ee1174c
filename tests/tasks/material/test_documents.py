"""Questions with the documents that answer them: made up, and out of files."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.tasks.material.documents import Document, made_up, read_questions
from lengthwise.tasks.scoring import best_subspan_em

LINE = {
    "question": "who got the first prize",
    "answers": ["*", "Ann Arbor", "Ann A."],
    "ctxs": [
        {"title": "Other", "text": "Nothing  here.", "hasanswer": False, "isgold": False},
        {"title": "Prizes", "text": "Ann Arbor got it.", "hasanswer": True, "isgold": True},
    ],
}


def file_of(path: Path, *lines: dict[str, Any]) -> Path:
    text = "\n".join(map(json.dumps, lines)).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_each_of_many_made_up_documents_answers_its_own_question_only() -> None:
    # More than there are names without a syllable in the middle, two a question
    many = list(itertools.islice(made_up(random.Random(0)), 500))
    assert len({question.text for question in many}) == 500
    everything = "\n".join(question.gold.one_line for question in many)
    for question in many:
        (answer,) = question.answers
        assert everything.count(answer) == 1
        assert best_subspan_em(question.gold.text, [answer]) == 1.0
        asked = re.fullmatch(r"Who (\w+) the (\w+) of (\w+)\?", question.text)
        assert asked
        assert question.gold.text.startswith(f"The {asked[2]} of {asked[3]} was {asked[1]} by {answer}.")
        assert len(re.findall(rf"\b{asked[3]}\b", everything)) == 2, "in the title and in the text"
        assert "{" not in question.gold.one_line


def test_made_up_questions_depend_on_the_seed_alone() -> None:
    first, again, other = (list(itertools.islice(made_up(random.Random(seed)), 5)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", ["nq.jsonl", "nq.jsonl.gz"])
def test_files_in_the_layout_of_lost_in_the_middle_are_read(name: str, tmp_path: Path) -> None:
    first, second = read_questions(file_of(tmp_path / name, LINE, {**LINE, "question": "Who?", "answers": ["Bob"]}))
    assert first.text == "who got the first prize?"
    assert first.answers == ("Ann Arbor", "Ann A."), "what tells nothing is left out"
    assert first.gold == second.gold == Document("Prizes", "Ann Arbor got it.")
    assert second.text == "Who?"
    assert first.gold.one_line == "(Prizes) Ann Arbor got it."


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"question": 3}, "line 1 of .*: 'question' should be what is asked"),
        ({"answers": ["The", "*"]}, "at least one must hold more than articles and punctuation"),
        ({"answers": "Ann"}, "'answers' should be a list of right answers"),
        ({"ctxs": []}, "'ctxs' should be a list of documents"),
        ({"ctxs": ["text"]}, "'ctxs' should be a list of documents"),
        ({"ctxs": [{"title": "T"}]}, "document 0 has no key 'text'"),
        ({"ctxs": LINE["ctxs"][:1]}, "none of its 'ctxs' is marked 'isgold'"),
    ],
)
def test_lines_that_ask_nothing_are_refused_with_their_place(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=complaint):
        read_questions(file_of(tmp_path / "nq.jsonl", {**LINE, **change}))
