"""Whether records add up: the seed is the run's, and a score is that of its prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from lengthwise.errors import BadInput
from lengthwise.records.append_only import DONE_AGAIN
from lengthwise.records.config import Config
from lengthwise.records.record import Record

Score = Callable[[str, str], float]  # (prediction, target)
ROUNDING = 1e-6


def check_consistent(records: Iterable[Record], path: Path, config: Config, scores: Mapping[str, Score]) -> None:
    """Refuse the lines of `path` that do not go with the run, or whose score is not what `scores` give, by task."""
    seed = config["settings"].get("seed")
    wrong = []  # (number of the line, its score, that of its prediction)
    for number, record in enumerate(records, 1):
        if seed not in (None, record.seed):
            damaged = f"line {number} of {path} is damaged: its 'seed' is {record.seed}, and the run's is {seed}"
            raise BadInput(f"{damaged}; {DONE_AGAIN}")
        if (score := scores.get(record.task)) is not None:
            expected = score(record.prediction, record.target)
            if abs(expected - record.score) > ROUNDING:
                wrong.append((number, record.score, expected))
    if wrong:
        number, told, expected = wrong[0]
        count = "1 line" if len(wrong) == 1 else f"{len(wrong):,} lines"
        raise BadInput(
            f"{path} has {count} with another score than the prediction's; the first is line {number}, which says {told:g} and "
            f"not {expected:g}; take them out, and what they held will be done again"
        )
