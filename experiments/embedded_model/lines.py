"""Line retrieval: a name and a number a line, one of them asked for.

Names come from the task's word lists or from the novels. In part of the examples few words make all names, so that a name must
be read whole: long records, which training never sees, repeat words all the time.
"""

from __future__ import annotations

import random

from experiments.embedded_model import wordings
from experiments.embedded_model.example import Example, Stock, Words, number
from experiments.embedded_model.wordings import Lines


def example(stock: Stock, randomness: random.Random, length: int, most: int) -> Example:
    """A record of at most `most` lines."""
    return _example(stock, "line", layout(stock, randomness), randomness, length, most)


def ours(stock: Stock, randomness: random.Random, length: int) -> Example:
    return _example(stock, "line", wordings.LINES[0], randomness, length)


def official(stock: Stock, randomness: random.Random, length: int) -> Example:
    return _example(stock, "line official", _official(stock, randomness), randomness, length)


def layout(stock: Stock, randomness: random.Random) -> Lines:
    share = randomness.random()
    if share < 0.3 and stock.official.line_questions:
        return _official(stock, randomness)
    return wordings.LINES[0] if share < 0.75 else randomness.choice(wordings.LINES[1:])


def _official(stock: Stock, randomness: random.Random) -> Lines:
    official = stock.official
    return Lines(randomness.choice(official.line_introductions), wordings.ENTRY, randomness.choice(official.line_questions))


def _example(
    stock: Stock, source: str, layout: Lines, randomness: random.Random, length: int, most: int | None = None
) -> Example:
    # Without a limit, and in half of the examples, as many lines as fit
    count = length if most is None else most if randomness.random() < 0.5 else randomness.randint(1, most)
    pieces = stock.pieces
    # Evaluation in LongEval's layout uses LongEval's words, else the package's
    words = _words(stock, randomness) if stock.train else stock.names[-1 if "official" in source else 0]
    pool = _names(words, randomness, min(count, length // 12))
    # The question takes the longest name, so that any of them may be asked for
    longest = max(pool, key=lambda name: pieces.size(f" {name}"))
    room = length - 1 - pieces.size(layout.introduction) - len(pieces.tokens(layout.question.format(name=longest, number="")))
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
    asked = randomness.randrange(len(entries))
    question = layout.question.format(name=pool[asked], number="")
    return stock.answered(source, layout.introduction + "".join(entries) + question, numbers[asked])


def _words(stock: Stock, randomness: random.Random) -> Words:
    """One of the lists, or the novels' words; in four of ten examples only a few of them."""
    words = randomness.choice([*stock.names, Words(stock.book_words, stock.book_words)])
    if randomness.random() < 0.4:
        few = randomness.randint(4, 9)
        return Words(randomness.choices(words.first, k=few), randomness.choices(words.second, k=few))
    return words


def _names(words: Words, randomness: random.Random, count: int) -> list[str]:
    """At most so many different names, at least one."""
    names: dict[str, None] = {}
    for _ in range(4 * count):
        names[f"{randomness.choice(words.first)}-{randomness.choice(words.second)}"] = None
        if len(names) >= count:
            break
    return list(names)
