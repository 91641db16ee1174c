"""Who is told of, asked for in other words."""

from __future__ import annotations

import re

import pytest
from transformers import ByT5Tokenizer

from lengthwise.common.text import shipped_prose
from lengthwise.tasks import TASKS, association

TOKENIZER = ByT5Tokenizer()
# Words that lead nowhere
EMPTY = set("a an and at for from has have in is of on the to with no".split())


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower())) - EMPTY


def test_question_and_sentence_share_no_word() -> None:
    assert len(association.PAIRS) >= 20
    for told, asked in association.PAIRS:
        assert words(told)
        assert words(asked)
        assert not words(told) & words(association.QUESTION.format(asked=asked)), (told, asked)
        # Nor does a word of the one begin as a word of the other, as play and player
        assert not any(one.startswith(other[:5]) for one in words(told) for other in words(asked) if len(other) >= 5)
    # A question that two sentences answered would have two answers
    for each in zip(*association.PAIRS, strict=True):
        assert len(set(each)) == len(association.PAIRS)


def test_one_sentence_tells_of_the_person_at_the_depth() -> None:
    for depth in (0.0, 0.5, 1.0):
        for sample in association.samples(TOKENIZER, 3000, n=3, seed=1, depth=depth):
            assert sample.prompt.count(sample.target) == 1
            assert sample.target not in shipped_prose()
            told = next(told for told, asked in association.PAIRS if f"Who {asked}?" in sample.question)
            body = sample.prompt.removesuffix(sample.question)
            assert body.index(f"{sample.target} {told}.") / len(body) == pytest.approx(depth, abs=0.12)
            assert sample.depth == depth


def test_the_name_is_looked_for_as_a_word() -> None:
    score = TASKS["association"].score
    assert (score("It is Ida.", "Ida"), score("Idaho", "Ida"), score("nobody", "Ida")) == (1.0, 0.0, 0.0)
