"""Where the plain model begins to fail, for a model whose training length is only what its config or its family says.

A T5 that was tuned on longer inputs keeps the training length of its pre-training. Asked at that length, at twice it and so on,
it shows how far it really reads. Its answers are those of the race, and more of the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from lengthwise.evaluation.recommendation.evidence import by_method
from lengthwise.evaluation.recommendation.exam import RACE, ROUNDS, Exam
from lengthwise.evaluation.recommendation.measure import Measure, Scores
from lengthwise.evaluation.recommendation.race import LEVEL, is_behind
from lengthwise.methods.spec import NONE

SAMPLES = ROUNDS[1]  # of a task, at each length
SHARE = 0.1  # of the time, at most


def scores_by_length(exam: Exam) -> dict[int, Scores]:
    """Scores of the plain model on the same tasks from the training length up to the length."""
    trained, length = exam.anatomy.train_length, exam.length
    lengths = [*takewhile(lambda n: n < length, (trained * 2**k for k in range(length.bit_length()))), length]
    return {n: by_method(exam.answers(RACE, {NONE: NONE}, [n], SAMPLES))[NONE] for n in lengths}


def forwards(exam: Exam) -> int:
    """About how many more forwards at the full length `scores_by_length` costs; the shorter ones are not worth counting."""
    return SAMPLES * len(exam.usable_tasks)


def first_fall(scores: Mapping[int, Scores]) -> int | None:
    """The first length from which on the model answers worse than at the first one by more than chance.

    Lengths are tested from the longest down until one is not worse: so each may have the whole level.
    """
    trained, *longer = sorted(scores)
    return min(takewhile(lambda n: is_behind(scores[n], scores[trained], LEVEL), reversed(longer)), default=None)


def fall_in_words(scores: Mapping[int, Scores], measure: Measure, source: str) -> str:
    """In a sentence or two, up to which length the plain model reads well."""
    trained, fall = min(scores), first_fall(scores)
    means = ", ".join(f"{measure.brief(mine)} at {n:,} tokens" for n, mine in sorted(scores.items()))
    begin = f"Its training length was taken for {trained:,}, {source}, which need not be so. The plain model: {means}; "
    if fall is None:
        return f"{begin}it does not fall behind by more than chance."
    best = max(n for n in scores if n < fall)
    hint = f" Up to {best:,} it needs no help: --train-length {best} leaves it alone there." if best > trained else ""
    return (
        f"{begin}it begins to fall between {best:,} and {fall:,}, there by {measure.gain(scores[fall], scores[trained])}.{hint}"
    )
