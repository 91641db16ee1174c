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


def fitted(
    tokenizer: Any, length: int, pieces: Iterable[str], prompt_of: Callable[[list[str]], str], cut: bool = False
) -> list[str]:
    """So many filler `pieces` that `prompt_of(pieces)` has `length` tokens, as nearly as whole pieces allow.

    With `cut` the last piece ends where the length is reached; else last pieces are exchanged for others that fit better.
    """
    bare = token_count(tokenizer, prompt_of([]))
    if bare > length * 1.02:
        raise BadInput(f"a prompt of {length} tokens has no room for the question, which takes {bare}; ask for a larger length")
    source = iter(pieces)
    filler: list[str] = []
    gap = length - bare
    piece = next(source)
    # Pieces joined tokenise a little differently than alone, so the whole is counted again until nothing more fits
    while gap >= _size(tokenizer, piece):
        while gap >= _size(tokenizer, piece):
            filler.append(piece)
            gap -= _size(tokenizer, piece)
            piece = next(source)
        gap = length - token_count(tokenizer, prompt_of(filler))
    while filler and gap < 0:
        gap += _size(tokenizer, filler.pop())
    if cut:
        return [*filler, *_beginning(tokenizer, piece, gap)]
    spare = [piece, *(next(source) for _ in range(SPARE))]
    return _exchanged(tokenizer, filler, spare, gap)


SPARE = 64


def _beginning(tokenizer: Any, piece: str, gap: int) -> list[str]:
    """As many first words of a piece as fill the gap, none if none fits."""
    words = piece.split()
    while words and _size(tokenizer, " ".join(words)) > gap:
        words.pop()
    return [" ".join(words)] if words else []


def _exchanged(tokenizer: Any, filler: list[str], spare: list[str], gap: int) -> list[str]:
    """One more piece if that is nearer, then last pieces exchanged for spare ones while that closes the gap."""
    filler = list(filler)
    if 2 * gap > _size(tokenizer, spare[0]):
        filler.append(spare.pop(0))
        gap -= _size(tokenizer, filler[-1])
    for at in range(len(filler) - 1, max(-1, len(filler) - 4), -1):
        own = _size(tokenizer, filler[at])
        best = min(spare, key=lambda other: abs(gap + own - _size(tokenizer, other)))
        change = own - _size(tokenizer, best)
        if abs(gap + change) < abs(gap):
            spare[spare.index(best)], filler[at] = filler[at], best
            gap += change
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
