"""Association: who it is that prose tells of, asked for in words that it does not use.

A sentence says that somebody fills teeth on weekdays; the question is who the dentist is. So the question's words lead nowhere,
and what is known about the world must. The idea is NoLiMa's (Modarressi et al. 2025), the pairs are ours. Scored by whether the
answer holds the name.
"""

from __future__ import annotations

import random
from typing import Any

from lengthwise.common.text import shipped_prose
from lengthwise.tasks.answer import score
from lengthwise.tasks.material import word_lists
from lengthwise.tasks.material.case_files import read
from lengthwise.tasks.material.fit_length import by_word, fit_to_length
from lengthwise.tasks.sample import Sample, draws, endless_from_anywhere, sentences, with_inserted

INTRODUCTION = "Read the text below. You will be asked about somebody in it."
QUESTION = "Who {asked}? The name of that person is"
PAIRS = [pair.split(" / ") for pair in word_lists("association", "pairs")[0]]  # what is told of somebody, what is asked
(NAMES,) = word_lists("documents", "given_names")
ANSWER_TOKENS = 16
__all__ = ["ANSWER_TOKENS", "INTRODUCTION", "PAIRS", "QUESTION", "read", "samples", "score"]


def samples(tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the sentence about the person stands at `depth`, or anywhere."""
    prose = shipped_prose()
    filler = sentences(prose)
    # Nobody else in the text has the name
    names = [name for name in NAMES if name not in prose]
    random.Random(f"association {seed}").shuffle(names)
    made = []
    for index, randomness in enumerate(draws("association", seed, n, depth)):
        name = names[index % len(names)]
        statement, asked = randomness.choice(PAIRS)
        place = randomness.random() if depth is None else depth
        inserted, question = [(place, f"{name} {statement}.")], QUESTION.format(asked=asked)

        def prompt_of(around: list[str], inserted: list[tuple[float, str]] = inserted, question: str = question) -> str:
            return " ".join([INTRODUCTION, *with_inserted(around, inserted), question])

        fitted = fit_to_length(tokenizer, length, endless_from_anywhere(filler, randomness), prompt_of, cut=by_word)
        made.append(Sample(fitted.prompt, name, fitted.tokens, place, question))
    return made
