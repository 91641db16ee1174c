"""Questions that people asked, with a passage that answers each: those that trainings may read, and those they never do.

A third of the pages is held out, by a hash of the title.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lengthwise.tasks.material.documents import Document, Question, read_questions
from lengthwise.tasks.scoring import normalised

LONGEST_ANSWER = 80  # letters
MANY_PASSAGES = 40  # passages among which there are enough without the answer


@dataclass(frozen=True)
class Asked:
    """A question, and what is needed to choose passages around it."""

    question: Question
    standing: tuple[str, ...]  # its answers that stand in its passage as they are written
    plain_answers: tuple[str, ...]  # normalised
    plain_passage: str


def held_out_page(title: str) -> bool:
    return int(hashlib.sha256(f"title {title.strip().lower()}".encode()).hexdigest(), 16) % 3 == 0


def training_questions(path: Path) -> list[Asked]:
    """Those whose answer can be copied from the passage."""
    found = (_asked(question) for question in read_questions(path) if not held_out_page(question.gold.title))
    return [one for one in found if one.standing]


def held_out_questions(path: Path) -> list[Question]:
    return [question for question in read_questions(path) if held_out_page(question.gold.title)]


def others(randomness: random.Random, asked: Asked, all_asked: list[Asked]) -> Iterator[Document]:
    """Some passages of other questions, none of which holds an answer."""
    for one in randomness.sample(all_asked, min(MANY_PASSAGES, len(all_asked))):
        if one.question.gold != asked.question.gold and not any(a in one.plain_passage for a in asked.plain_answers):
            yield one.question.gold


def window(randomness: random.Random, text: str, answer: str, words: int) -> str:
    """About so many words of a text, the answer among them, anywhere."""
    before, _, after = " ".join(text.split()).partition(answer)
    left, right = before.split(" "), after.split(" ")
    spare = max(2, words - len(answer.split()))
    taken = min(len(left), max(randomness.randint(0, spare), spare - len(right)))
    return (" ".join(left[len(left) - taken :]) + answer + " ".join(right[: max(1, spare - taken)])).strip()


def _asked(question: Question) -> Asked:
    text = " ".join(question.gold.text.split())
    standing = [answer for answer in question.answers if answer in text and len(answer) <= LONGEST_ANSWER]
    plain = tuple(map(normalised, question.answers))
    return Asked(question, tuple(standing), plain, normalised(question.gold.one_line))
