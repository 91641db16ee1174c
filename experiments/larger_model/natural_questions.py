"""Questions of people, each with a passage that answers it; those on a third of the pages are never trained on.

    python -m experiments.larger_model.natural_questions --nq nq-open-oracle.jsonl.gz --out held_out.jsonl

writes the others' lines, for evaluation. A page is held out by a hash of its title, so no passage is on both sides.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments._lib.command import exit_status
from lengthwise.errors import require
from lengthwise.tasks.material.case_files import cases
from lengthwise.tasks.material.documents import Document, Question, documents_of, question_of, read_questions
from lengthwise.tasks.scoring import normalised

LONGEST_ANSWER = 80  # letters
MANY = 40  # passages among which there are enough without the answer


@dataclass(frozen=True)
class Asked:
    """A question, and what is needed to choose passages around it."""

    question: Question
    standing: tuple[str, ...]  # its answers that stand in its passage as they are written
    plain_answers: tuple[str, ...]  # normalised
    plain_passage: str


def held_out(title: str) -> bool:
    return int(hashlib.sha256(f"title {title.strip().lower()}".encode()).hexdigest(), 16) % 3 == 0


def training(path: Path) -> list[Asked]:
    """Those whose answer can be copied from the passage."""
    found = (_asked(question) for question in read_questions(path) if not held_out(question.gold.title))
    kept = [one for one in found if one.standing]
    require(len(kept) > 1, f"{path} holds {len(kept)} questions to train on; give one with more (--nq)")
    return kept


def evaluation(path: Path) -> list[Question]:
    return [question for question in read_questions(path) if held_out(question.gold.title)]


def others(randomness: random.Random, asked: Asked, all_asked: list[Asked]) -> Iterator[Document]:
    """Some passages of other questions, none of which holds an answer."""
    for one in randomness.sample(all_asked, min(MANY, len(all_asked))):
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
    return Asked(question, tuple(standing), plain, normalised(question.gold.told))


def write_held_out(source: Path, out: Path) -> int:
    """The lines of held-out pages, as they are; returns their number."""
    lines = []
    for case in cases(source):
        documents, gold = documents_of(case)
        question_of(case)
        require(gold is not None, f"{case.place}: none of its 'ctxs' is marked 'isgold'")
        if held_out(documents[gold or 0].title):
            lines.append(json.dumps(case.fields) + "\n")
    out.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nq", type=Path, required=True, help="JSON lines with question, answers and ctxs, plain or .gz")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    return exit_status(lambda: print(f"{write_held_out(given.nq, given.out)} questions in {given.out}"))


if __name__ == "__main__":
    sys.exit(main())
