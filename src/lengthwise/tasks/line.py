"""Line: many lines, each with a name and a number; one line's number is asked for at the end.

The layout is LongEval's (Li et al. 2023; Chi et al., Table 4), the names are ours. Scored by the last whole number of the
answer.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lengthwise.errors import require
from lengthwise.tasks.material import word_lists
from lengthwise.tasks.material.case_files import Case, asked_at, read_as
from lengthwise.tasks.material.fit_length import fit_to_length
from lengthwise.tasks.sample import Sample, draws
from lengthwise.tasks.scoring import is_last_integer as score

Names = tuple[Sequence[str], Sequence[str]]
ADJECTIVES, NOUNS = word_lists("line", "adjectives", "nouns")
INTRODUCTION = "Below is a record of lines. Each line has a name and a number. Remember the number of every line."
# What stands before the lines, a line, and the question, with {name} and {number}
Wording = tuple[str, str, str]
WORDING: Wording = (
    INTRODUCTION,
    "line {name}: REGISTER_CONTENT is <{number}>",
    "Which number is on line {name}? The number of line {name} is",
)
# An answer in a full sentence repeats the line's name before its number
ANSWER_TOKENS = 32
__all__ = ["ADJECTIVES", "ANSWER_TOKENS", "INTRODUCTION", "NOUNS", "read", "samples", "score"]


def samples(
    tokenizer: Any,
    length: int,
    n: int,
    seed: int,
    depth: float | None = None,
    names: Names = (ADJECTIVES, NOUNS),
    wording: Wording = WORDING,
) -> list[Sample]:
    """`n` prompts of `length` tokens within 2 %, never more; the line asked for stands at `depth`, or anywhere.

    `names` are the words that make the lines' names, one of the first list and one of the second.
    """
    introduction, line, asking = wording
    made = []
    for randomness in draws("line", seed, n, depth):
        at = randomness.random() if depth is None else depth
        lines = _lines(randomness, names, line)
        name, number, asked = next(lines)
        question = asking.format(name=name)

        def prompt_of(others: list[str], at: float = at, asked: str = asked, question: str = question) -> str:
            cut = round(at * len(others))
            return "\n".join([introduction, *others[:cut], asked, *others[cut:], question])

        fitted = fit_to_length(tokenizer, length, (line for _, _, line in lines), prompt_of, glue="\n")
        made.append(Sample(fitted.prompt, str(number), fitted.tokens, at, question))
    return made


def read(tokenizer: Any, path: Path) -> list[Sample]:
    """Read LongEval's official cases: `prompt`, `expected_number`, and `random_idx` = (name, index) of the line asked for."""
    return read_as(_longeval, tokenizer, path)


def _longeval(tokenizer: Any, case: Case) -> Sample:
    number = case.get("expected_number", int, "the number asked for (or 'target', in a file of your own)")
    asked = case.get("random_idx", list, "the name and the index of the line asked for")
    lines = case.get("num_lines", int, "the number of lines")
    inside = len(asked) == 2 and isinstance(asked[1], int) and 0 <= asked[1] < lines
    require(inside, f"{case.place}: 'random_idx' is {asked}; it should be a name and an index below {lines}")
    return asked_at(tokenizer, case, str(number), asked[1] / max(1, lines - 1))


def _lines(randomness: random.Random, names: Names, line: str) -> Iterator[tuple[str, int, str]]:
    """Lines without end, no name twice."""
    for name in endless_names(randomness, names):
        number = randomness.randint(1, 50000)
        yield name, number, line.format(name=name, number=number)


def endless_names(randomness: random.Random, names: Names) -> Iterator[str]:
    """Names without end, none twice: once all pairs are used a third word makes new ones, then a fourth."""
    first, second = (list(dict.fromkeys(words)) for words in names)
    require(bool(first and second), "the names of lines need at least one word in each of their two lists")
    pairs = [f"{a}-{b}" for a in first for b in second]
    randomness.shuffle(pairs)
    more = randomness.sample(second, len(second))
    for words in itertools.count():
        for suffix in itertools.product(more, repeat=words):
            for pair in pairs:
                yield "-".join([pair, *suffix])
