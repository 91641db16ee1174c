"""The wording of Lost in the Middle (Liu et al. 2023) for prompts in the package's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lengthwise.tasks import Sample
from lengthwise.tasks.material.token_counts import token_count

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
