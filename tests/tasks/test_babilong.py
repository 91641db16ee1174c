"""BABILong prompts under a tokenizer of bytes, and the score of answers made by hand."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.evaluation.evaluate import evaluate
from lengthwise.tasks import TASKS, babilong
from lengthwise.tasks.material.babi import Story
from lengthwise.tasks.material.stories import KINDS, story
from tests.helpers.answering import answering

TOKENIZER = ByT5Tokenizer()
LABELS = ("garden", "kitchen", "office")
FACTS = ("Mary took the milk.", "Mary went to the kitchen.", "John went to the garden.")
STORY = Story(FACTS, "Where was the milk before the garden?", "kitchen", (0, 1), LABELS)
BOOK = [f"Sentence {word}\nis here." for word in ("alpha", "beta", "gamma", "delta")]
made = partial(babilong.samples, TOKENIZER, stories=[STORY], filler=BOOK)


def test_the_facts_stand_in_their_order_between_sentences_of_the_book() -> None:
    for sample in made(1500, n=5, seed=0):
        assert sample.prompt.startswith(babilong.INTRODUCTION)
        assert sample.prompt.endswith(f"\n{sample.question}")
        assert sample.question == "Question: Where was the milk before the garden? Answer in one word:"
        places = [sample.prompt.index(fact) for fact in FACTS]
        assert places == sorted(places)
        around = sample.prompt.removeprefix(babilong.INTRODUCTION).removesuffix(sample.question).strip()
        for fact in FACTS:
            around = around.replace(f" {fact} ", " ") if not around.startswith(fact) else around.removeprefix(f"{fact} ")
        assert around in " ".join(" ".join(BOOK).split() * 40)


def test_the_facts_are_spread_evenly_and_the_depth_is_that_of_the_supporting_ones() -> None:
    samples = made(2500, n=40, seed=0)
    places = []
    for sample in samples:
        body = len(sample.prompt) - len(sample.question)
        at = [sample.prompt.index(fact) / body for fact in FACTS]
        assert sample.depth == pytest.approx((at[0] + at[1]) / 2, abs=0.05)
        places += at
    # Uniform over the text: means of the three order statistics are 1/4, 1/2, 3/4
    means = [sum(places[k::3]) / len(samples) for k in range(3)]
    assert means == pytest.approx([0.25, 0.5, 0.75], abs=0.08)


@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_a_chosen_depth_holds_all_facts_together(depth: float) -> None:
    for sample in made(3000, n=2, seed=0, depth=depth):
        assert sample.depth == depth
        assert " ".join(FACTS) in sample.prompt
        assert sample.prompt.index(FACTS[0]) / len(sample.prompt) == pytest.approx(depth, abs=0.07)


def test_no_fact_stands_behind_a_sentence_that_was_cut() -> None:
    for sample in made(800, n=10, seed=0, depth=1.0):
        for before, _ in pairwise([sample.prompt.index(fact) for fact in (*FACTS, "\n")]):
            assert sample.prompt[before - 2] == "."


def test_a_story_without_room_is_drawn_again_and_refused_if_none_has() -> None:
    long = replace(STORY, facts=FACTS * 30, answer="office")
    assert {sample.target for sample in made(600, n=6, seed=0, stories=[long, STORY])} == {"kitchen"}
    with pytest.raises(BadInput, match="a prompt of 600 tokens has no room for the question, which takes 2"):
        made(600, n=1, seed=0, stories=[long])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"stories": []}, "there are no stories to ask about"),
        ({"filler": ["", " \n"]}, "there are no sentences to hide the facts in"),
        ({"kind": "qa6"}, "no kind of story 'qa6'; the kinds are qa1, qa2, qa3, qa4, qa5"),
    ],
)
def test_what_makes_no_prompt_is_refused(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        made(1000, n=1, seed=0, **arguments)


@pytest.mark.parametrize(
    ("prediction", "right"),
    [
        ("kitchen", True),
        (" The Kitchen.", True),
        ("It was in the kitchen before the garden.", True),  # the question's own label does not count
        ("kitchen or office", False),
        ("office", False),
        ("kitchen. Then it went to the office.", True),  # the first sentence counts
        ("It is hard to say. kitchen", False),
        ("the garden", False),
        ("", False),
    ],
)
def test_the_labels_found_must_be_the_target_alone(prediction: str, right: bool) -> None:
    sample = made(1000, n=1, seed=0)[0]
    assert sample.labels == ("kitchen", "office")
    assert TASKS["babilong_qa3"].mark(prediction, sample) == float(right)
    assert babilong.score(prediction, "kitchen", ("kitchen", "office")) == float(right)


def test_the_score_is_the_benchmarks_rule_on_random_answers() -> None:
    randomness = random.Random(0)
    for kind in KINDS:
        task = TASKS[f"babilong_{kind}"]
        for index, sample in enumerate(task.samples(TOKENIZER, 520, n=8, seed=1)):
            every = story(kind, random.Random(index)).labels
            for _ in range(20):
                said = " ".join(randomness.choice([*every, sample.target, "is.", "in the"]) for _ in range(3))
                sentence = said.lower().split(".")[0]
                found = {label for label in every if label.lower() in sentence}
                asked = {label for label in every if label.lower() in sample.question.lower()}
                assert task.mark(said, sample) == float(found - asked == {sample.target})


def test_an_evaluation_scores_with_the_labels_of_each_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter(["kitchen or office", "kitchen"])
    monkeypatch.setattr("lengthwise.evaluation.sweep.cells.greedy_answers", lambda *_: [next(said)])
    task = replace(TASKS["babilong_qa3"], samples=partial(babilong.samples, stories=[STORY], filler=BOOK), material="a test")
    arguments = (answering("t5"), TOKENIZER, ["none"], {"babilong_qa3": task}, [400])
    records = evaluate(*arguments, samples=2, out=tmp_path / "run", batch_tokens=400)
    assert [(record.prediction, record.score) for record in records] == [("kitchen or office", 0.0), ("kitchen", 1.0)]


def test_without_labels_the_target_must_be_found() -> None:
    assert babilong.score("kitchen or office", "kitchen") == 1.0
    assert babilong.score("office", "kitchen") == 0.0


def test_labels_are_read_from_a_file_less_those_of_the_question(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    case = {"prompt": "P.\nWhere was it before the garden?", "target": "kitchen", "labels": list(LABELS)}
    path.write_text(json.dumps(case), encoding="utf-8")
    assert [sample.labels for sample in babilong.read(TOKENIZER, path)] == [("kitchen", "office")]
    spaced = {**case, "target": " kitchen", "labels": [f" {label}" for label in LABELS]}
    path.write_text(json.dumps(spaced), encoding="utf-8")
    assert [sample.labels for sample in babilong.read(TOKENIZER, path)] == [("kitchen", "office")]
    for labels in (["office"], ["kitchen", 5], "kitchen"):
        path.write_text(json.dumps({**case, "labels": labels}), encoding="utf-8")
        with pytest.raises(BadInput, match=r"line 1 of .*: 'labels' should be"):
            babilong.read(TOKENIZER, path)
