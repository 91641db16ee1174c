"""One training example, and what all sources of them draw from."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments._lib import held_out
from experiments._lib import novels as books
from experiments._lib.novels import Books
from experiments._lib.pieces import Pieces
from experiments._lib.reader import Bound
from experiments.embedded_model import longeval, wordings
from experiments.embedded_model.longeval import LongEval
from experiments.embedded_model.pieces import SPLIT
from lengthwise.tasks import line

LONGEST = 512


@dataclass(frozen=True)
class Example:
    """Tokens in, tokens out; `</s>` included where it belongs."""

    source: str
    tokens: list[int]  # at most LONGEST
    target: list[int]
    text: str  # what the input says; empty for plain text of novels
    answer: str  # what the target says; empty for plain text of novels
    bound: tuple[Bound, ...] = ()  # what the encoder must know at some of the tokens


@dataclass(frozen=True)
class Words:
    """Words that make the names of lines, one of the first and one of the second."""

    first: list[str]
    second: list[str]

    def part(self, train: bool) -> Words:
        """Those that training may use, or the others."""
        first, second = ([word for word in side if held_out.word(word) != train] for side in (self.first, self.second))
        return Words(first, second)


@dataclass(frozen=True)
class Stock:
    """Everything examples are made of, for training or, with what training never sees, for evaluation."""

    pieces: Pieces
    books: Books
    official: LongEval
    names: list[Words]  # the package's lists, then LongEval's where they are at hand
    labels: list[str]
    official_labels: list[str]  # those of LongEval, written as within a sentence
    train: bool

    @cached_property
    def book_words(self) -> list[str]:
        """Words of the novels that may name lines, so that names are not bound to two lists."""
        return [word for word in self.books.words if held_out.word(word) != self.train]

    @cached_property
    def plain_names(self) -> Words:
        """Words that are one token each, where they stand in a name: what matching is learnt on first."""
        tokens = self.pieces.tokens
        first = [word for word in self.book_words if len(tokens(f" {word}")) == 1]
        return Words(first, [word for word in self.book_words if len(tokens(word)) == 1])

    def answered(self, source: str, text: str, answer: str) -> Example:
        eos = [self.pieces.eos]
        return Example(source, self.pieces.tokens(text) + eos, self.pieces.tokens(answer) + eos, text, answer)


def stock(data: Path, tokenizer: Any, train: bool) -> Stock:
    paths = books.training(data) if train else books.evaluation(data)
    official = longeval.read(data)
    lists = [Words(line.ADJECTIVES, line.NOUNS), Words(official.adjectives, official.nouns)]
    pieces = Pieces(tokenizer, SPLIT)
    return Stock(
        pieces=pieces,
        books=books.read(paths, pieces),
        official=official,
        names=[words.part(train) for words in lists if words.first],
        labels=[label for label in wordings.labels() if held_out.label(label) != train],
        official_labels=[label[0].lower() + label[1:] for label in official.labels if held_out.label(label) != train],
        train=train,
    )


def number(randomness: random.Random) -> int:
    """1 to 50,000 as in the tasks; one in four has any number of digits with equal chance, else short ones are rare."""
    if randomness.random() < 0.75:
        return randomness.randint(1, 50000)
    digits = randomness.randint(1, 5)
    return randomness.randint(10 ** (digits - 1), 10**digits - 1)
