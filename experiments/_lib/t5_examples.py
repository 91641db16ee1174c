"""Examples that both trainings make: continuations of a text, and a number in sentences that repeat or in a novel."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from experiments._lib import wordings
from experiments._lib.batches import Example
from experiments._lib.bpe import Pieces
from experiments._lib.novels import Books, drawn


@dataclass(frozen=True, kw_only=True)
class Stock:
    """What examples are made of; a training adds what else it reads."""

    pieces: Pieces
    books: Books
    train: bool = True  # else what training never sees
    tests_wording: bool = True  # whether training reads the wordings that evaluation asks in

    def answered(self, source: str, text: str, answer: str) -> Example:
        eos = [self.pieces.eos]
        return Example(source, self.pieces.tokens(text) + eos, self.pieces.tokens(answer) + eos, text, answer)

    def continued(
        self, source: str, rows: Sequence[NDArray[np.int16]], randomness: random.Random, length: int, target: int
    ) -> Example:
        """Prefix language modelling: the encoder reads a passage, the decoder goes on; no `</s>`, for the text does not end."""
        passage = drawn(rows, randomness, length - 1 + target)
        return Example(source, [*passage[: length - 1], self.pieces.eos], passage[length - 1 :])


def in_filler(stock: Stock, randomness: random.Random, length: int) -> Example:
    pool = wordings.JUNK[:-6] if stock.train else wordings.JUNK[-6:]
    sentences = randomness.sample(pool, randomness.randint(1, 6))

    def filler(tokens: int) -> list[str]:
        taken: list[str] = []
        for sentence in cycle(sentences):
            tokens -= stock.pieces.size(" " + sentence)
            if tokens < 0:
                break
            taken.append(sentence)
        return taken

    return _example(stock, "passkey filler", randomness, length, filler)


def in_prose(stock: Stock, randomness: random.Random, length: int) -> Example:
    return _example(stock, "passkey prose", randomness, length, lambda tokens: stock.books.stretch(randomness, tokens))


def _example(stock: Stock, source: str, randomness: random.Random, length: int, filler: Callable[[int], list[str]]) -> Example:
    """Evaluation keeps to the package's wording, training uses it in four of ten or never; some hide a second number."""
    ours = not stock.train or (stock.tests_wording and randomness.random() < 0.4)
    first = 0 if ours or stock.tests_wording else 1
    introduction = _one(wordings.PASSKEY_INTRODUCTIONS, ours, first, randomness)
    question = _one(wordings.PASSKEY_QUESTIONS, ours, first, randomness)
    things = [wordings.THINGS[0]] if ours else randomness.sample(wordings.THINGS[first:], 1 + (randomness.random() < 0.3))
    keys = [str(number(randomness)) for _ in things]
    forms = [_one(wordings.NEEDLES, ours, first, randomness) for _ in things]
    needles = [form.format(thing=thing, key=key) for form, thing, key in zip(forms, things, keys, strict=True)]
    question = question.format(thing=things[0])
    fixed = [introduction, *needles, question]
    room = length - 1 - len(stock.pieces.tokens(" ".join(part for part in fixed if part)))
    prose = filler(room)
    for needle in needles:
        prose.insert(round(randomness.random() * len(prose)), needle)
    text = " ".join(part for part in [introduction, *prose, question] if part)
    return stock.answered(source, text, keys[0])


def _one(forms: Sequence[str], ours: bool, first: int, randomness: random.Random) -> str:
    """The package's own form, which stands first, or any from `first` on."""
    return forms[0] if ours else randomness.choice(forms[first:])


def number(randomness: random.Random) -> int:
    """1 to 50,000 as in the tasks; one in four has any number of digits with equal chance, else short ones are rare."""
    if randomness.random() < 0.75:
        return randomness.randint(1, 50000)
    digits = randomness.randint(1, 5)
    return randomness.randint(10 ** (digits - 1), 10**digits - 1)
