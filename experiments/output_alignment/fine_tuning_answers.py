"""BABILong's answers by length and by depth: shares that are right, and what alpha changes, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from experiments.output_alignment.fine_tuning_compared import Mean, mean_of
from experiments.output_alignment.fine_tuning_records import Answers

SCORES = {"generated": "written", "likeliest": "likeliest"}  # and in words


Key = TypeVar("Key", int, float)


@dataclass(frozen=True)
class Share:
    """Percent right, of one score in one row of a table."""

    without: float  # with alpha 0
    with_loss: float
    more: Mean  # percentage points, over seeds; the questions are the same for all


def by_length(answers: Sequence[Answers]) -> dict[int, list[Answers]]:
    return _grouped([one for one in answers if one.depth is None], lambda one: one.factor)


def by_depth(answers: Sequence[Answers]) -> dict[float, list[Answers]]:
    return _grouped([one for one in answers if one.depth is not None], lambda one: one.depth or 0.0)


def share(answers: Sequence[Answers], score: str, alpha: float) -> Share | None:
    """None where no seed has both."""
    both = [
        {one.seed: _percent(answers, score, value, one.seed) for one in answers if one.alpha == value} for value in (0, alpha)
    ]
    without, with_loss = both
    seeds = [seed for seed in with_loss if seed in without]
    if not seeds:
        return None
    more = mean_of([with_loss[seed] - without[seed] for seed in seeds])
    return Share(fmean(without[seed] for seed in seeds), fmean(with_loss[seed] for seed in seeds), more)


def chance(answers: Sequence[Answers]) -> float:
    """Percent, of `likeliest`."""
    return 100 * fmean(one.chance for one in answers)


def _percent(answers: Sequence[Answers], score: str, alpha: float, seed: int) -> float:
    marks = [mark for one in answers if (one.alpha, one.seed) == (alpha, seed) for mark in getattr(one, score)]
    return 100 * fmean(marks)


def _grouped(answers: Sequence[Answers], by: Callable[[Answers], Key]) -> dict[Key, list[Answers]]:
    return {key: [one for one in answers if by(one) == key] for key in sorted({by(one) for one in answers})}
