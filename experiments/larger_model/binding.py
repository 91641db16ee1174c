"""Which tokens of a question over made-up documents belong to which name: what the encoder is asked half-way up."""

from __future__ import annotations

from collections.abc import Sequence

from experiments._lib.pieces import Pieces
from experiments._lib.reader import Bound, ends
from experiments.larger_model.made_up import Fact


def bound(pieces: Pieces, tokens: list[int], facts: Sequence[Fact]) -> tuple[Bound, ...]:
    """Each answer, by its first and last token, to its fact's name; the input's end to the first fact's, the one asked."""
    found: list[Bound] = []
    for fact in facts:
        start = _place(tokens, pieces.tokens(f" {fact.sentence}"))
        # A document may have been left out, or cut within the fact
        if start is not None:
            name = ends(pieces.tokens(f" {fact.name}"))
            found += [Bound(start + at, name) for at in _answer(pieces, fact)]
    return (*found, Bound(len(tokens) - 1, ends(pieces.tokens(f" {facts[0].name}"))))


def _answer(pieces: Pieces, fact: Fact) -> tuple[int, int]:
    """Its first and its last token, counted from where the sentence starts."""
    answer = fact.question.answers[0]
    before = f" {fact.sentence[: fact.at]}"
    # A space is part of the word behind it, but never of a digit
    first = len(pieces.tokens(before if answer[0].isdigit() else before.removesuffix(" ")))
    return first, len(pieces.tokens(f" {fact.sentence[: fact.at]}{answer}")) - 1


def _place(tokens: list[int], part: list[int]) -> int | None:
    size, first = len(part), part[0]
    places = (at for at in range(len(tokens) - size + 1) if tokens[at] == first and tokens[at : at + size] == part)
    return next(places, None)
