"""bAbI (Weston et al. 2015): small stories of facts with a question, and the files they come in.

A line of a file is a number and a fact, or a number, a question, its answer and the numbers of the facts that support it, with
tabs between the last three. Number 1 begins a story; a question is about all facts of its story that stand before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lengthwise.common.text import read_texts
from lengthwise.errors import BadInput, require


@dataclass(frozen=True)
class Story:
    """Facts in their order, and what is asked about them."""

    facts: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]  # places in `facts` of those that the answer follows from
    labels: tuple[str, ...] = ()  # all answers of the task that the story belongs to


def read_stories(path: str | Path) -> list[Story]:
    """The stories of one task's file, one a question; the labels are all answers of the file."""
    stories = list(_stories(path, read_texts([path]).splitlines()))
    require(
        bool(stories), f"{path} holds no questions; a bAbI file has lines such as '3<space>Where is Mary?<tab>office<tab>1'"
    )
    labels = tuple(sorted({story.answer for story in stories}))
    return [replace(story, labels=labels) for story in stories]


def _stories(path: str | Path, lines: list[str]) -> Iterator[Story]:
    facts: dict[int, str] = {}
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        number, _, rest = line.strip().partition(" ")
        require(number.isdecimal(), f"line {at} of {path} does not begin with a number: {line[:40]!r}; is this a bAbI file?")
        if number == "1":
            facts = {}
        if "\t" not in rest:
            facts[int(number)] = rest.strip()
            continue
        question, answer, support = _parse_question(path, at, rest)
        places = {known: place for place, known in enumerate(facts)}
        unknown = [fact for fact in support if fact not in places]
        require(not unknown, f"line {at} of {path}: the question follows from {unknown}, which is no fact before it")
        yield Story(tuple(facts.values()), question, answer, tuple(places[fact] for fact in support))


def _parse_question(path: str | Path, at: int, rest: str) -> tuple[str, str, list[int]]:
    parts = [part.strip() for part in rest.split("\t")]
    try:
        question, answer, support = parts
        numbers = [int(number) for number in support.split()]
    except ValueError:
        raise BadInput(
            f"line {at} of {path} is no question, answer and numbers of facts with tabs between: {rest[:60]!r}"
        ) from None
    require(bool(question and answer), f"line {at} of {path}: a question needs an answer, not {rest[:60]!r}")
    return question, answer, numbers
