"""Passkey: a number stated twice, somewhere in prose, asked for at the end.

Scored by the first whole number of the answer (Mohtashami and Jaggi 2023; paper 000, Table 4).
"""

from __future__ import annotations

import random
from typing import Any

from lengthwise.tasks.sample import Sample, endless, first_integer, fitted, sentences, token_count
from lengthwise.text import shipped_prose

INTRODUCTION = "An important number is hidden in the text below. Find it and remember it; you will be asked for it."
QUESTION = "What is the pass key? The pass key is"


def samples(tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %; the number stands at `depth`, or anywhere."""
    filler = sentences(shipped_prose())
    made = []
    for index in range(n):
        randomness = random.Random(f"passkey {seed} {index}")
        key = randomness.randint(1, 50000)
        at = randomness.random() if depth is None else depth
        needle = f"The pass key is {key}. Remember it. {key} is the pass key."

        def prompt_of(prose: list[str], needle: str = needle, at: float = at) -> str:
            cut = round(at * len(prose))
            return " ".join([INTRODUCTION, *prose[:cut], needle, *prose[cut:], QUESTION])

        prompt = prompt_of(fitted(tokenizer, length, endless(filler, randomness), prompt_of, cut=True))
        made.append(Sample(prompt, str(key), token_count(tokenizer, prompt), at))
    return made


def score(prediction: str, target: str) -> float:
    return float(first_integer(prediction) == target)
