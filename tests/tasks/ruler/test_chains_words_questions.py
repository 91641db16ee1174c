"""RULER's other tasks: chains of variables, words to be counted, and questions that one or two documents answer."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput, NoRoom
from lengthwise.tasks import TASKS, Sample
from lengthwise.tasks.material.documents import Document, Question
from lengthwise.tasks.ruler import questions

TOKENIZER = ByT5Tokenizer()


def samples(name: str, length: int = 6000, n: int = 3, **options: Any) -> list[Sample]:
    return TASKS[name].samples(TOKENIZER, length, n, 0, **options)


def test_a_chain_of_variables_leads_from_a_number_to_the_last_of_five() -> None:
    for sample in samples("ruler_vt"):
        example, text = sample.prompt.split("\n\n")
        assigned = re.findall(r"^LET (\w+) = (\w+)$", text, re.M)
        names = [name for name, _ in assigned]
        assert sample.target == " | ".join(names)
        assert (len(set(names)), {len(name) for name in names}) == (5, {5})
        assert all(given == before for (before, _), (_, given) in pairwise(assigned))
        assert re.fullmatch(rf"Which 5 variables have the value {assigned[0][1]}\? .* are", sample.question)
        shown = [name for name, _ in re.findall(r"^LET (\w+) = (\w+)$", example, re.M)]
        assert example.endswith(f" are {', '.join(shown)}.")


@pytest.mark.parametrize("depth", [0.0, 1.0])
def test_a_chain_may_stand_in_one_place(depth: float) -> None:
    for sample in samples("ruler_vt", depth=depth):
        text = sample.prompt.split("\n\n")[1].split("\n")
        places = [at for at, line in enumerate(text) if line.startswith("LET ")]
        assert places == list(range(places[0], places[0] + 5))
        assert places[0] == 1 if depth == 0 else places[-1] >= len(text) - 3


@pytest.mark.parametrize(("length", "often", "seldom"), [(8000, 30, 3), (4000, 6, 1)])
def test_ten_words_of_a_list_are_more_common_than_all_others(length: int, often: int, seldom: int) -> None:
    for sample in samples("ruler_cwe", length):
        example, text = sample.prompt.split("\n\n")
        entries = re.findall(r"(\d+)\. (\w+)", text.split("\n")[1])
        assert [int(number) for number, _ in entries] == list(range(1, len(entries) + 1))
        counts = Counter(word for _, word in entries)
        common = sample.target.split(" | ")
        assert len(common) == 10
        assert {counts.pop(word) for word in common} == {often}
        assert set(counts.values()) == {seldom}
        shown = re.findall(r"\d+\. (\w+)", example.split("\n")[2])
        assert {
            word for word, times in Counter(re.findall(r"\d+\. (\w+)", example.split("\n")[1])).items() if times == 3
        } == set(shown)


@pytest.mark.parametrize("length", [700, 3000, 8000])
def test_three_coded_words_are_more_frequent_than_all_but_the_dots(length: int) -> None:
    for sample in samples("ruler_fwe", length):
        counts = Counter(sample.prompt.split("\n")[1].split())
        (dots, first), *others = counts.most_common(5)
        assert dots == "..."
        assert [word for word, _ in others[:3]] == sample.target.split(" | ")
        times = [first, *(times for _, times in others)]
        assert times == sorted(set(times), reverse=True), "no two are as frequent"
        assert times[1] / first == pytest.approx(1 / 4, abs=0.05)


def test_where_no_three_words_are_the_most_frequent_there_is_no_room() -> None:
    with pytest.raises(NoRoom, match="256 tokens are too few for 3 words that are more frequent"):
        samples("ruler_fwe", 256)


@pytest.mark.parametrize("name", ["ruler_cwe", "ruler_fwe"])
def test_words_that_stand_everywhere_have_no_depth(name: str) -> None:
    with pytest.raises(BadInput, match=rf"{name} has no depth, and 0\.5 was given"):
        samples(name, depth=0.5)


def test_one_document_answers_the_first_kind_of_question() -> None:
    for sample in samples("ruler_qa_1"):
        assert sum(sample.target in line for line in sample.prompt.split("\n")) == 1
    mine = [
        Question(f"where is statue {k}?", (town, f"{town} town"), Document(f"Statue {k}", f"Statue {k} stands in {town}."))
        for k, town in enumerate(["Oslo", "Lima", "Quito"])
    ]
    (sample,) = questions.one_document(TOKENIZER, 1500, 1, 0, questions=mine)
    assert sample.target in [" | ".join(question.answers) for question in mine]


@pytest.mark.parametrize("depth", [None, 0.0, 1.0])
def test_two_documents_lead_to_the_answer_of_the_second_kind(depth: float | None) -> None:
    for sample in samples("ruler_qa_2", depth=depth):
        asked = re.fullmatch(r"Question: Where did the person who (\w+) the (.*) come from\? Answer:", sample.question)
        assert asked
        lines = sample.prompt.split("\n")[1:-1]
        ((first, person),) = [
            (at, found[1])
            for at, line in enumerate(lines)
            if (found := re.search(rf"The {asked[2]} was {asked[1]} by ([A-Z]\w+ [A-Z]\w+)\.", line))
        ]
        ((second, town),) = [
            (at, found[1]) for at, line in enumerate(lines) if (found := re.search(rf"\) {person} came from (\w+)\.", line))
        ]
        assert town == sample.target
        assert sum(town in line for line in lines) == 1
        if depth is not None:
            assert {first, second} == ({0, 1} if depth == 0 else {len(lines) - 3, len(lines) - 2})
