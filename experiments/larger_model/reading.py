"""Questions over documents, in the layout of multi-document QA: made up, of people, or a document's own sentence."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from experiments._lib.pieces import Pieces
from experiments.larger_model import cloze, made_up, natural_questions
from experiments.larger_model.binding import bound
from experiments.larger_model.stock import Example, Stock
from lengthwise.tasks.material.documents import Document, Question
from lengthwise.tasks.multi_document_qa import INTRODUCTION, QUESTION

MOST_PASSAGES = 5  # of more documents than these only made-up ones
LEAST = 12  # tokens of a document that is worth its line
FEWEST_WORDS = 12  # of a passage that is cut


def made_up_question(stock: Stock, randomness: random.Random, length: int, most: int) -> Example:
    """Over at most so many documents."""
    count = _count(randomness, most)
    facts = list(itertools.islice(made_up.facts(randomness, stock.books.words), count))
    around = (one.question.gold for one in facts[1:])
    made = laid_out(stock, "made-up qa", randomness, length, facts[0].question, around, count)
    return replace(made, bound=bound(stock.pieces, made.tokens, facts))


def natural_question(stock: Stock, randomness: random.Random, length: int, most: int) -> Example:
    asked = randomness.choice(stock.questions)
    answer, gold = randomness.choice(asked.standing), asked.question.gold
    # Cut passages leave room for others, and let one question be read in many ways
    if randomness.random() < 0.5:
        gold = Document(gold.title, natural_questions.window(randomness, gold.text, answer, randomness.randint(20, 70)))
    around = natural_questions.others(randomness, asked, stock.questions)
    question = Question(asked.question.text, (answer,), gold)
    return laid_out(stock, "nq", randomness, length, question, around, _count(randomness, min(most, MOST_PASSAGES)))


def cloze_question(stock: Stock, randomness: random.Random, length: int, most: int) -> Example:
    while True:
        document = _document(stock, randomness)
        question = cloze.question(randomness, document)
        if question is not None:
            around = iter(lambda: _document(stock, randomness), None)
            count = _count(randomness, min(most, MOST_PASSAGES))
            return laid_out(stock, "cloze", randomness, length, question, around, count)


def _count(randomness: random.Random, most: int) -> int:
    """In half of the prompts all documents that there is room for."""
    return most if randomness.random() < 0.5 else randomness.randint(1, most)


def _document(stock: Stock, randomness: random.Random) -> Document:
    """A passage, or some sentences of a novel under a made-up title."""
    if randomness.random() < 0.5:
        return randomness.choice(stock.questions).question.gold
    text = " ".join(stock.books.stretch(randomness, randomness.randint(40, 120)))
    return Document(made_up.name(randomness, stock.books.words), text)


def laid_out(
    stock: Stock,
    source: str,
    randomness: random.Random,
    length: int,
    asked: Question,
    around: Iterator[Document],
    most: int,
) -> Example:
    """At most so many documents, as many as there is room for; the last one around is cut where the length is reached."""
    pieces, answer = stock.pieces, asked.answers[0]
    head = pieces.tokens(f"{INTRODUCTION}\n")
    tail = [*pieces.tokens(QUESTION.format(question=asked.text)), pieces.eos]
    room = length - len(head) - len(tail)
    gold = _gold(pieces, randomness, asked.gold, answer, room - _frame(pieces, most))
    lines = [gold]
    room -= len(gold) + _frame(pieces, most)
    for document in itertools.islice(around, most - 1):
        room -= _frame(pieces, most)
        if room < LEAST:
            break
        lines.append(_beginning(pieces, document.told, room))
        room -= len(lines[-1])
    place = randomness.randrange(len(lines))
    lines = [*lines[1 : 1 + place], gold, *lines[1 + place :]]
    told = [token for at, line in enumerate(lines, 1) for token in (*_number(pieces, at), *line, *pieces.tokens("\n"))]
    return Example(source, [*head, *told, *tail], [*pieces.tokens(answer), pieces.eos])


def _gold(pieces: Pieces, randomness: random.Random, document: Document, answer: str, room: int) -> list[int]:
    """Cut around the answer where it does not fit; never shorter than some words."""
    words = len(document.text.split())
    tokens = pieces.tokens(" " + document.told)
    while len(tokens) > room and words > FEWEST_WORDS:
        words = max(FEWEST_WORDS, min(words - 1, words * room // len(tokens)))
        document = Document(document.title, natural_questions.window(randomness, document.text, answer, words))
        tokens = pieces.tokens(" " + document.told)
    return tokens


def _number(pieces: Pieces, number: int) -> list[int]:
    return pieces.tokens(f"Document {number}")


def _frame(pieces: Pieces, most: int) -> int:
    """Tokens that a document's line takes besides the document."""
    return len(_number(pieces, most)) + 1


def _beginning(pieces: Pieces, told: str, room: int) -> list[int]:
    tokens = pieces.tokens(f" {told}")
    return tokens if len(tokens) <= room else pieces.tokens(f" {pieces.beginning(told, room, len(tokens))}")
