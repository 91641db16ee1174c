"""A recommendation in plain words, from fresh answers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from lengthwise.evaluation.recommendation.beyond import still_works
from lengthwise.evaluation.recommendation.evidence import by_method
from lengthwise.evaluation.recommendation.measure import Measure, Scored, Scores
from lengthwise.methods.spec import NONE, TRUNCATE

NAMES = {NONE: "the plain model", TRUNCATE: "truncation"}


@dataclass(frozen=True)
class Findings:
    """Everything that the sentences of a recommendation are made from."""

    winner: str  # of the race
    best: str  # what is recommended
    measure: Measure
    at_length: Sequence[Scored]  # fresh answers at the length
    inside: Sequence[Scored]  # and at the training length, where there are any
    longer: Sequence[Sequence[Scored]]  # and at longer lengths, of what is recommended
    memory: Mapping[str, int]  # most bytes that reading takes beside the weights, by method, where that was measured
    trained: int
    tasks: Mapping[str, float | None]
    asked: Sequence[str]  # tasks
    untried: Sequence[str]
    hurried: bool

    def words(self) -> tuple[str, ...]:
        """What to use, what it gains, what it costs, what was not tried; a sentence each."""
        by_name = by_method(self.at_length)
        scores = {name: by_name[name] for name in dict.fromkeys((NONE, TRUNCATE, self.winner)) if name in by_name}
        lines = [self._use(scores), *(self._gain(name, scores) for name in scores if name != self.best)]
        if self.inside and self.best not in (NONE, TRUNCATE):
            lines.append(self._inside())
        lines += self._longer(scores[self.best])
        took = {name: fmean(answer.seconds for answer in self.at_length if answer.method == name) for name in scores}
        if self.best != NONE and took[NONE] > 0:
            times = f"{took[self.best] / took[NONE]:.2f} times as long as the plain model's ({took[self.best]:.2g} s)"
            lines.append(f"{self.measure.doing} takes {times}{self._memory()}.")
        what = self.measure.asked
        fresh = f"{len(scores[self.best])} fresh {what}; {what} that chose it are not among them"
        lines.append(f"Asked: {', '.join(self.asked)}, {fresh}.")
        return (*lines, *self._left_out())

    def _use(self, scores: Mapping[str, Scores]) -> str:
        mean = self.measure.told(scores[self.best])
        if self.best == TRUNCATE:
            return f"Keep truncating to the last {self.trained:,} tokens: {mean}."
        if self.best == NONE:
            already = self.measure.reads_already(scores[NONE], scores.get(TRUNCATE))
            what = "reads this length already" if already else "is not helped by anything that was tried"
            return f"Use the plain model, which {what}: {mean}."
        return f"Use {self.best}: {mean}."

    def _gain(self, other: str, scores: Mapping[str, Scores]) -> str:
        gained = self.measure.gain(scores[self.best], scores[other])
        return f"Against {NAMES.get(other, other)}, {self.measure.brief(scores[other])}: {gained}."

    def _inside(self) -> str:
        inside = by_method(self.inside)
        plain = inside[NONE]
        mine, without = self.measure.brief(inside[self.best]), self.measure.brief(plain)
        told = f"At its training length, {self.trained:,} tokens: {mine}, and {without} without it"
        return (
            f"{told}." if any(plain) else f"{told}: it cannot do this there either, so the questions tell little of the length."
        )

    def _longer(self, scores: Scores) -> list[str]:
        works: list[tuple[str, str]] = []
        falls: list[tuple[str, str]] = []
        for answers in self.longer:
            mine = by_method(answers)[self.best]
            length_and_share = f"{answers[0].length:,} tokens", f"{self.measure.brief(mine)} ({len(mine)} {self.measure.asked})"
            (works if still_works(answers, fmean(scores)) else falls).append(length_and_share)
        lines = [f"It still answers {' and '.join(f'{share} at {length}' for length, share in works)}."] if works else []
        return lines + [f"At {length} it falls to {share}." for length, share in falls]

    def _memory(self) -> str:
        mine, plain = self.memory.get(self.best), self.memory.get(NONE)
        if not mine or not plain:
            return "; memory is not counted on this system"
        return f", and {mine / plain:.2f} times its memory beside the weights ({mine / 2**30:.2g} GiB)"

    def _left_out(self) -> list[str]:
        scores = {task: score for task, score in self.tasks.items() if task not in self.asked}
        unknown = [f"{task} ({100 * score:.0f} %)" for task, score in scores.items() if score is not None]
        lines = []
        if unknown:
            lines.append(f"Not asked, because the model cannot do them at its training length either: {', '.join(unknown)}.")
        if roomless := [task for task, score in scores.items() if score is None]:
            lines.append(f"Not asked, because the training length has no room for them: {', '.join(roomless)}.")
        if self.untried:
            lines.append(f"Not tried: {'; '.join(self.untried)}.")
        if self.hurried:
            lines.append(f"The time was short: give more --minutes for more methods and more {self.measure.asked}.")
        return lines
