"""What a recommendation rests on, as recipe.json keeps it and the report shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lengthwise.common.formats import Declared
from lengthwise.evaluation.recommendation.measure import Measure, Scored


@dataclass(frozen=True)
class Raced(Declared):
    """How far one method came in the race."""

    method: str
    mean: float | None  # in the measure's numbers; None where the model gave none
    n: int  # questions that it was asked
    out: str | None  # why it was asked no more, after these; None for those that came to the end


@dataclass(frozen=True)
class Confirmed(Declared):
    """Fresh answers of one method to one task at one length."""

    method: str
    task: str
    length: int
    mean: float | None  # in the measure's numbers, with the ends of its 95 % interval
    low: float | None
    high: float | None
    n: int


def raced(methods: Iterable[str], answers: Iterable[Scored], measure: Measure, out: dict[str, str]) -> Iterator[Raced]:
    """The standing of each method after a round; `out` says why some are out of the race."""
    scores = by_method(answers)
    for name in methods:
        mean, *_ = measure.interval(scores[name]) or (None,)
        yield Raced(name, mean, len(scores[name]), out.get(name))


def confirmed(answers: Sequence[Scored], measure: Measure) -> Iterator[Confirmed]:
    """Mean and interval of every method, task and length."""
    for method, task, length in dict.fromkeys((answer.method, answer.task, answer.length) for answer in answers):
        scores = [answer.score for answer in answers if (answer.method, answer.task, answer.length) == (method, task, length)]
        mean, low, high = measure.interval(scores) or (None, None, None)
        yield Confirmed(method, task, length, mean, low, high, len(scores))


def by_method(answers: Iterable[Scored]) -> dict[str, list[float]]:
    """Scores by method, in an order of questions that all methods share."""
    scores: dict[str, list[float]] = {}
    for answer in sorted(answers, key=lambda answer: (answer.task, answer.length, answer.index)):
        scores.setdefault(answer.method, []).append(answer.score)
    return scores
