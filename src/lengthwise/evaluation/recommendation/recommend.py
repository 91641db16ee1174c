"""Try what could help on this model, and say what does.

    recipe = lengthwise.recommend(model, tokenizer, length=16000)
    with lengthwise.extend(model, recipe): model.generate(...)

1. Which tasks can the model do at its training length? Only these can show what is lost at length.
2. Methods that this model allows are raced on the same questions at the length, and at the training length, where nothing may
   be lost; temperatures that must be calibrated first join as far as the time allows.
3. The winner, truncation and the plain model answer fresh questions, which alone are reported.

The questions of the race and those that confirm stand in two run directories, `race` and `confirm`; started again with the same
`out`, a recommendation goes on with what is there.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import nn

from lengthwise.calibration.answer_cases import DEFAULT_TASKS
from lengthwise.calibration.calibrate import calibrate
from lengthwise.errors import BadInput, NoRoom, is_out_of_memory, require
from lengthwise.evaluation.evaluate import evaluate
from lengthwise.evaluation.recommendation.candidates import Calibration, calibrations, specs
from lengthwise.evaluation.recommendation.race import LEVEL, is_behind, pairs, still_in
from lengthwise.evaluation.recommendation.words import words
from lengthwise.methods.recipe import Part, Recipe
from lengthwise.methods.spec import NONE, TRUNCATE
from lengthwise.methods.temperature.aligned import Alignment
from lengthwise.models.anatomy import Anatomy, anatomy_of
from lengthwise.models.fingerprint import model_fingerprint, versions
from lengthwise.models.patches import refuse_extended
from lengthwise.models.suitability import refuse_past_the_table, refuse_unreachable
from lengthwise.records import Record, summarise
from lengthwise.tasks import TASKS

KNOWN = 0.3  # least mean score at the training length of a task that can tell anything
ROUNDS = (4, 8, 16, 32)  # samples of a task, so far
FRESH = (8, 16, 32, 64)  # samples of a task that confirm, as many as there is time for
FRESH_SEED = 500_009  # far from the race's
CALIBRATING, RACING = 0.5, 0.75  # shares of the time after which each is at its end
# Long forwards that calibrations take, about, for each task and one more
FORWARDS = {("answers", "model"): 12, ("answers", "head"): 150}
FEWEST = 8  # sequences of a task for temperatures a head, where time is short


def recommend(
    model: nn.Module,
    tokenizer: Any,
    length: int,
    *,
    tasks: Sequence[str] = (),
    data: str | Path | None = None,
    minutes: float = 10.0,
    seed: int = 0,
    out: str | Path | None = None,
    train_length: int | None = None,
    batch_tokens: int | None = None,
    name: str = "",
    show_progress: bool = True,
) -> Recipe:
    """What to use at `length`, within about so many minutes; `extend`, `evaluate` and `reach` take the recipe as a method.

    It is tried on `tasks`, by default on those of four that the model can do at its training length, or on your own questions:
    `data`, a file of cases for one task, half of which choose and half of which confirm. `out` is a folder for the records, the
    alignments and `recipe.json`.
    """
    refuse_extended(model, "recommend")
    anatomy = anatomy_of(model, train_length)
    refuse_unreachable(model, anatomy)
    trained = anatomy.train_length
    within = f"length {length} is within the training length {trained}: the model reads that as it is"
    require(length > trained, f"{within}; give a larger --length, or the right --train-length")
    refuse_past_the_table(anatomy, length)
    require(minutes > 0, f"minutes must be above 0, not {minutes:g}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out)
        asked = Asked(model, tokenizer, anatomy, length, tuple(tasks), data, seed, folder, batch_tokens, name, show_progress)
        recipe = Recommendation(asked, Clock(60 * minutes)).run()
    if out is not None:
        recipe.save(folder / "recipe.json")
    return recipe


@dataclass
class Clock:
    """The time that was given, and how much of it is gone."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    def left(self, share: float = 1.0) -> float:
        """Seconds until so much of the time is gone."""
        return share * self.seconds - (time.monotonic() - self.start)


@dataclass(frozen=True)
class Asked:
    """One model at one length, and the questions that it is asked."""

    model: nn.Module
    tokenizer: Any
    anatomy: Anatomy
    length: int
    given: tuple[str, ...]  # tasks that the user named
    data: str | Path | None
    seed: int
    folder: Path
    batch_tokens: int | None
    name: str
    show_progress: bool

    def records(
        self, run: str, methods: Mapping[str, Sequence[Part] | str], tasks: Sequence[str], lengths: Sequence[int], samples: int
    ) -> list[Record]:
        """Answers in one of the two run directories, those that are there among them.

        Of the user's own cases every second one is for the race, and the others confirm.
        """
        records = evaluate(
            self.model,
            self.tokenizer,
            dict(methods),
            list(tasks),
            () if self.own_cases else lengths,
            2 * samples if self.own_cases else samples,
            self.seed + (FRESH_SEED if run == "confirm" else 0),
            self.folder / run,
            data=self.data,
            train_length=self.anatomy.train_length,
            batch_tokens=self.batch_tokens,
            name=self.name,
            sharpness=False,
            show_progress=self.show_progress,
        )
        mine = [record for record in records if not self.own_cases or record.index % 2 == (run == "confirm")]
        require(bool(mine), f"{self.data} has one case; at least 2 are needed, some to choose by and others to confirm")
        return mine

    @property
    def own_cases(self) -> bool:
        """Whether the user's file holds whole cases, which have lengths of their own."""
        return self.data is not None and TASKS[self.given[0] if self.given else "answer"].take is None

    @cached_property
    def tasks(self) -> dict[str, float | None]:
        """Tasks by name with the plain model's mean score at the training length; None where they have no room there."""
        if self.data is not None:
            require(len(self.given) <= 1, f"--data holds cases of one task; give one --task, not {len(self.given)}")
            return {self.given[0] if self.given else "answer": None}
        scores: dict[str, float | None] = {}
        for task in self.given or DEFAULT_TASKS:
            try:
                records = self.records("race", {NONE: NONE}, [task], [self.anatomy.train_length], ROUNDS[1])
                scores[task] = fmean(record.score for record in records)
            except NoRoom:
                scores[task] = None
        return scores

    @property
    def known(self) -> list[str]:
        """Tasks that can tell anything; those that the user named are not questioned."""
        if self.data is not None or self.given:
            return list(self.tasks)
        known = [task for task, score in self.tasks.items() if score is not None and score >= KNOWN]
        told = ", ".join(f"{task} {100 * score:.0f} %" for task, score in self.tasks.items() if score is not None)
        trained = self.anatomy.train_length
        require(
            bool(known),
            f"this model can do none of our tasks at its training length {trained} ({told or 'no task has room there'}): they "
            "cannot show what helps; give questions of your own (--data FILE), or --task NAME",
        )
        return known


class Recommendation:
    """One recommendation on its way."""

    def __init__(self, asked: Asked, clock: Clock) -> None:
        self.asked, self.clock = asked, clock
        self.candidates: dict[str, tuple[Part, ...]] = {}
        self.baselines = {NONE: NONE, TRUNCATE: TRUNCATE}
        self.untried: list[str] = []
        self.seconds: dict[str, float] = {}  # by method, of one sample of every task at the length

    def run(self) -> Recipe:
        asked = self.asked
        forward = self._first_look()
        self.candidates |= {spec: (spec,) for spec in specs(asked.anatomy, asked.length)}
        for calibration in calibrations(asked.anatomy, asked.length):
            self._calibrate(calibration, forward)
        winner, raced = self._race({**self.baselines, **self.candidates})
        fresh, samples = self._confirm(winner)
        return self._recipe(winner, raced, fresh, samples)

    def _first_look(self) -> float:
        """About how many seconds the model takes to read the length: its first answers there, by the plain model."""
        first = self.asked.records("race", {NONE: NONE}, self.asked.known, [self.asked.length], ROUNDS[0])
        try:
            self.asked.records("race", {TRUNCATE: TRUNCATE}, self.asked.known, [self.asked.length], ROUNDS[0])
        except BadInput as error:
            del self.baselines[TRUNCATE]
            self.untried.append(f"truncation ({str(error).partition(';')[0]})")
        # The first ones also pay for what is done once
        return min(record.seconds for record in first)

    def _calibrate(self, calibration: Calibration, forward: float) -> None:
        """Add a calibrated temperature to the race, if there is time and memory for it."""
        asked, path = self.asked, self.asked.folder / f"{calibration.name.replace(':', '-').replace('+', '-')}.json"
        if path.exists():
            self._add(calibration, Alignment.load(path))
            return
        answers = calibration.statistic == "answers"
        takes = FORWARDS.get((calibration.statistic, calibration.scope), 2) * (len(asked.known) + 1) * forward
        if takes > self.clock.left(CALIBRATING):
            self.untried.append(f"{calibration.name} (no time)")
            return
        # The user's own cases are for the race and to confirm
        how: dict[str, Any] = {"task": asked.known, "data": asked.data} if answers and not asked.own_cases else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                alignment = calibrate(
                    asked.model,
                    asked.tokenizer,
                    asked.length,
                    statistic=calibration.statistic,
                    scope=calibration.scope,
                    sequences=FEWEST if answers and 3 * takes > self.clock.left(CALIBRATING) else None,
                    train_length=asked.anatomy.train_length,
                    method=calibration.method,
                    seed=asked.seed,
                    show_progress=asked.show_progress,
                    **how,
                )
        except Exception as error:
            if not is_out_of_memory(error) and not isinstance(error, BadInput):
                raise
            self.untried.append(f"{calibration.name} ({'no memory' if is_out_of_memory(error) else error})")
            return
        alignment.save(path)
        self._add(calibration, alignment)

    def _add(self, calibration: Calibration, alignment: Alignment) -> None:
        base = () if calibration.method == NONE else (calibration.method,)
        self.candidates[calibration.name] = (*base, alignment)

    def _race(self, methods: dict[str, Any]) -> tuple[str, list[Record]]:
        """The winner, and the answers of the race's last round at the length."""
        asked, trained = self.asked, self.asked.anatomy.train_length
        tests = pairs(len(methods)) * len(ROUNDS)
        for samples, more in zip(ROUNDS, (*ROUNDS[1:], 0), strict=True):
            raced = asked.records("race", methods, asked.known, [asked.length], samples)
            kept = still_in(_by_method(raced), tests)
            # Nothing may be lost where the model needs no help
            if not asked.own_cases:
                others = {name: method for name, method in {NONE: NONE, **methods}.items() if name != TRUNCATE}
                inside = _by_method(asked.records("race", others, asked.known, [trained], samples))
                kept = [name for name in kept if name == TRUNCATE or not is_behind(inside[name], inside[NONE], LEVEL / tests)]
            methods = {name: method for name, method in methods.items() if name in kept}
            self.seconds |= {name: _seconds(raced, name) / samples for name in _by_method(raced)}
            next_round = (more - samples) * sum(self.seconds[name] for name in methods)
            if len(methods) <= 1 or next_round > self.clock.left(RACING):
                break
        return (kept or [NONE])[0], raced

    def _confirm(self, winner: str) -> tuple[list[Record], int]:
        """Fresh answers of the winner, the plain model and truncation, at the training length and at the length."""
        asked = self.asked
        methods = {**self.baselines, winner: self.baselines.get(winner) or list(self.candidates[winner])}
        a_sample = sum(self.seconds[name] for name in methods)
        samples = max((n for n in FRESH if n * a_sample <= self.clock.left()), default=FRESH[0])
        return asked.records("confirm", methods, asked.known, [asked.anatomy.train_length, asked.length], samples), samples

    def _recipe(self, winner: str, raced: list[Record], fresh: list[Record], samples: int) -> Recipe:
        """What fresh answers say: the winner, unless truncation or the plain model is as good."""
        asked, anatomy = self.asked, self.asked.anatomy
        at_length = _by_method(record for record in fresh if asked.own_cases or record.length == asked.length)
        best = max((*self.baselines, winner), key=lambda name: fmean(at_length[name]))
        out_of_time = self.clock.left() < 0 or any("no time" in told for told in self.untried)
        evidence = {
            "tasks": asked.tasks,
            "asked": asked.known,
            "race": {name: [fmean(scores), len(scores)] for name, scores in _by_method(raced).items()},
            "fresh": [vars(cell) for cell in summarise(fresh)],
            "untried": self.untried,
        }
        provenance = {
            **versions(),
            "model": model_fingerprint(anatomy),
            "seed": asked.seed,
            "samples": samples,
            "seconds": round(self.clock.seconds - self.clock.left(), 1),
            "minutes": self.clock.seconds / 60,
        }
        lengths = (asked.length, anatomy.train_length)
        said = words(winner, best, fresh, *lengths, asked.tasks, asked.known, self.untried, out_of_time, asked.own_cases)
        return Recipe(best, self.candidates.get(best, ()), *lengths, said, evidence, provenance)


def _by_method(records: Iterable[Record]) -> dict[str, list[float]]:
    """Scores by method, the same questions in the same order."""
    ordered = sorted(records, key=lambda record: (record.task, record.length, record.index))
    scores: dict[str, list[float]] = {}
    for record in ordered:
        scores.setdefault(record.method, []).append(record.score)
    return scores


def _seconds(records: Iterable[Record], method: str) -> float:
    return sum((record.seconds for record in records if record.method == method), 0.0)
