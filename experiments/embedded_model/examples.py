"""Training examples of the embedded model, and the stream of batches: which task, length and difficulty follows from the step.

Lines: a name and a number a line, one of them asked for, in part of the records several. In part of the examples few words make
all names, so that a name must be read whole: long records, which training never sees, repeat words all the time. Several
questions on one record teach the matching of names several times as fast as one.

Topics: a talk on several topics; the first is asked for, now and then the last. One label in four is a phrase from a novel, so
that a label is copied and not recalled.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from experiments._lib import wordings
from experiments._lib.batches import Bound, Chunk, Example, collate, ends
from experiments._lib.bpe import Pieces
from experiments._lib.t5_examples import in_filler, in_prose, number
from experiments._lib.t5_training import LONGEST
from experiments._lib.wordings import Lines, Topics
from experiments.embedded_model.data import Stock, Words

MANY = 0.3  # share of the records of which several lines are asked for


@dataclass(frozen=True)
class Difficulty:
    """How hard a record may be."""

    most: int  # lines
    variety: float  # 0: plain names, short entries or the task's own; 1: every kind of name and layout


def line_layout(stock: Stock, randomness: random.Random, variety: float) -> Lines:
    """Short entries first, where a name and its number are neighbours; all layouts in the end."""
    if not stock.tests_wording:
        return randomness.choice(wordings.SHORT_LINES if randomness.random() < 0.6 * (1 - variety) else wordings.OTHER_LINES)
    if randomness.random() < 0.6 * (1 - variety):
        return randomness.choice(wordings.SHORT_LINES)
    if randomness.random() < 0.25 * variety:
        return randomness.choice(wordings.LINES[1:])
    if randomness.random() < 0.4 and stock.official.line_questions:
        return official_lines(stock, randomness)
    return wordings.LINES[0]


def official_lines(stock: Stock, randomness: random.Random) -> Lines:
    official = stock.official
    return Lines(randomness.choice(official.line_introductions), wordings.ENTRY, randomness.choice(official.line_questions))


def line_in(
    stock: Stock, source: str, layout: Lines, randomness: random.Random, length: int, hard: Difficulty | None = None
) -> Example:
    """Without a difficulty, and in half of the examples, as many lines as fit or are allowed."""
    count = length if hard is None else hard.most if randomness.random() < 0.5 else randomness.randint(1, hard.most)
    pieces = stock.pieces
    # Evaluation in LongEval's layout uses LongEval's words, else the package's
    words = _line_words(stock, randomness, hard.variety) if hard else stock.names[-1 if "official" in source else 0]
    pool = _line_names(words, randomness, min(count, length // 12))
    several = randomness.randint(2, 5) if hard and randomness.random() < MANY else 1
    # The question takes the longest name, so that any of them may be asked for
    longest = max(pool, key=lambda name: pieces.size(f" {name}"))
    asking = len(pieces.tokens(_line_question(layout, [longest] * several)))
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
    question = _line_question(layout, [pool[at] for at in asked])
    made = stock.answered(source, layout.introduction + "".join(entries) + question, " ".join(numbers[at] for at in asked))
    return replace(made, bound=_bound_digits(stock.pieces, layout, pool, entries, numbers, asked, len(made.tokens)))


def _bound_digits(
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


def _line_question(layout: Lines, names: list[str]) -> str:
    """The task's question for one name; for several a question of training's own."""
    if len(names) == 1:
        return layout.question.format(name=names[0], number="")
    return "\nWhich numbers belong to " + ", ".join(names) + "?"


def _line_words(stock: Stock, randomness: random.Random, variety: float) -> Words:
    """Words of one token at first, then one of the lists or any words of novels; up to four in ten records have only few."""
    if randomness.random() > variety:
        words = stock.plain_names
    else:
        words = randomness.choice([*stock.names, Words(stock.book_words, stock.book_words)])
    if randomness.random() < 0.4 * variety:
        few = randomness.randint(4, 9)
        return Words(randomness.choices(words.first, k=few), randomness.choices(words.second, k=few))
    return words


def _line_names(words: Words, randomness: random.Random, count: int) -> list[str]:
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


WHICH = {"first": 0, "last": -1}


def topic_example(stock: Stock, randomness: random.Random, length: int) -> Example:
    layouts = [*[wordings.TOPICS[0]] * 3 * stock.tests_wording, *wordings.TOPICS[1:]]
    if stock.official.topic_questions and stock.tests_wording:
        layouts += [official_topics(stock)] * 3
    return topic_in(stock, "topic", randomness.choice(layouts), randomness, length)


def official_topics(stock: Stock) -> Topics:
    frame = stock.official
    return Topics(
        frame.topic_introductions[-1] + " ",
        wordings.LONGEVAL_OPENING,
        wordings.LONGEVAL_TURNS,
        tuple(frame.topic_closings),
        frame.topic_questions[0],
    )


def topic_in(stock: Stock, source: str, layout: Topics, randomness: random.Random, length: int) -> Example:
    size = stock.pieces.size
    which = randomness.choices(list(WHICH), [0.9, 0.1])[0] if stock.train else "first"
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
    _fill_talks(stock, layout, randomness, talks, room)
    introduction = layout.introduction.format(count=len(labels), which=which)
    text = introduction + "".join(part for talk in talks for part in talk) + question
    return stock.answered(source, text.lstrip("\n"), labels[WHICH[which]])


def _fill_talks(stock: Stock, layout: Topics, randomness: random.Random, talks: list[list[str]], room: int) -> None:
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


SHORTEST = 30  # tokens
EARLY = 320  # the longest input while records are short
FEW_LINES, MOST_LINES = 10, 40  # a record to learn on; more than ever fit
WEIGHTS = {"passkey filler": 0.05, "passkey prose": 0.12, "line": 0.48, "topic": 0.20, "text": 0.15}
SOURCES = tuple(WEIGHTS)
MAKERS = {"passkey filler": in_filler, "passkey prose": in_prose, "topic": topic_example}
CHUNKS = 2  # parts of a batch, of like lengths, each padded by itself


def batch(stock: Stock, size: int, curriculum: float, seed: int, step: int) -> list[Chunk]:
    """The examples of a step; after `curriculum` steps records are as long and as confusing as they get."""
    randomness, hard = random.Random(f"{seed} {step}"), difficulty(step, curriculum)
    examples = sorted((example(stock, hard, randomness) for _ in range(size)), key=lambda made: len(made.tokens))
    part = -(-size // CHUNKS)
    return [collate(examples[at : at + part], SOURCES, 128, 32) for at in range(0, size, part)]


def difficulty(step: int, curriculum: float) -> Difficulty:
    """Few lines of plain names until matching is learnt, in the first half of the curriculum; then more of everything."""
    done = min(1.0, step / max(1.0, curriculum))
    grown = max(0.0, 2 * done - 1)
    few = min(FEW_LINES, 3 + int(40 * done))
    return Difficulty(few + round(grown * (MOST_LINES - few)), grown)


def example(stock: Stock, hard: Difficulty, randomness: random.Random, source: str = "") -> Example:
    """From any source unless one is given; a quarter has the full length, and of the others long ones are more likely."""
    source = source or randomness.choices(SOURCES, list(WEIGHTS.values()))[0]
    longest = EARLY + round(hard.variety * (LONGEST - EARLY))
    while True:
        full = randomness.random() < 0.25
        length = longest if full else SHORTEST + int((longest + 1 - SHORTEST) * randomness.random() ** 0.5)
        match source:
            case "line":
                made = line_in(stock, "line", line_layout(stock, randomness, hard.variety), randomness, length, hard)
            case "text":
                made = stock.continued("text", stock.books.texts, randomness, length, randomness.randint(32, 64))
            case _:
                made = MAKERS[source](stock, randomness, length)
        # An introduction may be longer than a short length, which does no harm; only the longest length is a law
        if len(made.tokens) <= LONGEST:
            return made
