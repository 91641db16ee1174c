"""A recommendation in plain words, from fresh answers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from lengthwise.methods.spec import NONE, TRUNCATE
from lengthwise.records import Record
from lengthwise.records.intervals import mean_interval, paired_interval

NAMES = {NONE: "the plain model", TRUNCATE: "truncation"}


def words(
    winner: str,
    best: str,
    fresh: Sequence[Record],
    length: int,
    trained: int,
    tasks: Mapping[str, float | None],
    asked: Sequence[str],
    untried: Sequence[str],
    hurried: bool,
    own: bool,
) -> tuple[str, ...]:
    """What to use, what it gains, what it costs, what was not tried; a sentence each."""
    long = [record for record in fresh if own or record.length == length]
    asked_of = {record.method for record in long}
    scores = {name: _scores(long, name) for name in dict.fromkeys((NONE, TRUNCATE, winner)) if name in asked_of}
    said = [_use(best, "your questions" if own else f"questions at {length:,} tokens", trained, scores)]
    said += [_gain(best, name, scores) for name in scores if name != best]
    if not own and best not in (NONE, TRUNCATE):
        said.append(_short(best, fresh, trained))
    took = {name: fmean(record.seconds for record in long if record.method == name) for name in scores}
    if best != NONE and took[NONE] > 0:
        said.append(f"An answer takes {took[best] / took[NONE]:.2f} times as long as the plain model's ({took[best]:.2g} s).")
    said.append(f"Asked: {', '.join(asked)}, {len(scores[best])} fresh questions; questions that chose it are not among them.")
    if left := [f"{task} ({100 * score:.0f} %)" for task, score in tasks.items() if task not in asked and score is not None]:
        said.append(f"Not asked, because the model cannot do them at its training length either: {', '.join(left)}.")
    if untried:
        said.append(f"Not tried: {'; '.join(untried)}.")
    if hurried:
        said.append("The time was short: give more --minutes for more methods and more questions.")
    return tuple(said)


def _use(best: str, questions: str, trained: int, scores: Mapping[str, Sequence[float]]) -> str:
    mean, low, high = mean_interval(scores[best])
    told = f"{_percent(mean)} of {questions} right (95 % interval {_percent(low)} to {_percent(high)})"
    if best == TRUNCATE:
        return f"Keep truncating to the last {trained:,} tokens: {told}."
    if best == NONE:
        what = "reads this length already" if mean >= 0.85 else "is not helped by anything that was tried"
        return f"Use the plain model, which {what}: {told}."
    return f"Use {best}: {told}."


def _gain(best: str, other: str, scores: Mapping[str, Sequence[float]]) -> str:
    gained = [mine - theirs for mine, theirs in zip(scores[best], scores[other], strict=True)]
    mean, low, high = paired_interval(gained)
    points = f"{100 * mean:+.0f} points (95 % interval {100 * low:+.0f} to {100 * high:+.0f})"
    return f"Against {NAMES.get(other, other)}, {_percent(fmean(scores[other]))}: {points}."


def _short(best: str, fresh: Sequence[Record], trained: int) -> str:
    inside = [record for record in fresh if record.length == trained]
    mine, plain = (fmean(_scores(inside, name)) for name in (best, NONE))
    return f"At {trained:,} tokens, where the model needs no help: {_percent(mine)}, and {_percent(plain)} without it."


def _scores(records: Sequence[Record], method: str) -> list[float]:
    chosen = [record for record in records if record.method == method]
    return [record.score for record in sorted(chosen, key=lambda record: (record.task, record.length, record.index))]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
