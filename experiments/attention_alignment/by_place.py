"""Answers by the number of documents and the place of the gold one.

A question is asked at every place, so its answers there depend on each other: means over places are taken question by question,
and their intervals are over questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.attention_alignment.paired import Paired, compared, paired_means
from experiments.attention_alignment.paper_questions import POSITIONS
from experiments.attention_alignment.results import Results, Runs, read_results
from lengthwise.records import mean_interval

NAME = "questions"
TASK = "multi_document_qa"


def task_of(documents: int, position: int) -> str:
    """What such a place is called in our records."""
    return f"{documents}-{position}"


def runs_of(name: str) -> Runs:
    """The run directories of one set of questions."""
    tasks = [task_of(documents, position) for documents, positions in POSITIONS.items() for position in positions]
    return {f"{name}/{task}": {TASK: task} for task in tasks}


def read_answers(folder: Path, name: str, train_length: int) -> Results:
    return read_results(folder, train_length, runs_of(name))


@dataclass(frozen=True)
class Mean:
    """Percent right over all places, and its 95 % interval over questions; 0 to 1."""

    mean: float
    low: float
    high: float
    n: int  # questions


def numbers(results: Results) -> list[int]:
    """Of documents, those that were asked about."""
    return [n for n, positions in POSITIONS.items() if any(task_of(n, at) in results.tasks for at in positions)]


def tokens(results: Results, documents: int) -> int:
    """About how many tokens so many documents have."""
    return next(key.length for key in results.cells if key.task.startswith(f"{documents}-"))


def scores(results: Results, method: str, documents: int, positions: Iterable[int] | None = None) -> dict[int, float]:
    """By question: the share of the places at which it was answered rightly, of those that were asked at all of them."""
    wanted = POSITIONS[documents] if positions is None else tuple(positions)
    return results.means(method, [task_of(documents, at) for at in wanted], results.lengths, len(wanted))


def mean(results: Results, method: str, documents: int) -> Mean | None:
    of_questions = list(scores(results, method, documents).values())
    return Mean(*mean_interval(of_questions), len(of_questions)) if of_questions else None


def gain(results: Results, method: str, other: str, documents: int, positions: Iterable[int] | None = None) -> Paired | None:
    """`method` less `other` on the same questions, at some places or at all."""
    wanted = None if positions is None else tuple(positions)
    return compared(*(scores(results, one, documents, wanted) for one in (method, other)))


def middle_gain(results: Results, method: str, other: str, documents: int) -> Paired | None:
    """How much more `method` gains over `other` in the middle than at both ends: the paper expects more there."""
    first, *inner, last = POSITIONS[documents]

    def difference(positions: Iterable[int]) -> dict[int, float]:
        ours, theirs = (scores(results, one, documents, positions) for one in (method, other))
        return {index: score - theirs[index] for index, score in ours.items() if index in theirs}

    return paired_means(difference(inner), difference([first, last]))
