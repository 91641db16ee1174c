"""Fill a prompt up to a wanted number of tokens, never beyond: a prompt of the training length must not be longer than it.

    tokens of some pieces, about = letters of all of them x (tokens / letters) of every eighth

A long prompt is filled by this estimate, counted once, and taken if it is within 1.5 % of its length, because every further
count would take longer than all the rest. A short one is filled to the last token that fits.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lengthwise.errors import NoRoom
from lengthwise.tasks.material.token_counts import added_tokens, token_count

LONG = 8192  # tokens of a prompt from which on 1.5 % is near enough
BLOCK = 128  # pieces that are estimated together
EVERY = 8  # of the pieces of a long prompt one in so many is tokenised
SPARE = 200  # pieces at hand for exchanges
EXCHANGES = 8  # last pieces that may be exchanged
CUTS = 8  # pieces that may be tried where one is cut
Cut = Callable[[str], list[str]]  # what may be kept of a piece, the shortest first and the whole last


@dataclass(frozen=True)
class Fitted:
    """A prompt, the pieces it was filled with, and its tokens."""

    pieces: list[str]
    prompt: str
    tokens: int


def by_word(piece: str) -> list[str]:
    """The beginnings of a piece that end with a word."""
    return [piece[: word.end()] for word in re.finditer(r"\S+", piece)]


def by_letter(piece: str) -> list[str]:
    """All beginnings of a piece."""
    return [piece[:count] for count in range(1, len(piece) + 1)]


def by_last_letter(piece: str) -> list[str]:
    """All ends of a piece."""
    return [piece[-count:] for count in range(1, len(piece) + 1)]


def tokens_per_letter(tokenizer: Any, pieces: list[str], glue: str) -> float:
    """How many tokens a letter of pieces takes that stand one after the other, `glue` before each of them."""
    return max(1, added_tokens(tokenizer, glue + glue.join(pieces))) / sum(len(glue) + len(piece) for piece in pieces)


def check_room(length: int, least: int) -> None:
    """Refuse a length below `least`, the tokens of a prompt without filler."""
    if least > length:
        raise NoRoom(f"a prompt of {length} tokens has no room for the question, which takes {least}; ask for a larger length")


def fit_to_length(
    tokenizer: Any,
    length: int,
    pieces: Iterable[str],
    prompt_of: Callable[[list[str]], str],
    *,
    glue: str = " ",
    cut: Cut | None = None,
) -> Fitted:
    """Take so many of the endless `pieces` that `prompt_of` makes a prompt of `length` tokens of them, or a little less.

    With `cut`, such as `by_word`, the last piece ends where the length is reached; else last pieces are exchanged for others
    that fit better.
    """

    def filled(filler: list[str]) -> Fitted:
        prompt = prompt_of(filler)
        return Fitted(filler, prompt, token_count(tokenizer, prompt))

    def size_of(piece: str) -> int:
        return max(1, added_tokens(tokenizer, glue + piece))

    empty = filled([])
    check_room(length, empty.tokens)
    enough = 3 * length // 200 if length >= LONG else 0
    taken, source = _estimated(tokenizer, length - empty.tokens - enough // 2, iter(pieces), glue, EVERY if enough else 1)
    whole, source = _whole(filled(taken) if taken else empty, source, filled, size_of, length, enough)
    if length - whole.tokens <= enough:
        return whole
    following = list(itertools.islice(source, CUTS if cut else SPARE + 1))
    if cut:
        return _with_part(whole, following, cut, filled, length)
    return _with_exchanges(whole, following, filled, size_of, length)


def _estimated(tokenizer: Any, room: int, source: Iterator[str], glue: str, every: int) -> tuple[list[str], Iterator[str]]:
    """Pieces that take about as many tokens as there is room for, one in `every` of them tokenised, and those that follow."""
    taken: list[str] = []
    left = float(room)
    while True:
        block = list(itertools.islice(source, BLOCK))
        density = tokens_per_letter(tokenizer, block[::every], glue)
        sizes = list(itertools.accumulate(density * (len(glue) + len(piece)) for piece in block))
        fitting = bisect.bisect_right(sizes, left)
        taken += block[:fitting]
        if fitting < len(block):
            return taken, itertools.chain(block[fitting:], source)
        left -= sizes[-1]


def _whole(
    fitted: Fitted,
    source: Iterator[str],
    filled: Callable[[list[str]], Fitted],
    size_of: Callable[[str], int],
    length: int,
    enough: int,
) -> tuple[Fitted, Iterator[str]]:
    """Whole pieces, as many as there is room for, and the pieces that follow them."""

    def given_back(fitted: Fitted, source: Iterator[str]) -> tuple[Fitted, Iterator[str]]:
        while (excess := fitted.tokens - length) > 0:
            share = max(1, len(fitted.pieces) * excess // fitted.tokens)
            source = itertools.chain(fitted.pieces[-share:], source)
            fitted = filled(fitted.pieces[:-share])
        return fitted, source

    fitted, source = given_back(fitted, source)
    # Pieces joined tokenise a little differently than alone, so the whole is counted again until nothing more fits
    while (gap := length - fitted.tokens) > enough:
        more: list[str] = []
        while gap >= (size := size_of(piece := next(source))):
            more.append(piece)
            gap -= size
        source = itertools.chain([piece], source)
        if not more:
            break
        fitted = filled([*fitted.pieces, *more])
    return given_back(fitted, source)


def _with_part(whole: Fitted, following: list[str], cut: Cut, filled: Callable[[list[str]], Fitted], length: int) -> Fitted:
    """As much of one more piece as there is room for, or of one in place of the last: of the first that leaves a small gap."""
    best = whole
    before = whole.pieces[:-1]
    for kept, piece in [*((whole.pieces, piece) for piece in following), *((before, piece) for piece in following)]:
        parts = cut(piece)
        low, high = 0, len(parts)  # the first `low` fit, those from `high` on do not
        while low < high:
            middle = (low + high) // 2
            longer = filled([*kept, parts[middle]])
            if longer.tokens > length:
                high = middle
            else:
                low = middle + 1
                best = max(best, longer, key=lambda fitted: fitted.tokens)
        if length - best.tokens <= max(1, length // 100):
            break
    return best


def _with_exchanges(
    whole: Fitted, spare: list[str], filled: Callable[[list[str]], Fitted], size_of: Callable[[str], int], length: int
) -> Fitted:
    """The last pieces, with and without one more, exchanged for spare ones where that fills the prompt better."""
    sizes = {piece: size_of(piece) for piece in {*spare, *whole.pieces[-EXCHANGES:]}}
    gap = length - whole.tokens
    tried = [
        filled(_exchanged(whole.pieces, spare, sizes, gap)),
        filled(_exchanged([*whole.pieces, spare[0]], spare[1:], sizes, gap - sizes[spare[0]])),
    ]
    return max([whole, *(fitted for fitted in tried if fitted.tokens <= length)], key=lambda fitted: fitted.tokens)


def _exchanged(filler: list[str], spare: list[str], sizes: dict[str, int], gap: int) -> list[str]:
    """The last pieces exchanged for spare ones, one after the other, while that brings the gap nearer to 0 from above."""

    def cost(gap: int) -> tuple[bool, int]:
        return gap < 0, abs(gap)

    filler, spare = list(filler), list(spare)
    for at in range(len(filler) - 1, max(-1, len(filler) - 1 - EXCHANGES), -1):
        after = [gap + sizes[filler[at]] - sizes[other] for other in spare]
        best = min(range(len(spare)), key=lambda place: cost(after[place]))
        if cost(after[best]) < cost(gap):
            gap = after[best]
            spare[best], filler[at] = filler[at], spare[best]
    return filler
