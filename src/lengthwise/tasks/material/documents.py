"""Questions that one document answers: out of a file in the layout of Lost in the Middle, or made up without end.

A line of a file has `question`, `answers` (each of them right) and `ctxs`: documents with `title` and `text`, the one with the
answer marked `isgold`. Made-up documents tell who built what in places that do not exist; no name stands in two of them.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lengthwise.common.files import write_whole
from lengthwise.errors import require
from lengthwise.tasks.material import word_lists
from lengthwise.tasks.material.case_files import Case, cases
from lengthwise.tasks.scoring import normalised

BEGINNINGS, MIDDLES, ENDS, GIVEN_NAMES = word_lists("documents", "beginnings", "middles", "ends", "given_names")
THINGS, DETAILS, LIVES = word_lists("documents", "things", "details", "lives")
COLOURS, DAYS, MONTHS = word_lists("documents", "colours", "days", "months")
# What the one gap of a detail is filled with
VALUES: dict[str, Sequence[object]] = {
    "year": range(1650, 1981),
    "number": range(2, 41),
    "colour": COLOURS,
    "day": DAYS,
    "month": MONTHS,
}


@dataclass(frozen=True)
class Document:
    title: str
    text: str

    @property
    def one_line(self) -> str:
        """The document on one line, for a prompt."""
        return " ".join(f"({self.title}) {self.text}".split())


@dataclass(frozen=True)
class Question:
    text: str
    answers: tuple[str, ...]  # each of them right, the first one that tells something in front
    gold: Document  # the document with the answer


def made_up(randomness: random.Random, names: Iterator[str] | None = None) -> Iterator[Question]:
    """Questions without end; a place and a surname occur in one of them and in its document only."""
    names = names or _names(randomness)
    for place, surname in zip(names, names, strict=False):
        thing, verb = randomness.choice(THINGS).split()
        person = f"{randomness.choice(GIVEN_NAMES)} {surname}"
        details = [_detail(form, randomness) for form in randomness.sample(DETAILS, randomness.randint(1, 4))]
        text = " ".join([f"The {thing} of {place} was {verb} by {person}.", *details])
        yield Question(f"Who {verb} the {thing} of {place}?", (person,), Document(f"The {thing} of {place}", text))


def two_hops(randomness: random.Random) -> Iterator[tuple[Question, tuple[Document, Document]]]:
    """Questions without end, each with two documents: the first leads to the second, which answers it."""
    names = _names(randomness)
    for question, town in zip(made_up(randomness, names), names, strict=False):
        (person,) = question.answers
        about = question.text.removeprefix("Who ").removesuffix("?")
        text = " ".join([f"{person} came from {town}.", _detail(randomness.choice(LIVES), randomness)])
        asked = Question(f"Where did the person who {about} come from?", (town,), question.gold)
        yield asked, (question.gold, Document(person, text))


def read_questions(path: Path) -> list[Question]:
    """A file's questions, each with its gold document alone."""
    questions = []
    for case in cases(Path(path)):
        documents, gold = documents_of(case)
        require(gold is not None, f"{case.place}: none of its 'ctxs' is marked 'isgold', so no document is known to answer it")
        questions.append(Question(*question_of(case), documents[gold or 0]))
    return questions


def write_questions(path: Path, questions: Sequence[Question]) -> None:
    """Write a file from which `read_questions` reads the same questions."""
    lines = [{"question": q.text, "answers": q.answers, "ctxs": [{**asdict(q.gold), "isgold": True}]} for q in questions]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(line) + "\n" for line in lines))


def question_of(case: Case) -> tuple[str, tuple[str, ...]]:
    """The question of a case and its right answers."""
    text = case.get("question", str, "what is asked (or 'prompt' and 'target', in a file of your own)").strip()
    answers = case.get("answers", list, "a list of right answers")
    telling = [str(answer) for answer in answers if normalised(str(answer))]
    require(bool(telling), f"{case.place}: 'answers' is {answers}; at least one must hold more than articles and punctuation")
    return text if text.endswith("?") else f"{text}?", tuple(telling)


def documents_of(case: Case) -> tuple[list[Document], int | None]:
    """The documents of a case in their order, and the index of the one with the answer; None where none is marked."""
    listed = case.get("ctxs", list, "a list of documents with 'title' and 'text'")
    require(
        bool(listed) and all(isinstance(entry, dict) for entry in listed), f"{case.place}: 'ctxs' should be a list of documents"
    )
    entries = [Case(f"{case.place}, document {at}", entry) for at, entry in enumerate(listed)]
    documents = [Document(entry.get("title", str, "a title"), entry.get("text", str, "a text")) for entry in entries]
    return documents, next((at for at, entry in enumerate(listed) if entry.get("isgold") is True), None)


def _names(randomness: random.Random) -> Iterator[str]:
    """Names without end, none twice: once all are used a syllable in the middle makes new ones, then another."""
    for syllables in itertools.count():
        for middle in itertools.product(MIDDLES, repeat=syllables):
            names = [f"{first}{''.join(middle)}{last}" for first in BEGINNINGS for last in ENDS]
            yield from randomness.sample(names, len(names))


def _detail(form: str, randomness: random.Random) -> str:
    field = form.partition("{")[2].partition("}")[0]
    return form.format(**{field: randomness.choice(VALUES[field])})
