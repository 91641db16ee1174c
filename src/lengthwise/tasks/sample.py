"""One question of a task, and the means to fill a prompt with text up to a wanted number of tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lengthwise.errors import BadInput


@dataclass(frozen=True)
class Sample:
    """What a model reads, and what it should answer."""

    prompt: str
    target: str
    tokens: int  # length of the prompt under the tokenizer it was made for
    depth: float  # where the answer stands: 0 at the beginning, 1 at the end


def token_count(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, verbose=False).input_ids)


def fitted(tokenizer: Any, length: int, pieces: Iterable[str], prompt_of: Callable[[list[str]], str]) -> list[str]:
    """As many of the filler `pieces`, from the first on, as bring `prompt_of(pieces)` nearest to `length` tokens."""
    filler: list[str] = []
    bare = token_count(tokenizer, prompt_of([]))
    if bare > length * 1.02:
        raise BadInput(f"a prompt of {length} tokens has no room for the question, which takes {bare}; ask for a larger length")
    total = bare
    source = iter(pieces)
    while total < length:
        piece = next(source)
        filler.append(piece)
        total += max(1, len(tokenizer(" " + piece, add_special_tokens=False, verbose=False).input_ids))
    # Pieces joined may tokenise a little differently than alone: measure, and mend
    while filler and (token_count(tokenizer, prompt_of(filler)) - length) * 2 > _size(tokenizer, filler[-1]):
        filler.pop()
    while (length - token_count(tokenizer, prompt_of(filler))) * 2 > _size(tokenizer, piece := next(source)):
        filler.append(piece)
    return filler


def _size(tokenizer: Any, piece: str) -> int:
    return max(1, len(tokenizer(" " + piece, add_special_tokens=False, verbose=False).input_ids))


def sentences(text: str) -> list[str]:
    return [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if sentence]


def endless(pieces: list[str], randomness: random.Random) -> Iterable[str]:
    """The pieces in their order from a random one on; from the second round on they repeat."""
    start = randomness.randrange(len(pieces))
    while True:
        yield from pieces[start:]
        start = 0


def first_integer(answer: str) -> str | None:
    found = re.search(r"\d+", answer)
    return found.group() if found else None


def last_integer(answer: str) -> str | None:
    found = re.findall(r"\d+", answer)
    return found[-1] if found else None
