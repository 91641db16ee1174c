"""The exam of a recommendation: what one model is asked at one length, here questions of tasks or of the user's own."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import nn

from lengthwise.calibration.answer_cases import DEFAULT_TASKS, CaseMaker
from lengthwise.calibration.calibrate import asked_tasks
from lengthwise.common.progress import TimeIsUp, progress
from lengthwise.errors import NoRoom, require
from lengthwise.evaluation.evaluate import evaluate
from lengthwise.evaluation.recommendation.measure import Measure, Scored, ShareRight
from lengthwise.methods.recipe import Part
from lengthwise.methods.spec import NONE
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.extend import extend
from lengthwise.models.patches import evaluating
from lengthwise.records import Record
from lengthwise.tasks import find_task, without_groups
from lengthwise.tasks.making import read_samples
from lengthwise.tasks.material.documents import write_questions

# Share of the time to look for tasks, by how many times the training length is asked for: each that is found costs so much more
LOOKING = 0.1
USABLE = 0.3  # least mean score at the training length of a task that can show what is lost at length
ROUNDS = (4, 8, 16, 32)  # samples of a task after each round of the race
FRESH = (8, 16, 32, 64)  # samples of a task that confirm, as many as there is time for
FRESH_SEED = 500_009  # far from the race's
RACE, CONFIRM = "race", "confirm"  # folders of the answers that choose, and of those that are reported
FEWEST_QUESTIONS = 4  # of the user's: two of each half, because the one asked stands among documents of the others


class Half(NamedTuple):
    """A file with half of the user's questions, and how many it has."""

    path: Path
    questions: int


@dataclass(frozen=True)
class Exam(ABC):
    """What one model is asked at one length, and by which measure its answers are compared."""

    model: nn.Module
    tokenizer: Any
    anatomy: Anatomy
    length: int
    seed: int
    folder: Path
    show_progress: bool

    @property
    @abstractmethod
    def measure(self) -> Measure:
        """How its scores are compared and put into words."""

    @property
    @abstractmethod
    def usable_tasks(self) -> list[str]:
        """Tasks that the model can do at its training length: only these show what is lost at length."""

    @property
    @abstractmethod
    def tasks(self) -> dict[str, float | None]:
        """Tasks by name with the plain model's mean score at the training length; None where that is not known."""

    @property
    @abstractmethod
    def options(self) -> Sequence[str]:
        """Options of `lengthwise recommend` that make the same exam."""

    @property
    def has_own_lengths(self) -> bool:
        """Whether its questions are whole prompts of the user's, which have their own lengths."""
        return False

    @property
    def can_be_longer(self) -> bool:
        """Whether it can be held at greater lengths, too."""
        return False

    @abstractmethod
    def answers(
        self, run: str, methods: Mapping[str, Sequence[Part] | str], lengths: Sequence[int], samples: int
    ) -> Sequence[Scored]:
        """Scored answers, of the race or of the confirmation (`run`); those recorded before are not asked again."""

    def first_answer(self) -> float | None:
        """Seconds of one answer at the training length; None where nothing is asked there before the race."""
        return None

    @property
    def unasked(self) -> Sequence[str]:
        """Tasks for which there was no time to see whether the model can do them."""
        return []

    def nats(self, methods: Mapping[str, Sequence[Part] | str]) -> dict[str, float]:
        """-ln p of right answers at the length under each method that there is time for, on a few prompts.

        Empty where that is not measured.
        """
        return {}

    @abstractmethod
    def material(self, statistic: str, sequences: int | None) -> dict[str, Any]:
        """Keywords for `calibrate`: its material, nothing of which is used to confirm."""


@dataclass(frozen=True)
class QuestionExam(Exam):
    """An exam of questions with answers: made for tasks, or the user's own."""

    given: tuple[str, ...]  # tasks that the user named
    data: str | Path | None
    batch_tokens: int | None
    name: str
    look_until: float = math.inf  # by the monotonic clock: from then on one task that the model can do is enough

    @property
    def measure(self) -> Measure:
        return ShareRight("your questions" if self.has_own_lengths else f"questions at {self.length:,} tokens")

    @property
    def options(self) -> Sequence[str]:
        tasks = [word for task in self.given for word in ("--task", task)]
        return tasks if self.data is None else [*tasks, "--data", str(self.data)]

    @property
    def has_own_lengths(self) -> bool:
        """Whether the user's file holds whole prompts."""
        return self.data is not None and find_task(self.given[0] if self.given else "answer").take is None

    @property
    def can_be_longer(self) -> bool:
        return not self.has_own_lengths

    def answers(
        self, run: str, methods: Mapping[str, Sequence[Part] | str], lengths: Sequence[int], samples: int
    ) -> Sequence[Scored]:
        return self.records(run, methods, self.usable_tasks, lengths, samples)

    def records(
        self, run: str, methods: Mapping[str, Sequence[Part] | str], tasks: Sequence[str], lengths: Sequence[int], samples: int
    ) -> list[Record]:
        """`answers` in one of the two run directories, each with its first score.

        Of the user's own cases and questions every second one is for the race, and the others confirm.
        """
        half = self._halves.get(run)
        records = evaluate(
            self.model,
            self.tokenizer,
            dict(methods),
            list(tasks),
            () if self.has_own_lengths else lengths,
            2 * samples if self.has_own_lengths else samples if half is None else min(samples, half.questions),
            self.seed + (FRESH_SEED if run == CONFIRM else 0),
            self.folder / run,
            data=self.data if half is None else half.path,
            train_length=self.anatomy.train_length,
            batch_tokens=self.batch_tokens,
            name=self.name,
            sharpness=False,
            show_progress=self.show_progress,
        )
        first = [record for record in records if record.task in without_groups(tasks)]
        if not self.has_own_lengths:
            return first
        # Those that confirm are missed now, not after the race
        alone = f"{self.data} has one case; at least 2 are needed, some to choose by and others to confirm"
        require(any(record.index % 2 for record in first), alone)
        return [record for record in first if record.index % 2 == (run == CONFIRM)]

    @cached_property
    def _halves(self) -> dict[str, Half]:
        """By run, a file with half of the user's questions: one half chooses, the other confirms. Empty for whole prompts."""
        if self.data is None or self.has_own_lengths:
            return {}
        (task,) = self.given
        questions = find_task(task).of(Path(self.data)).samples.keywords.get("questions")  # type: ignore[attr-defined]
        if questions is None:
            return {}
        needed = f"at least {FEWEST_QUESTIONS} are needed, some to choose by and others to confirm"
        require(len(questions) >= FEWEST_QUESTIONS, f"the questions in {self.data} are {len(questions)}; {needed}")
        halves = {}
        for first, run in enumerate((RACE, CONFIRM)):
            half = questions[first::2]
            halves[run] = Half(self.folder / f"{run}_questions.jsonl", len(half))
            write_questions(halves[run].path, half)
        return halves

    def nats(self, methods: Mapping[str, Sequence[Part] | str]) -> dict[str, float]:
        if self.has_own_lengths:
            return {}
        data = None if self.data is None else self._halves[RACE].path if self._halves else Path(self.data)
        tasks = asked_tasks(tuple(self.usable_tasks), data)
        nats, trained = dict[str, float](), self.anatomy.train_length
        with (
            suppress(TimeIsUp),
            progress("no answer is right: how likely is it?", len(methods), self.show_progress) as tick,
            torch.no_grad(),
        ):
            cases = CaseMaker(self.model, self.tokenizer, self.anatomy, tasks, data, "", ROUNDS[0], self.seed, tick)
            groups = cases.task_groups(self.length, trained, dict.fromkeys(tasks, 1.0))
            for name, parts in methods.items():
                with extend(self.model, parts, train_length=trained), evaluating(self.model):
                    nats[name] = fmean(float(case.loss(self.model)) for group in groups for case in group.cases)
                tick(1, name)
        return nats

    @cached_property
    def tasks(self) -> dict[str, float | None]:
        """As in `Exam`; None where a task has no room at the training length, too."""
        if self.data is not None:
            require(len(self.given) <= 1, f"--data holds cases of one task; give one --task, not {len(self.given)}")
            task = self.given[0] if self.given else "answer"
            if self.has_own_lengths:
                self._require_long(task, Path(self.data))
            return {task: None}
        scores: dict[str, float | None] = {}
        for task in self.given or DEFAULT_TASKS:
            if not self.given and self._is_late and any(map(_is_usable, scores.values())):
                break
            try:
                scores[task] = self._score_at_training_length(task)
            except NoRoom:
                scores[task] = None
        return scores

    def first_answer(self) -> float | None:
        tasks = (*self.given, *DEFAULT_TASKS)[:1] if self.data is None else ()
        with suppress(NoRoom):
            for record in self.records(RACE, {NONE: NONE}, tasks, [self.anatomy.train_length], 1) if tasks else []:
                return record.seconds
        return None

    @property
    def unasked(self) -> Sequence[str]:
        return [task for task in DEFAULT_TASKS if not self.given and self.data is None and task not in self.tasks]

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self.look_until

    def _score_at_training_length(self, task: str) -> float:
        """The plain model's mean score, of fewer questions where time is short."""

        def mean(samples: int) -> float:
            records = self.records(RACE, {NONE: NONE}, [task], [self.anatomy.train_length], samples)
            return fmean(record.score for record in records)

        first = mean(ROUNDS[0])
        return first if self._is_late else mean(ROUNDS[1])

    def _require_long(self, task: str, data: Path) -> None:
        """Refuse a file all of whose cases the model reads as it is: they cannot show what helps."""
        longest = max((sample.tokens for sample in read_samples(task, find_task(task), self.tokenizer, data)), default=0)
        short = f"the cases in {data} have at most {longest} tokens, within the training length {self.anatomy.train_length}"
        require(longest > self.anatomy.train_length, f"{short}; give longer ones, or the right --train-length")

    @property
    def usable_tasks(self) -> list[str]:
        """As in `Exam`; tasks that the user named are all taken."""
        if self.data is not None or self.given:
            return list(self.tasks)
        known = [task for task, score in self.tasks.items() if _is_usable(score)]
        scores = ", ".join(f"{task} {100 * score:.0f} %" for task, score in self.tasks.items() if score is not None)
        trained = self.anatomy.train_length
        require(
            bool(known),
            f"this model can do none of our tasks at its training length {trained} ({scores or 'no task has room there'}): "
            "they cannot show what helps; give questions of your own (--data FILE), a text (--text FILE), or --task NAME",
        )
        return known

    def material(self, statistic: str, sequences: int | None) -> dict[str, Any]:
        # The user's own cases are for the race and to confirm
        fits = statistic == "answers" and not self.has_own_lengths
        data = self._halves[RACE].path if fits and self._halves else self.data
        return {"sequences": sequences} | ({"task": self.usable_tasks, "data": data} if fits else {})


def _is_usable(score: float | None) -> bool:
    """Whether the model can do a task at its training length, by its mean score there."""
    return score is not None and score >= USABLE
