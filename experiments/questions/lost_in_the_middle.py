"""Prompts nearer to those of Lost in the Middle (Liu et al. 2023) than ours: in its wording, among retrieved documents.

What is retrieved are the passages that share most words with the question, rare words counting more (TF-IDF of words and of
pairs of them), without those that hold an answer. Lost in the Middle searched all of Wikipedia by a trained retriever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lengthwise.errors import require
from lengthwise.tasks import Sample
from lengthwise.tasks.material.documents import Document
from lengthwise.tasks.material.token_counts import token_count
from lengthwise.tasks.multi_document_qa import prompt_of
from lengthwise.tasks.scoring import best_subspan_em

RETRIEVED = "retrieved"
THEIRS = "lost-in-the-middle"
INTRODUCTION = (
    "Write a high-quality answer for the given question using only the provided search results "
    "(some of which might be irrelevant)."
)


def reworded(tokenizer: Any, sample: Sample) -> Sample:
    """The same documents and question; the package tells each of them on a line of its own, `Document 1 (TITLE) TEXT`."""
    _, *documents, question = sample.prompt.split("\n")
    told = []
    for line in documents:
        name, number, document = line.split(" ", 2)
        told.append(f"{name} [{number}](Title: {document.removeprefix('(')}")
    ending = question.removesuffix(" Answer:") + "\nAnswer:"
    prompt = "\n".join([INTRODUCTION, "", *told, "", ending])
    return replace(sample, prompt=prompt, tokens=token_count(tokenizer, prompt), question=ending)


@dataclass(frozen=True)
class Passages:
    """Passages to retrieve from, each told once."""

    told: tuple[str, ...]
    words: Any  # scikit-learn's TfidfVectorizer
    weights: Any  # sparse, passages x words

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Passages:
        from sklearn.feature_extraction.text import TfidfVectorizer

        told = tuple(dict.fromkeys(document.one_line for document in documents))
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, stop_words="english")
        return cls(told, words, words.fit_transform(told))

    def nearest(self, question: str, n: int, without: str, answers: Sequence[str]) -> list[str]:
        """The `n` that share most with the question, most first, but for its own passage and those that hold an answer."""
        shared = (self.weights @ self.words.transform([question]).T).toarray()[:, 0]
        order = (self.told[at] for at in np.argsort(-shared, kind="stable"))
        found = [told for told in order if told != without and not best_subspan_em(told, answers)][:n]
        require(len(found) == n, f"{len(found)} passages do not answer {question!r}; {n} are asked for")
        return found


def with_retrieved(tokenizer: Any, sample: Sample, position: int, passages: Passages) -> Sample:
    """The same question and gold document at the same place, among retrieved documents in their order."""
    _, *told, asked = sample.prompt.split("\n")
    documents = [line.split(" ", 2)[2] for line in told]
    question = asked.removeprefix("Question: ").removesuffix(" Answer:")
    gold, answers = documents[position], (sample.target, *sample.labels)
    around = passages.nearest(question, len(documents) - 1, gold, answers)
    prompt = prompt_of(question, [*around[:position], gold, *around[position:]])
    return replace(sample, prompt=prompt, tokens=token_count(tokenizer, prompt))
