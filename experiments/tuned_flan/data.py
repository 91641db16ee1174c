"""What flan-t5-small is tuned on: questions, facts, numbers, code and prose of at most 512 tokens, in no task's own wording.

Never read: the held-out third of Natural Questions' pages, of the standard library and of the topics, half of the words that
name lines, and three novels.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments._lib import held_out, t5_examples, wordings
from experiments._lib import novels as books
from experiments._lib.batches import Chunk, Example, collate
from experiments._lib.bpe import Pieces
from experiments._lib.code_rows import Code, copied, telling, tokenised
from experiments._lib.made_up import made_up_facts
from experiments._lib.natural_questions import Asked, others, training_questions, window
from experiments._lib.t5_examples import in_filler, in_prose, number
from experiments._lib.t5_training import LONGEST
from lengthwise.tasks.material.code_files import CodeFile, standard_library
from lengthwise.tasks.material.documents import Document

OURS = json.loads(Path(__file__).with_name("wordings.json").read_text(encoding="utf-8"))
# T5 reads words between white space, each by itself
SPLIT = re.compile(r"\S+")
TALKS = wordings.TOPICS[1:]
SHORTEST, TARGET = 60, 64  # tokens of an input at least, of a target at most
LEAST_DOCUMENT = 24  # tokens of a document that is worth its line
CHUNKS = 4  # parts of a batch, of like lengths, each padded by itself


@dataclass(frozen=True, kw_only=True)
class Stock(t5_examples.Stock):
    """What examples are made of."""

    code: Code
    questions: list[Asked]

    @cached_property
    def names(self) -> list[str]:
        """Words that may name a line."""
        return [word for word in self.books.words if not held_out.word(word)]

    @cached_property
    def labels(self) -> list[str]:
        return [label for label in wordings.labels() if not held_out.label(label)]


def read_stock(data: Path, questions: Path, tokenizer: Any) -> Stock:
    """From a folder with novels, a file of questions and Python's standard library; `tokenizer` is the model's."""
    pieces = Pieces(tokenizer, SPLIT)
    novels, code = books.read(books.training(data), pieces), tokenised(training_code(), pieces)
    return Stock(pieces=pieces, books=novels, code=code, questions=training_questions(questions), tests_wording=False)


def training_code() -> list[CodeFile]:
    """Modules that are not held out, but for those of which much stands in one that is."""
    asked = [file for file in standard_library() if held_out.code(file)]
    lines = telling(line for file in asked for line in file.lines)
    return [file for file in standard_library() if not held_out.code(file) and not copied(file, lines)]


def natural_question(stock: Stock, randomness: random.Random, length: int) -> Example:
    asked = randomness.choice(stock.questions)
    answer, gold = randomness.choice(asked.standing), asked.question.gold
    words = min(len(gold.text.split()), randomness.choice((30, 60, 1000)), length // 2)
    gold = Document(gold.title, window(randomness, gold.text, answer, words))
    return _over(stock, "nq", randomness, length, asked.question.text, answer, gold, others(randomness, asked, stock.questions))


def made_up_question(stock: Stock, randomness: random.Random, length: int) -> Example:
    first, *rest = itertools.islice(made_up_facts(randomness, stock.books.words, as_the_task=0), 12)
    question, around = first.question, (fact.question.gold for fact in rest)
    return _over(stock, "made-up qa", randomness, length, question.text, question.answers[0], question.gold, around)


def _over(
    stock: Stock,
    source: str,
    randomness: random.Random,
    length: int,
    question: str,
    answer: str,
    gold: Document,
    around: Iterator[Document],
) -> Example:
    """A question over as many documents as there is room for, or fewer."""
    before, form, after, told = randomness.choice(OURS["questions"])
    fixed = [part.format(question=question) for part in (before, after)]
    room = length - 1 - len(stock.pieces.tokens(" ".join(fixed)))
    kept = _that_fit(stock, form, [gold, *itertools.islice(around, randomness.choice((0, 1, 2, 3, 11)))], room)
    place = randomness.randrange(len(kept))
    kept = [*kept[1 : 1 + place], gold, *kept[1 + place :]]
    lines = [form.format(at=at, title=one.title, text=one.text) for at, one in enumerate(kept, 1)]
    return stock.answered(source, fixed[0] + "".join(lines) + fixed[1], told.format(answer=answer, gold=place + 1))


def _that_fit(stock: Stock, form: str, documents: list[Document], room: int) -> list[Document]:
    """The first document, and as many more as fit, the last of them cut."""
    kept: list[Document] = []
    for document in documents:
        size = len(stock.pieces.tokens(form.format(at=10, title=document.title, text=document.text)))
        if kept and size > room:
            if room >= LEAST_DOCUMENT + size - (inside := len(stock.pieces.tokens(document.text))):
                text = stock.pieces.beginning(document.text, room - size + inside, inside)
                kept.append(Document(document.title, text))
            break
        kept.append(document)
        room -= size
    return kept


def summary(stock: Stock, randomness: random.Random, length: int) -> Example:
    """The sentence of a document that its details stand around."""
    facts = list(itertools.islice(made_up_facts(randomness, stock.books.words, as_the_task=0), 8))
    before, form, after = randomness.choice(OURS["summaries"])
    fixed = len(stock.pieces.tokens(f"{before} {after}")) + 20
    kept = _that_fit(stock, form, [fact.question.gold for fact in facts], length - fixed)
    # Whole documents only: the last may have lost its sentence
    at = randomness.randrange(max(1, len(kept) - 1))
    text = before + "".join(form.format(title=one.title, text=one.text) for one in kept)
    return stock.answered("summary", text + after.format(title=kept[at].title), facts[at].sentence)


def first_sentence(stock: Stock, randomness: random.Random, length: int) -> Example:
    before, after = randomness.choice(OURS["first_sentences"])
    told = stock.books.stretch(randomness, length - 1 - len(stock.pieces.tokens(f"{before} {after}")))
    return stock.answered("first sentence", before + " ".join(told) + after, told[0])


def record(stock: Stock, randomness: random.Random, length: int) -> Example:
    """Lines with a name and a number, one asked for; in a third of the records names share their words."""
    layout = randomness.choice(wordings.OTHER_LINES)
    words = randomness.sample(stock.names, 6) if randomness.random() < 0.3 else stock.names
    names = list(dict.fromkeys("-".join(randomness.choices(words, k=2)) for _ in range(randomness.choice((4, 12, 40)))))
    asked = names[0]
    question = layout.question.format(name=asked, number="")
    room = length - 1 - len(stock.pieces.tokens(f"{layout.introduction} {question}"))
    entries: list[str] = []
    answer = str(number(randomness))
    for name in names:
        entry = layout.entry.format(name=name, number=answer if name == asked else number(randomness))
        room -= len(stock.pieces.tokens(entry))
        if entries and room < 0:
            break
        entries.append(entry)
    randomness.shuffle(entries)
    return stock.answered("record", layout.introduction + "".join(entries) + question, answer)


def talk(stock: Stock, randomness: random.Random, length: int) -> Example:
    """Several subjects one after the other, the first or the last asked for."""
    layout, which = randomness.choice(TALKS), randomness.choice(("first", "first", "last"))
    labels = randomness.sample(stock.labels, randomness.randint(2, 6))
    text, tail = layout.introduction.format(count=len(labels)), layout.question.format(which=which)
    room = (length - 1 - len(stock.pieces.tokens(f"{text} {tail}"))) // len(labels)
    for label in labels:
        frame = [layout.opening.format(label=label), randomness.choice(layout.closings).format(label=label)]
        said, left = "", room - len(stock.pieces.tokens(" ".join(frame)))
        while left > 8:
            sentence = " ".join(stock.books.stretch(randomness, min(left - 4, 40)))
            turn = randomness.choice(layout.turns).format(sentence=sentence)
            left -= len(stock.pieces.tokens(turn)) + 1
            said += turn
        text += frame[0] + said + frame[1]
    return stock.answered("talk", text.lstrip() + tail, labels[0 if which == "first" else -1])


def next_line(stock: Stock, randomness: random.Random, length: int) -> Example:
    before, after = map(stock.pieces.tokens, randomness.choice(OURS["code"]))
    start, bare, end = map(int, stock.code.asked[randomness.randrange(len(stock.code.asked))])
    row, eos = stock.code.tokens, stock.pieces.eos
    code = row[max(0, start - length + 1 + len(before) + len(after)) : start].tolist()
    return Example("code line", [*before, *code, *after, eos], [*row[bare:end].tolist(), eos])


def code_value(stock: Stock, randomness: random.Random, length: int) -> Example:
    """A constant that is set somewhere in code."""
    name, value = "_".join(randomness.choices(stock.names, k=2)), str(randomness.randint(1, 999))
    before, after = randomness.choice(OURS["code_values"])
    tokens = stock.pieces.tokens
    head, tail, line = tokens(before), tokens(after.format(name=name)), tokens(f"{name} = {value}")
    first = randomness.randrange(len(stock.code.lines) // 2)
    room = max(0, length - 1 - len(head) - len(tail) - len(line))
    start = int(stock.code.lines[first])
    last = first + int((stock.code.lines[first : first + room] < start + room).sum())
    cut = int(stock.code.lines[randomness.randint(first, last - 1)])
    row = stock.code.tokens
    code = [*row[start:cut].tolist(), *line, *row[cut : start + room].tolist()]
    return Example("code value", [*head, *code, *tail, stock.pieces.eos], [*tokens(value), stock.pieces.eos])


def continuation(stock: Stock, randomness: random.Random, length: int) -> Example:
    head = stock.pieces.tokens(randomness.choice(OURS["continuations"]))
    made = stock.continued("text", stock.books.texts, randomness, length - len(head), randomness.randint(32, TARGET))
    return Example("text", [*head, *made.tokens], made.target)


MAKERS: dict[str, tuple[float, Callable[[Stock, random.Random, int], Example]]] = {
    "code line": (0.32, next_line),
    "nq": (0.15, natural_question),
    "made-up qa": (0.12, made_up_question),
    "record": (0.10, record),
    "passkey prose": (0.06, in_prose),
    "passkey filler": (0.02, in_filler),
    "talk": (0.05, talk),
    "code value": (0.05, code_value),
    "summary": (0.03, summary),
    "first sentence": (0.03, first_sentence),
    "text": (0.07, continuation),
}
SOURCES = tuple(MAKERS)


def batch(stock: Stock, size: int, seed: int, step: int) -> list[Chunk]:
    randomness = random.Random(f"{seed} {step}")
    examples = sorted((example(stock, randomness) for _ in range(size)), key=lambda made: len(made.tokens))
    part = -(-size // CHUNKS)
    return [collate(examples[at : at + part], SOURCES, 64, 32) for at in range(0, size, part)]


def example(stock: Stock, randomness: random.Random, source: str = "") -> Example:
    """From any source unless one is given; a quarter has the full length, and of the others long ones are more likely."""
    source = source or randomness.choices(SOURCES, [share for share, _ in MAKERS.values()])[0]
    while True:
        full = randomness.random() < 0.25
        length = LONGEST if full else SHORTEST + int((LONGEST + 1 - SHORTEST) * randomness.random() ** 0.5)
        made = MAKERS[source][1](stock, randomness, length)
        # Introduction and question may be longer than a short length, which does no harm
        if len(made.tokens) <= LONGEST and 0 < len(made.target) <= TARGET:
            return made
