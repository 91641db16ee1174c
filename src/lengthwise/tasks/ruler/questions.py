"""RULER's two tasks of questions: one document answers (qa_1), or two do, one leading to the other (qa_2).

RULER asks SQuAD's and HotpotQA's questions among other documents of theirs. Here both are made up, as in multi_document_qa; for
qa_1 a file of questions may be given. An answer that holds one of the right ones is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from lengthwise.tasks.material.documents import Document, Question, two_hops
from lengthwise.tasks.material.fit_length import by_word, fit_to_length
from lengthwise.tasks.multi_document_qa import INTRODUCTION, QUESTION, drawn, prompt_of
from lengthwise.tasks.ruler.references import joined
from lengthwise.tasks.sample import Sample, draws, with_inserted

INTRODUCTION_OF_TWO = "Answer the question from the documents below; two of them together tell the answer."
ANSWER_TOKENS = 32


def one_document(
    tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None, questions: Sequence[Question] | None = None
) -> list[Sample]:
    """`n` prompts of as many documents as `length` tokens hold, within 2 %; the one that answers is at `depth`, or anywhere."""
    made = []
    for index, randomness in enumerate(draws("ruler qa_1", seed, n, depth)):
        asked, others = drawn(questions, seed, index, randomness)
        made.append(_sample(tokenizer, length, depth, asked, [asked.gold], others, randomness))
    return made


def two_documents(tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None) -> list[Sample]:
    """The same with two documents that make the answer together."""
    made = []
    for randomness in draws("ruler qa_2", seed, n, depth):
        source = two_hops(randomness)
        asked, gold = next(source)
        others = (document.one_line for _, documents in source for document in documents)
        made.append(_sample(tokenizer, length, depth, asked, gold, others, randomness))
    return made


def _sample(
    tokenizer: Any,
    length: int,
    depth: float | None,
    asked: Question,
    gold: Sequence[Document],
    others: Iterator[str],
    randomness: random.Random,
) -> Sample:
    places = [(randomness.random() if depth is None else depth, document.one_line) for document in gold]

    def prompt(around: list[str]) -> str:
        return prompt_of(
            asked.text, with_inserted(around, sorted(places)), INTRODUCTION if len(gold) == 1 else INTRODUCTION_OF_TWO
        )

    fitted = fit_to_length(tokenizer, length, others, prompt, glue="\nDocument 100 ", cut=by_word)
    where = fmean(place for place, _ in places)
    return Sample(fitted.prompt, joined(asked.answers), fitted.tokens, where, QUESTION.format(question=asked.text))
