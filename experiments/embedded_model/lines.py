"""Line retrieval: a name and a number a line, one of them asked for, in part of the records several.

Names come from the task's word lists or from the novels. In part of the examples few words make all names, so that a name must
be read whole: long records, which training never sees, repeat words all the time. Several questions on one record teach the
matching of names several times as fast as one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from experiments._lib.pieces import Pieces
from experiments._lib.reader import Bound, ends
from experiments.embedded_model import wordings
from experiments.embedded_model.example import Example, Stock, Words, number
from experiments.embedded_model.wordings import Lines


@dataclass(frozen=True)
class Difficulty:
    """How hard a record may be."""

    most: int  # lines
    variety: float  # 0: plain names, short entries or the task's own; 1: every kind of name and layout
    many: float  # share of the records of which several lines are asked for


def example(stock: Stock, randomness: random.Random, length: int, hard: Difficulty) -> Example:
    return _example(stock, "line", layout(stock, randomness, hard.variety), randomness, length, hard)


def ours(stock: Stock, randomness: random.Random, length: int) -> Example:
    return _example(stock, "line", wordings.LINES[0], randomness, length)


def official(stock: Stock, randomness: random.Random, length: int) -> Example:
    return _example(stock, "line official", _official(stock, randomness), randomness, length)


def layout(stock: Stock, randomness: random.Random, variety: float) -> Lines:
    """Short entries first, where a name and its number are neighbours; all layouts in the end."""
    if randomness.random() < 0.6 * (1 - variety):
        return randomness.choice(wordings.SHORT_LINES)
    if randomness.random() < 0.25 * variety:
        return randomness.choice(wordings.LINES[1:])
    if randomness.random() < 0.4 and stock.official.line_questions:
        return _official(stock, randomness)
    return wordings.LINES[0]


def _official(stock: Stock, randomness: random.Random) -> Lines:
    official = stock.official
    return Lines(randomness.choice(official.line_introductions), wordings.ENTRY, randomness.choice(official.line_questions))


def _example(
    stock: Stock, source: str, layout: Lines, randomness: random.Random, length: int, hard: Difficulty | None = None
) -> Example:
    """Without a difficulty, and in half of the examples, as many lines as fit or are allowed."""
    count = length if hard is None else hard.most if randomness.random() < 0.5 else randomness.randint(1, hard.most)
    pieces = stock.pieces
    # Evaluation in LongEval's layout uses LongEval's words, else the package's
    words = _words(stock, randomness, hard.variety) if hard else stock.names[-1 if "official" in source else 0]
    pool = _names(words, randomness, min(count, length // 12))
    several = randomness.randint(2, 5) if hard and randomness.random() < hard.many else 1
    # The question takes the longest name, so that any of them may be asked for
    longest = max(pool, key=lambda name: pieces.size(f" {name}"))
    asking = len(pieces.tokens(_question(layout, [longest] * several)))
    room = length - 1 - pieces.size(layout.introduction) - asking
    entries: list[str] = []
    numbers: list[str] = []
    for name in pool:
        value = str(number(randomness))
        entry = layout.entry.format(name=name, number=value)
        room -= len(pieces.tokens(entry))
        if entries and room < 0:
            break
        entries.append(entry)
        numbers.append(value)
    asked = randomness.sample(range(len(entries)), min(several, len(entries)))
    question = _question(layout, [pool[at] for at in asked])
    made = stock.answered(source, layout.introduction + "".join(entries) + question, " ".join(numbers[at] for at in asked))
    return replace(made, bound=_bound(stock.pieces, layout, pool, entries, numbers, asked, len(made.tokens)))


def _bound(
    pieces: Pieces, layout: Lines, names: list[str], entries: list[str], numbers: list[str], asked: list[int], length: int
) -> tuple[Bound, ...]:
    """The first and the last digit of each line to its name, the input's end to the first name asked for."""
    bound: list[Bound] = []
    start = pieces.size(layout.introduction)
    for name, entry, value in zip(names, entries, numbers, strict=False):
        digit = start + len(pieces.tokens(entry[: entry.rindex(value)]))
        told = ends(pieces.tokens(f" {name}"))
        bound += [Bound(digit, told), Bound(digit + len(value) - 1, told)]
        start += len(pieces.tokens(entry))
    return (*bound, Bound(length - 1, ends(pieces.tokens(f" {names[asked[0]]}"))))


def _question(layout: Lines, names: list[str]) -> str:
    """The task's question for one name; for several a question of training's own."""
    if len(names) == 1:
        return layout.question.format(name=names[0], number="")
    return "\nWhich numbers belong to " + ", ".join(names) + "?"


def _words(stock: Stock, randomness: random.Random, variety: float) -> Words:
    """Words of one token at first, then one of the lists or any words of novels; up to four in ten records have only few."""
    if randomness.random() > variety:
        words = stock.plain_names
    else:
        words = randomness.choice([*stock.names, Words(stock.book_words, stock.book_words)])
    if randomness.random() < 0.4 * variety:
        few = randomness.randint(4, 9)
        return Words(randomness.choices(words.first, k=few), randomness.choices(words.second, k=few))
    return words


def _names(words: Words, randomness: random.Random, count: int) -> list[str]:
    """At most so many different names, at least one."""
    names: dict[str, None] = {}
    # The task has names of three words where a record is longer than there are pairs
    third = randomness.random() < 0.08
    for _ in range(4 * count):
        parts = [randomness.choice(words.first), randomness.choice(words.second), randomness.choice(words.second)]
        names["-".join(parts if third else parts[:2])] = None
        if len(names) >= count:
            break
    return list(names)
