"""One question of a task, and what making samples needs: cutting sentences, repeating text without end."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lengthwise.errors import require

VERSION = 2  # of all samples: another number where the same seed makes other prompts than before


@dataclass(frozen=True)
class Sample:
    """One question: a prompt, and the answer that is right."""

    prompt: str
    target: str
    tokens: int  # length of the prompt under the tokenizer it was made for
    depth: float | None  # place of the answer: 0 at the beginning, 1 at the end; None where it is unknown
    question: str  # the end of the prompt, which a truncated prompt must still hold
    labels: tuple[str, ...] = ()  # the answers to choose from, where the score must know them


def check_depth(depth: float | None) -> None:
    require(depth is None or 0 <= depth <= 1, f"depth is {depth}; it runs from 0, the beginning, to 1, the end")


def draws(task: str, seed: int, n: int, depth: float | None) -> list[random.Random]:
    """The randomness of each sample, the same however many are made; refuses a depth that is no place in a prompt."""
    check_depth(depth)
    return [random.Random(f"{task} {seed} {index}") for index in range(n)]


def sentences(text: str) -> list[str]:
    return [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if sentence]


def with_inserted(pieces: Sequence[str], inserted: Sequence[tuple[float, str]]) -> list[str]:
    """The pieces, and between them other texts at their places, which run from 0 to 1 in rising order.

    None stands behind the last piece: that may be cut, and a text would run into it.
    """
    whole: list[str] = []
    before = 0
    gaps = max(0, len(pieces) - 1)
    for place, text in inserted:
        cut = round(place * gaps)
        whole += [*pieces[before:cut], text]
        before = cut
    return [*whole, *pieces[before:]]


def endless_from_anywhere(pieces: list[str], randomness: random.Random) -> Iterable[str]:
    """The pieces in their order from a random one on, again and again."""
    start = randomness.randrange(len(pieces))
    while True:
        yield from pieces[start:]
        start = 0
