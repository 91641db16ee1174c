"""Facts on places and people that do not exist, in names that the task of evaluation cannot make, and questions on them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lengthwise.tasks.material import documents
from lengthwise.tasks.material.documents import COLOURS, DAYS, DETAILS, MONTHS, THINGS, Document, Question

# Syllables, given names and forms of facts: those of the task of evaluation are not among them, but for its one form
_MADE_UP = json.loads(Path(__file__).with_name("made_up.json").read_text(encoding="utf-8"))
BEGINNINGS, MIDDLES, ENDS = _MADE_UP["beginnings"].split(), _MADE_UP["middles"], _MADE_UP["ends"].split()
GIVEN_NAMES = (*documents.GIVEN_NAMES, *_MADE_UP["given_names"].split())
TASKS_NAMES = re.compile(
    f"(?:{'|'.join(documents.BEGINNINGS)})(?:{'|'.join(documents.MIDDLES)})*(?:{'|'.join(documents.ENDS)})"
)


@dataclass(frozen=True)
class Form:
    """What a document tells and what is asked, with places for {thing}, {verb}, {place}, {person}, {year} and so on."""

    title: str
    fact: str
    question: str
    answer: str


@dataclass(frozen=True)
class Fact:
    """A question, and the sentence of its document that answers it."""

    question: Question
    sentence: str


TASKS_FORM = Form(*_MADE_UP["tasks_form"])
FORMS = tuple(Form(*parts) for parts in _MADE_UP["forms"])


def made_up_facts(randomness: random.Random, words: Sequence[str], as_the_task: float = 0.5) -> Iterator[Fact]:
    """Without end, a share of them in the task's form; no name stands in two of them. `words` are words of novels."""
    names = _names(randomness, words)
    form = TASKS_FORM if randomness.random() < as_the_task else randomness.choice(FORMS)
    while True:
        yield _fact(randomness, form, next(names), next(names))
        # Around a question stand mostly facts of its own kind, else the kind alone would tell the document
        if randomness.random() < 0.2:
            form = TASKS_FORM if randomness.random() < as_the_task else randomness.choice(FORMS)


def made_up_name(randomness: random.Random, words: Sequence[str]) -> str:
    while True:
        if words and randomness.random() < 0.3:
            made = randomness.choice(words).capitalize()
        else:
            made = "".join(map(randomness.choice, (BEGINNINGS, MIDDLES, ENDS)))
        if not TASKS_NAMES.fullmatch(made):
            return made


def _names(randomness: random.Random, words: Sequence[str]) -> Iterator[str]:
    seen = set()
    while True:
        made = made_up_name(randomness, words)
        if made not in seen:
            seen.add(made)
            yield made


def _fact(randomness: random.Random, form: Form, place: str, surname: str) -> Fact:
    thing, verb = randomness.choice(THINGS).split()
    person = f"{randomness.choice(GIVEN_NAMES)} {surname}"
    values = {"thing": thing, "verb": verb, "place": place, "person": person, **_random_values(randomness)}
    title, sentence, asked, answer = (part.format(**values) for part in (form.title, form.fact, form.question, form.answer))
    details = [detail.format(**_random_values(randomness)) for detail in randomness.sample(DETAILS, randomness.randint(0, 4))]
    # Mostly the fact stands first, as in the task
    details.insert(0 if randomness.random() < 0.7 else randomness.randint(0, len(details)), sentence)
    question = Question(asked, (answer,), Document(title, " ".join(details)))
    return Fact(question, sentence)


def _random_values(randomness: random.Random) -> dict[str, str]:
    return {
        "year": str(randomness.randint(1650, 1980)),
        "number": str(randomness.randint(2, 40)),
        "colour": randomness.choice(COLOURS),
        "day": randomness.choice(DAYS),
        "month": randomness.choice(MONTHS),
    }
