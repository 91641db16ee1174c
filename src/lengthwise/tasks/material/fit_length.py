"""Fill a prompt up to a wanted number of tokens, never beyond: a prompt of the training length must not be longer than it."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lengthwise.errors import NoRoom
from lengthwise.tasks.sample import token_count

SPARE = 200  # pieces at hand for exchanges
EXCHANGES = 8  # last pieces that may be exchanged
CUTS = 8  # pieces that may be tried where one is cut
Gap = Callable[[list[str]], int]  # how many tokens a prompt with this filler is short of its length


def added_tokens(tokenizer: Any, piece: str, glue: str) -> int:
    """Tokens that a piece adds to a prompt in which `glue` stands before it."""
    return max(1, len(tokenizer(glue + piece, add_special_tokens=False, verbose=False).input_ids))


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
    cut: bool = False,
) -> list[str]:
    """Take so many of the endless `pieces` that `prompt_of` makes a prompt of `length` tokens of them, or a little less.

    With `cut` the last piece ends where the length is reached; else last pieces are exchanged for others that fit better.
    """

    def gap_of(filler: list[str]) -> int:
        return length - token_count(tokenizer, prompt_of(filler))

    def size_of(piece: str) -> int:
        return added_tokens(tokenizer, piece, glue)

    check_room(length, length - gap_of([]))
    source = iter(pieces)
    filler, following = _whole(source, size_of, gap_of)
    if cut:
        return _with_beginning(filler, [following, *itertools.islice(source, CUTS - 1)], gap_of, length // 100)
    spare = [following, *itertools.islice(source, SPARE)]
    sizes = {piece: size_of(piece) for piece in [*spare, *filler[-EXCHANGES:]]}
    fewer = _exchanged(filler, spare, sizes, gap_of(filler))
    more = _exchanged([*filler, following], spare[1:], sizes, gap_of(filler) - sizes[following])
    return min((tried for tried in (filler, fewer, more) if gap_of(tried) >= 0), key=gap_of)


def _whole(source: Iterator[str], size_of: Callable[[str], int], gap_of: Gap) -> tuple[list[str], str]:
    """Whole pieces, as many as there is room for, and the piece that follows them."""
    filler: list[str] = []
    gap = gap_of(filler)
    piece = next(source)
    # Pieces joined tokenise a little differently than alone, so the whole is counted again until nothing more fits
    while gap >= size_of(piece):
        while gap >= size_of(piece):
            filler.append(piece)
            gap -= size_of(piece)
            piece = next(source)
        gap = gap_of(filler)
    while gap < 0:
        filler.pop()
        gap = gap_of(filler)
    return filler, piece


def _with_beginning(filler: list[str], pieces: list[str], gap_of: Gap, enough: int) -> list[str]:
    """The filler and as many first words as there is room for: the first piece's, if they leave a gap that is small enough."""
    tried: list[list[str]] = []
    for piece in pieces:
        words = piece.split()
        beginnings = [filler, *([*filler, " ".join(words[:count])] for count in range(1, len(words) + 1))]
        tried.append(beginnings[bisect.bisect_right(beginnings, 0, lo=1, key=lambda longer: -gap_of(longer)) - 1])
        if gap_of(tried[-1]) <= enough:
            break
    return min(tried, key=gap_of)


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
