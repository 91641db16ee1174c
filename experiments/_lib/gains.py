"""Methods against one another on the same samples, task by task: at every length, and at all beyond training together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import product
from typing import Any

from experiments._lib.measure import Answers
from experiments._lib.paired import paired

PLAIN, PMAX = "none", "pmax-model"


def gains(answers: Answers) -> list[dict[str, Any]]:
    """Every method over the plain model."""
    return _differences(answers, ((name, PLAIN) for name in answers.methods if name != PLAIN))


def pmax_over(answers: Answers) -> list[dict[str, Any]]:
    """P_max alignment over every other method; the plain model is among the gains."""
    return _differences(answers, ((PMAX, name) for name in answers.methods if name not in (PLAIN, PMAX)))


def _differences(answers: Answers, pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """The length None is all beyond the training length together: each sample's mean over those that a task was asked at."""
    rows = []
    for (method, over), task in product(pairs, answers.tasks):
        lengths = sorted({cell.length for cell in answers.cells if cell.task == task and not cell.data})
        beyond = [length for length in lengths if length > answers.train_length]
        scores = {length: [answers.scores(name, [task], [length]) for name in (method, over)] for length in lengths}
        found = {length: paired(*both) for length, both in scores.items()}
        if len(beyond) > 1:
            found[None] = paired(*(answers.means(name, [task], beyond, len(beyond)) for name in (method, over)))
        about = {"method": method, "over": over, "task": task}
        rows += [{**about, "length": length, **asdict(pair)} for length, pair in found.items() if pair is not None]
    return rows
