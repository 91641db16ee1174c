"""RULER's variable tracking (vt): assignments in noise, from one variable to the next; all that have a value are asked for.

A chain of four steps: the first variable is given a number, each of the others the variable before it. As in RULER, one small
example with its answer stands before the question.
"""

from __future__ import annotations

import itertools
import random
import string
from typing import Any

from lengthwise.tasks.material.fit_length import by_word, fit_to_length
from lengthwise.tasks.ruler.needles import NOISE
from lengthwise.tasks.ruler.references import joined
from lengthwise.tasks.sample import Sample, draws, with_inserted

INTRODUCTION = "The text below gives values to variables. Follow them from one variable to the next."
QUESTION = "Which {count} variables have the value {value}? The variables with the value {value} are"
STEPS = 4
ANSWER_TOKENS = 30


def samples(tokenizer: Any, length: int, n: int, seed: int, depth: float | None = None) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the assignments stand anywhere in their order, or at `depth`."""
    return [_sample(tokenizer, length, depth, randomness) for randomness in draws("ruler vt", seed, n, depth)]


def _sample(tokenizer: Any, length: int, depth: float | None, randomness: random.Random) -> Sample:
    names, value, chain = _chain(randomness, letters=5, steps=STEPS)
    shown, other, short = _chain(randomness, letters=3, steps=2)
    example = f"{_text([short[0], NOISE, *short[1:]])}\n{_question(other, len(shown))} {', '.join(shown)}."
    places = sorted(randomness.random() if depth is None else depth for _ in chain)
    question = _question(value, len(names))

    def prompt_of(noise: list[str]) -> str:
        text = _text(with_inserted(noise, list(zip(places, chain, strict=True))))
        return "\n".join([example, "", text, question])

    fitted = fit_to_length(tokenizer, length, itertools.repeat(NOISE), prompt_of, glue="\n", cut=by_word)
    return Sample(fitted.prompt, joined(names), fitted.tokens, sum(places) / len(places), question)


def _chain(randomness: random.Random, letters: int, steps: int) -> tuple[list[str], int, list[str]]:
    """Names of variables, the value that all of them have, and the assignments."""
    names: list[str] = []
    while len(names) <= steps:
        name = "".join(randomness.choices(string.ascii_uppercase, k=letters))
        if name not in names:
            names.append(name)
    value = randomness.randint(10000, 99999)
    values = [str(value), *names[:-1]]
    return names, value, [f"LET {name} = {given}" for name, given in zip(names, values, strict=True)]


def _text(lines: list[str]) -> str:
    return "\n".join([INTRODUCTION, *lines])


def _question(value: int, count: int) -> str:
    return QUESTION.format(count=count, value=value)
