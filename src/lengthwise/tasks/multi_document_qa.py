"""Multi-document QA: a question, and among many documents the one that answers it.

Lost in the Middle (Liu et al. 2023; Chi et al., Tables 5 and 14), the wording is ours. Scored by whether the answer's first
line holds a right answer (`best_subspan_em`). The gold document's depth is its place among the documents: 0 first, 1 last.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lengthwise.errors import require
from lengthwise.tasks.material.case_files import Case, read_as
from lengthwise.tasks.material.documents import Document, Question, documents_of, made_up, question_of, read_questions
from lengthwise.tasks.material.fit_length import by_word, fit_to_length
from lengthwise.tasks.material.token_counts import token_count
from lengthwise.tasks.sample import Sample, draws
from lengthwise.tasks.scoring import best_subspan_em, first_line, normalised

INTRODUCTION = "Answer the question from the documents below; one of them tells the answer."
QUESTION = "Question: {question} Answer:"
ANSWER_TOKENS = 64
__all__ = ["ANSWER_TOKENS", "INTRODUCTION", "QUESTION", "at_position", "prompt_of", "read", "samples", "score", "take"]


def samples(
    tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None, questions: Sequence[Question] | None = None
) -> list[Sample]:
    """`n` prompts of as many documents as `length` tokens hold, within 2 %; the gold document stands at `depth`, or anywhere.

    `questions` are asked in a random order, and the documents of those that do not answer the one asked stand around its own;
    without them questions are made up. The last document around is cut where the length is reached.
    """
    made = []
    for index, randomness in enumerate(draws("multi_document_qa", seed, n, depth)):
        at = randomness.random() if depth is None else depth
        asked, others = drawn(questions, seed, index, randomness)

        def prompt(around: list[str], asked: Question = asked, at: float = at) -> str:
            cut = round(at * len(around))
            return prompt_of(asked.text, [*around[:cut], asked.gold.one_line, *around[cut:]])

        fitted = fit_to_length(tokenizer, length, others, prompt, glue="\nDocument 100 ", cut=by_word)
        around = len(fitted.pieces)
        made.append(_sample(fitted.prompt, fitted.tokens, asked, round(at * around) / around if around else at))
    return made


def at_position(
    tokenizer: Any, documents: int, position: int, n: int, seed: int, questions: Sequence[Question] | None = None
) -> list[Sample]:
    """`n` prompts of exactly so many whole documents, the gold one at `position`, from 0 on: the paper's layout."""
    require(documents >= 1, f"a prompt needs at least 1 document, not {documents}")
    require(0 <= position < documents, f"position is {position}; with {documents} documents it runs from 0 to {documents - 1}")
    made = []
    for index, randomness in enumerate(draws("multi_document_qa", seed, n, None)):
        asked, others = drawn(questions, seed, index, randomness)
        around = list(itertools.islice(others, documents - 1))
        prompt = prompt_of(asked.text, [*around[:position], asked.gold.one_line, *around[position:]])
        made.append(_sample(prompt, token_count(tokenizer, prompt), asked, position / max(1, documents - 1)))
    return made


def score(prediction: str, target: str, labels: Sequence[str] = ()) -> float:
    """1 where the first line holds a right answer; `labels` are all of them where there are several.

    Only one line counts, because a model that repeats the documents answers nothing.
    """
    return best_subspan_em(first_line(prediction), (target, *labels))


def read(tokenizer: Any, path: Path) -> list[Sample]:
    """Read cases with `question`, `answers` and `ctxs`, the documents in their order, or with `prompt` and `target`."""
    samples = read_as(_sample_of_case, tokenizer, path)
    for number, sample in enumerate(samples, 1):
        telling = any(map(normalised, (sample.target, *sample.labels)))
        require(telling, f"case {number} of {path}: the answer {sample.target!r} holds nothing but articles and punctuation")
    return samples


def take(path: Path) -> dict[str, Any]:
    """Read the questions that `samples` asks where a file is given beside lengths."""
    return {"questions": read_questions(path)}


def prompt_of(question: str, documents: Sequence[str], introduction: str = INTRODUCTION) -> str:
    numbered = [f"Document {number} {document}" for number, document in enumerate(documents, 1)]
    return "\n".join([introduction, *numbered, QUESTION.format(question=question)])


def drawn(
    questions: Sequence[Question] | None, seed: int, index: int, randomness: random.Random
) -> tuple[Question, Iterator[str]]:
    """The question asked, and documents without end that do not answer it."""
    if questions is None:
        source = made_up(randomness)
        return next(source), (question.gold.one_line for question in source)
    require(bool(questions), "there are no questions to ask; give at least one")
    if index == len(questions):
        warnings.warn(f"there are {index} questions: further samples ask them again, among other documents", stacklevel=3)
    order = random.Random(f"multi_document_qa {seed}").sample(questions, len(questions))
    asked = order[index % len(order)]
    return asked, _others(asked, [question.gold for question in randomness.sample(questions, len(questions))])


def _others(asked: Question, documents: Sequence[Document]) -> Iterator[str]:
    kept = []
    for document in documents:
        if document != asked.gold and not best_subspan_em(document.one_line, asked.answers):
            kept.append(document.one_line)
            yield kept[-1]
    require(bool(kept), f"every document holds an answer to {asked.text!r}; give more questions, with documents of their own")
    yield from itertools.cycle(kept)


def _sample(prompt: str, tokens: int, asked: Question, depth: float | None) -> Sample:
    labels = asked.answers if len(asked.answers) > 1 else ()
    return Sample(prompt, asked.answers[0], tokens, depth, QUESTION.format(question=asked.text), labels)


def _sample_of_case(tokenizer: Any, case: Case) -> Sample:
    documents, gold = documents_of(case)
    asked = Question(*question_of(case), documents[gold or 0])
    prompt = prompt_of(asked.text, [document.one_line for document in documents])
    place = None if gold is None else gold / max(1, len(documents) - 1)
    return _sample(prompt, token_count(tokenizer, prompt), asked, place)
