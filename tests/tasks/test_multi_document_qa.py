"""Multi-document QA: where the gold document stands, what stands around it, and the score of answers made by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS, Sample, multi_document_qa
from lengthwise.tasks.material.documents import Document, Question

TOKENIZER = ByT5Tokenizer()
TOWNS = ("Oslo", "Lima", "Cairo", "Quito", "Delhi", "Accra")
QUESTIONS = [
    Question(f"where is statue {k}?", (town, f"{town} town"), Document(f"Statue {k}", f"Statue {k} stands in {town}. " * 4))
    for k, town in enumerate(TOWNS)
]
# Answers the first question as well
QUESTIONS.append(Question("what is north?", ("the fjord",), Document("Fjords", "In the fjord near Oslo town.")))


def documents(sample: Sample) -> list[str]:
    """As a reader of the prompt finds them."""
    introduction, *told, question = sample.prompt.split("\n")
    assert introduction == multi_document_qa.INTRODUCTION
    assert question == sample.question
    found = [re.fullmatch(r"Document (\d+) (.*)", line) for line in told]
    assert [int(one[1]) for one in found if one] == list(range(1, len(told) + 1))
    return [one[2] for one in found if one]


def gold_at(sample: Sample) -> int:
    (at,) = (k for k, document in enumerate(documents(sample)) if sample.target in document)
    return at


def test_one_document_answers_the_question_and_stands_at_the_depth() -> None:
    for depth in (0.0, 0.3, 0.5, 1.0):
        for sample in multi_document_qa.samples(TOKENIZER, 2500, n=3, seed=0, depth=depth):
            around = len(documents(sample)) - 1
            assert around > 10
            assert gold_at(sample) == round(depth * around)
            assert sample.depth == gold_at(sample) / around
    depths = {sample.depth for sample in multi_document_qa.samples(TOKENIZER, 2500, n=20, seed=0)}
    assert len(depths) > 8
    assert min(depths) < 0.2
    assert max(depths) > 0.8


def test_longer_prompts_ask_the_same_among_more_documents() -> None:
    short, long = (multi_document_qa.samples(TOKENIZER, length, n=3, seed=5) for length in (1000, 4000))
    assert [sample.target for sample in short] == [sample.target for sample in long]
    assert all(len(documents(a)) < len(documents(b)) / 2 for a, b in zip(short, long, strict=True))


def test_exactly_so_many_documents_with_the_gold_one_at_a_position() -> None:
    for position in (0, 4, 9):
        for sample in multi_document_qa.at_position(TOKENIZER, 10, position, n=3, seed=0):
            assert len(documents(sample)) == 10
            assert gold_at(sample) == position
            assert sample.depth == position / 9
            assert sample.tokens == len(TOKENIZER(sample.prompt).input_ids)
    (alone,) = multi_document_qa.at_position(TOKENIZER, 1, 0, n=1, seed=0)
    assert (len(documents(alone)), alone.depth) == (1, 0.0)
    for bad, complaint in (((10, 10), "it runs from 0 to 9"), ((10, -1), "position is -1"), ((0, 0), "at least 1 document")):
        with pytest.raises(BadInput, match=complaint):
            multi_document_qa.at_position(TOKENIZER, *bad, n=1, seed=0)


def test_given_questions_are_all_asked_and_stand_among_documents_that_do_not_answer_them() -> None:
    samples = multi_document_qa.samples(TOKENIZER, 1500, n=7, seed=0, questions=QUESTIONS)
    assert {sample.target for sample in samples} == {*TOWNS, "the fjord"}
    for sample in samples:
        assert 0.98 * 1500 <= sample.tokens <= 1500
        gold_at(sample)
        if sample.target == "Oslo":
            assert sample.labels == ("Oslo", "Oslo town")
            assert "fjord" not in sample.prompt
    assert [one.target for one in samples[:2]] == [
        one.target for one in multi_document_qa.samples(TOKENIZER, 900, n=2, seed=0, questions=QUESTIONS)
    ]


def test_questions_without_other_documents_are_refused() -> None:
    with pytest.raises(BadInput, match="every document holds an answer to 'where is statue 0"):
        multi_document_qa.samples(TOKENIZER, 1500, n=1, seed=0, questions=QUESTIONS[:1])
    with pytest.raises(BadInput, match="there are no questions to ask"):
        multi_document_qa.samples(TOKENIZER, 1500, n=1, seed=0, questions=[])


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        ("Lima", 1.0),
        ("\n  It is the town of LIMA!\nno", 1.0),
        ("a City of Kings", 1.0),
        ("Oslo\nLima", 0.0),
        ("Li ma", 0.0),
        ("", 0.0),
    ],
)
def test_the_first_line_is_scored_against_all_right_answers(prediction: str, score: float) -> None:
    sample = Sample("", "Lima", 0, None, "", ("Lima", "the city of kings", "*"))
    assert TASKS["multi_document_qa"].mark(prediction, sample) == score


def test_an_empty_target_is_never_right() -> None:
    assert multi_document_qa.score("whatever", "*") == 0.0


def test_an_answer_that_can_never_be_right_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": "Who?", "target": target}) for target in ("Ann", "The")))
    with pytest.raises(BadInput, match=r"case 2 of .*: the answer 'The' holds nothing but articles and punctuation"):
        TASKS["multi_document_qa"].read(TOKENIZER, path)


def test_a_files_own_documents_stand_in_their_order(tmp_path: Path) -> None:
    ctxs = [{"title": f"T{k}", "text": f"text {k}", "isgold": k == 3} for k in range(5)]
    lines = [
        {"question": "who", "answers": ["text 3", "three"], "ctxs": ctxs},
        {"question": "who?", "answers": ["x"], "ctxs": ctxs[:2]},
        {"question": "who?", "answers": ["text 3"], "ctxs": ctxs[3:4]},
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    first, unknown, alone = TASKS["multi_document_qa"].read(TOKENIZER, path)
    assert documents(first) == [f"(T{k}) text {k}" for k in range(5)]
    assert (first.target, first.labels, first.depth) == ("text 3", ("text 3", "three"), 0.75)
    assert first.question == "Question: who? Answer:"
    assert (unknown.depth, unknown.labels) == (None, ())
    assert (alone.depth, documents(alone)) == (0.0, ["(T3) text 3"])


def test_questions_that_are_asked_again_are_told() -> None:
    with pytest.warns(UserWarning, match="there are 7 questions: further samples ask them again"):
        multi_document_qa.samples(TOKENIZER, 900, 9, 0, questions=QUESTIONS)
