"""One question of a task, and what tasks have in common: counting tokens, sentences, lines and numbers out of answers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lengthwise.errors import require


@dataclass(frozen=True)
class Sample:
    """What a model reads, and what it should answer."""

    prompt: str
    target: str
    tokens: int  # length of the prompt under the tokenizer it was made for
    depth: float | None  # where the answer stands: 0 at the beginning, 1 at the end; None where it is unknown
    question: str  # the end of the prompt that a truncated input must still hold
    labels: tuple[str, ...] = ()  # the answers to choose from, where the score must know them


def check_depth(depth: float | None) -> None:
    require(depth is None or 0 <= depth <= 1, f"depth is {depth}; it runs from 0, the beginning, to 1, the end")


def token_count(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, verbose=False).input_ids)


def sentences(text: str) -> list[str]:
    return [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if sentence]


def endless(pieces: list[str], randomness: random.Random) -> Iterable[str]:
    """The pieces in their order from a random one on; from the second round on they repeat."""
    start = randomness.randrange(len(pieces))
    while True:
        yield from pieces[start:]
        start = 0


def first_line(answer: str) -> str:
    """Of an answer that goes on: its first line with anything in it, without the white space around."""
    # Not splitlines: it breaks at form feeds and separators, which stand within lines of code
    return next((line.strip() for line in re.split(r"[\r\n]", answer) if line.strip()), "")


def first_integer(answer: str) -> str | None:
    found = re.search(r"\d+", answer)
    return found.group() if found else None


def last_integer(answer: str) -> str | None:
    found = re.findall(r"\d+", answer)
    return found[-1] if found else None
