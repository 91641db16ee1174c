"""Passkey prompts under a tokenizer of bytes, and the score of answers made by hand."""

from __future__ import annotations

import re

import pytest
from transformers import ByT5Tokenizer

from lengthwise.errors import BadInput
from lengthwise.tasks import TASKS, passkey

TOKENIZER = ByT5Tokenizer()


def test_the_number_is_stated_twice_and_no_other_number_stands_in_the_prompt() -> None:
    for sample in passkey.samples(TOKENIZER, 1000, n=10, seed=0):
        assert re.findall(r"\d+", sample.prompt) == [sample.target] * 2
        assert 1 <= int(sample.target) <= 50000
        assert sample.prompt.endswith("What is the pass key? The pass key is")


def test_depth_zero_and_one_put_the_number_at_the_ends() -> None:
    for sample in passkey.samples(TOKENIZER, 1000, n=3, seed=0, depth=0.0):
        assert sample.depth == 0.0
        assert sample.prompt.startswith(f"{passkey.INTRODUCTION} The pass key is {sample.target}. Remember it.")
    for sample in passkey.samples(TOKENIZER, 1000, n=3, seed=0, depth=1.0):
        assert sample.depth == 1.0
        assert sample.prompt.endswith(f"{sample.target} is the pass key. {passkey.QUESTION}")


def test_the_number_stands_where_the_sample_says() -> None:
    samples = passkey.samples(TOKENIZER, 5000, n=10, seed=0)
    for sample in samples:
        # Two sentences of introduction; behind the prose three of the number's own and two of the question
        split = re.split(r"(?<=[.!?])\s+", sample.prompt)
        before = split.index(f"The pass key is {sample.target}.") - 2
        assert before / (len(split) - 7) == pytest.approx(sample.depth, abs=0.03)
    assert len({sample.depth for sample in samples}) == 10


def test_given_sentences_stand_around_the_number_in_their_order() -> None:
    filler = [f"Sentence {word} is here." for word in ("alpha", "beta", "gamma", "delta")]
    for sample in passkey.samples(TOKENIZER, 1000, n=3, seed=0, filler=[*filler, " "]):
        inside = sample.prompt.removeprefix(passkey.INTRODUCTION).removesuffix(sample.question)
        around = re.sub(r" The pass key is \d+\. Remember it\. \d+ is the pass key\.", "", inside)
        assert around.strip() in " ".join(filler * 30)
        assert len(around) > 500


@pytest.mark.parametrize("filler", [[], ["", " \n"]])
def test_no_sentences_are_refused(filler: list[str]) -> None:
    with pytest.raises(BadInput, match="there are no sentences to hide the number in"):
        passkey.samples(TOKENIZER, 1000, n=1, seed=0, filler=filler)


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        ("123", 1.0),
        ("The pass key is 123.", 1.0),
        ("123, not 456", 1.0),
        ("456, not 123", 0.0),
        ("1234", 0.0),
        ("12", 0.0),
        ("I do not know", 0.0),
        ("", 0.0),
    ],
)
def test_the_first_integer_is_scored(prediction: str, score: float) -> None:
    assert passkey.score(prediction, "123") == score
    assert TASKS["passkey"].score(prediction, "123") == score
