"""Topic retrieval: a talk on several topics; the first is asked for, now and then the last.

What is said between is small talk and sentences of novels. One label in four is a phrase from a novel, so that a label is
copied and not recalled.
"""

from __future__ import annotations

import random

from experiments.embedded_model import wordings
from experiments.embedded_model.example import Example, Stock
from experiments.embedded_model.wordings import Topics

CASES = {"first": 0, "last": -1}


def example(stock: Stock, randomness: random.Random, length: int) -> Example:
    layouts = [*[wordings.TOPICS[0]] * 3, *wordings.TOPICS[1:]]
    if stock.official.topic_questions:
        layouts += [official(stock)] * 3
    return _example(stock, "topic", randomness.choice(layouts), randomness, length)


def ours(stock: Stock, randomness: random.Random, length: int) -> Example:
    return _example(stock, "topic", wordings.TOPICS[0], randomness, length)


def in_official_layout(stock: Stock, randomness: random.Random, length: int) -> Example:
    return _example(stock, "topic official", official(stock), randomness, length)


def official(stock: Stock) -> Topics:
    frame = stock.official
    return Topics(
        frame.topic_introductions[-1] + " ",
        wordings.LONGEVAL_OPENING,
        wordings.LONGEVAL_TURNS,
        tuple(frame.topic_closings),
        frame.topic_questions[0],
    )


def _example(stock: Stock, source: str, layout: Topics, randomness: random.Random, length: int) -> Example:
    size = stock.pieces.size
    which = randomness.choices(list(CASES), [0.9, 0.1])[0] if stock.train else "first"
    question = layout.question.format(which=which)
    room = length - 1 - size(layout.introduction) - size(question) - 2
    count = randomness.randint(1, 12)
    closing = randomness.choice(layout.closings)
    talks: list[list[str]] = []
    labels: list[str] = []
    for label in _labels(stock, randomness, count):
        frame = [layout.opening.format(label=label), closing.format(label=label)]
        needed = sum(len(stock.pieces.tokens(part)) for part in frame)
        if len(labels) > 1 and needed > room:
            break
        room -= needed
        talks.append(frame)
        labels.append(label)
    _fill(stock, layout, randomness, talks, room)
    introduction = layout.introduction.format(count=len(labels), which=which)
    text = introduction + "".join(part for talk in talks for part in talk) + question
    return stock.answered(source, text.lstrip("\n"), labels[CASES[which]])


def _fill(stock: Stock, layout: Topics, randomness: random.Random, talks: list[list[str]], room: int) -> None:
    """Turns between opening and closing until no more fit, some talks longer than others."""
    prose = not stock.train or randomness.random() < 0.5
    weights = [randomness.random() ** 2 + 0.05 for _ in talks]
    while True:
        said = stock.books.stretch(randomness, 40) if prose else []
        sentence = " ".join(said) or randomness.choice(wordings.CHAT)
        talk = randomness.choices(talks, weights)[0]
        turn = layout.turns[len(talk) % len(layout.turns)].format(sentence=sentence)
        room -= len(stock.pieces.tokens(turn))
        if room < 0:
            return
        talk.insert(-1, turn)


def _labels(stock: Stock, randomness: random.Random, count: int) -> list[str]:
    labels: dict[str, None] = {}
    for _ in range(4 * count):
        if len(labels) >= count:
            break
        share = randomness.random()
        if stock.train and share < 0.25:
            labels[_phrase(stock, randomness)] = None
        elif stock.official_labels and share < 0.5:
            labels[randomness.choice(stock.official_labels)] = None
        else:
            labels[randomness.choice(stock.labels)] = None
    return list(labels)


def _phrase(stock: Stock, randomness: random.Random) -> str:
    return " ".join(randomness.choices(stock.books.words, k=randomness.randint(1, 6)))
