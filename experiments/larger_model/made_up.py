"""Questions on places and people that do not exist, in names and partly in wordings that evaluation does not have.

The task makes its names of syllables (`tasks.material.documents`); training's names have other syllables, or are words of
novels with a capital, and a name that the task could make is never used. Half of the facts have the task's wording.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lengthwise.tasks.material import documents
from lengthwise.tasks.material.documents import COLOURS, DAYS, DETAILS, MONTHS, THINGS, Document, Question

BEGINNINGS = (
    "Al An Ash Ber Bo Bri Bur Car Ches Clar Cra Dun Ed El Far Fi Gla Gran Had Har Hen Ing Jar Kel Kin Lam Len Lin Mal Man Mil "
    "Mor Nel New Nu Od Or Par Pil Por Qua Ral Red Ri Sal San Shel Sor Swin Tam Ter Thorn Ul Ver Vin Wal War Wil Zan"
).split()
MIDDLES = ["", "", "a", "ber", "ding", "er", "in", "ing", "ma", "ster", "ti", "ver"]
ENDS = (
    "ace amont ardo beck borough bridge brook burn castle church cliffe cot deen don elli gill grave grove hall haven heim "
    "hill house hurst ister kirk land low marsh mill minster moor mouth nova ora park pool port rod sea sett side stead "
    "stone tree tun ville wall water way well wood yard"
).split()
GIVEN_NAMES = (
    *documents.GIVEN_NAMES, *"Agnes Albert Alice Amos Arthur Beatrice Clara Daniel Dora Elias Emma Ernest Fanny George Helen "
    "Henry Irene Jacob Jane Laura Louis Mabel Max Olga Otto Philip Rosa Samuel Sarah Theodor Victor Vera".split(),
)  # fmt: skip
TASKS_OWN = re.compile(f"(?:{'|'.join(documents.BEGINNINGS)})(?:{'|'.join(documents.MIDDLES)})*(?:{'|'.join(documents.ENDS)})")


@dataclass(frozen=True)
class Form:
    """What a document tells and what is asked, with places for {thing}, {verb}, {place}, {person}, {year} and so on."""

    title: str
    fact: str
    question: str
    answer: str
    name: str = "{place}"  # what the question finds the document by


@dataclass(frozen=True)
class Fact:
    """A question, and where in its document the answer stands."""

    question: Question
    sentence: str  # of the document, with the answer and the name
    at: int  # letters of the sentence before the answer
    name: str


OWN = Form(
    "The {thing} of {place}",
    "The {thing} of {place} was {verb} by {person}.",
    "Who {verb} the {thing} of {place}?",
    "{person}",
)
FORMS = (
    Form("{place}", "{person} is the mayor of {place}.", "Who is the mayor of {place}?", "{person}"),
    Form("{place}", "{place} has {number} inhabitants.", "How many inhabitants does {place} have?", "{number}"),
    Form("{person}", "{person} was born in {place}.", "Where was {person} born?", "{place}", "{person}"),
    Form("{person}", "{person} was born in {place} in {year}.", "In which year was {person} born?", "{year}", "{person}"),
    Form("{place}", "The {thing} of {place} was {verb} in {year}.", "When was the {thing} of {place} {verb}?", "{year}"),
    Form("{place}", "The {thing} in {place} is {colour}.", "Which colour is the {thing} in {place}?", "{colour}"),
    Form("{place}", "In {place} the market is on {day}.", "On which day is the market in {place}?", "{day}"),
    Form(
        "{person}",
        "{person}, the writer, spent every {month} in {place}.",
        "When was {person} in {place}?",
        "{month}",
        "{person}",
    ),
    Form("{person}", "{person} wrote a book on the {thing} of {place}.", "who wrote about the {thing} of {place}?", "{person}"),
    Form(
        "History of {place}",
        "The {thing}, {verb} in {year}, is the work of {person}, who came to {place} as a child.",
        "who {verb} the {thing} in {place}?",
        "{person}",
    ),
)


def facts(randomness: random.Random, words: Sequence[str]) -> Iterator[Fact]:
    """Without end; no name stands in two of them. `words` are words of novels."""
    names = _names(randomness, words)
    form = OWN if randomness.random() < 0.5 else randomness.choice(FORMS)
    while True:
        yield _fact(randomness, form, next(names), next(names))
        # Around a question stand mostly facts of its own kind, else the kind alone would tell the document
        if randomness.random() < 0.2:
            form = OWN if randomness.random() < 0.5 else randomness.choice(FORMS)


def name(randomness: random.Random, words: Sequence[str]) -> str:
    while True:
        if words and randomness.random() < 0.3:
            made = randomness.choice(words).capitalize()
        else:
            made = "".join(map(randomness.choice, (BEGINNINGS, MIDDLES, ENDS)))
        if not TASKS_OWN.fullmatch(made):
            return made


def _names(randomness: random.Random, words: Sequence[str]) -> Iterator[str]:
    seen = set()
    while True:
        made = name(randomness, words)
        if made not in seen:
            seen.add(made)
            yield made


def _fact(randomness: random.Random, form: Form, place: str, surname: str) -> Fact:
    thing, verb = randomness.choice(THINGS).split()
    person = f"{randomness.choice(GIVEN_NAMES)} {surname}"
    values = {"thing": thing, "verb": verb, "place": place, "person": person, **_values(randomness)}
    title, sentence, asked, answer, name = (
        part.format(**values) for part in (form.title, form.fact, form.question, form.answer, form.name)
    )
    details = [detail.format(**_values(randomness)) for detail in randomness.sample(DETAILS, randomness.randint(0, 4))]
    # Mostly the fact stands first, as in the task
    details.insert(0 if randomness.random() < 0.7 else randomness.randint(0, len(details)), sentence)
    question = Question(asked, (answer,), Document(title, " ".join(details)))
    return Fact(question, sentence, len(form.fact.partition(form.answer)[0].format(**values)), name)


def _values(randomness: random.Random) -> dict[str, str]:
    return {
        "year": str(randomness.randint(1650, 1980)),
        "number": str(randomness.randint(2, 40)),
        "colour": randomness.choice(COLOURS),
        "day": randomness.choice(DAYS),
        "month": randomness.choice(MONTHS),
    }
