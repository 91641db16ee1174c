"""The steps of one recommendation: look, calibrate, race, confirm, ask beyond, tell (recommend.py says why)."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import Tensor

from lengthwise.calibration.answers import SAMPLES
from lengthwise.calibration.calibrate import calibrate
from lengthwise.common.progress import TimeIsUp, stage, time_limit
from lengthwise.errors import BadInput, is_out_of_memory, require
from lengthwise.evaluation.recommendation.beyond import at_longer, peak_memory
from lengthwise.evaluation.recommendation.candidates import HEDGES, LAWS, Calibration, calibrations, specs
from lengthwise.evaluation.recommendation.clock import Clock
from lengthwise.evaluation.recommendation.evidence import Raced, by_method, confirmed, raced
from lengthwise.evaluation.recommendation.exam import CONFIRM, FRESH, RACE, ROUNDS, Exam
from lengthwise.evaluation.recommendation.fall import SHARE, fall_in_words, forwards, scores_by_length
from lengthwise.evaluation.recommendation.measure import Scored, Scores
from lengthwise.evaluation.recommendation.pace import FEWEST_FRESH, Pace, seconds_of
from lengthwise.evaluation.recommendation.race import LEVEL, is_behind, pairs, still_in
from lengthwise.evaluation.recommendation.words import Findings
from lengthwise.methods.recipe import Part, Recipe
from lengthwise.methods.spec import NONE, TRUNCATE
from lengthwise.methods.temperature.aligned import Alignment
from lengthwise.models.fingerprint import model_fingerprint, versions
from lengthwise.records.config import ANOTHER
from lengthwise.records.directory import CONFIG, read_config
from lengthwise.records.locks import claim
from lengthwise.tasks import find_task

MADE_FOR = "recommended_for"  # in the provenance of an alignment: a digest of what it was made for
CLAIM = ".claim-recommend"
FOREIGN = f"{{path}} is there and was not made by `recommend`; {ANOTHER}"
CALIBRATING, RACING, CONFIRMING = 0.5, 0.75, 0.9  # shares of the time after which each is at its end
# Long forwards that calibrations take at least, for each task and one more; fits to answers take what time they are given
FORWARDS = {("answers", "model"): 24, ("answers", "head"): 50}
FEWEST = 8  # sequences of a task for temperatures a head, where time is short


class Recommendation:
    """The state of one recommendation while it is made: candidates, and what was not tried."""

    def __init__(self, exam: Exam, clock: Clock) -> None:
        self.exam, self.clock, self.pace = exam, clock, Pace(clock)
        self.candidates: dict[str, tuple[Part, ...]] = {}
        self.baselines = {NONE: NONE, TRUNCATE: TRUNCATE}
        self.untried: list[str] = []
        self.plain: dict[int, Scores] = {}  # of the plain model by length, where its training length is not known
        self.raced: dict[str, Raced] = {}
        self.nats: dict[str, float] = {}  # of right answers by method, where no question of the race was answered

    def run(self) -> Recipe:
        exam = self.exam
        stage("first answers of the model as it is", exam.show_progress)
        self._first_look()
        # Two would fit two alignments of one name, and answer under one of them with the other
        with claim(exam.folder / CLAIM) as ours:
            require(ours, f"another process is recommending in {exam.folder}; wait for it, or {ANOTHER}")
            return self._choose()

    def _choose(self) -> Recipe:
        exam = self.exam
        self.candidates |= {spec: (spec,) for spec in specs(exam.anatomy, exam.length)}
        for calibration in self._calibrations_in_order():
            self._calibrate(calibration)
        stage(f"the race: {len(self.baselines | self.candidates)} methods, as time allows", exam.show_progress)
        self._first_round()
        self.untried.append(HEDGES)
        winner = self._race({**self.baselines, **self.candidates})
        self._find_the_fall()
        stage("fresh questions, which alone are reported", exam.show_progress)
        fresh, samples = self._confirm(winner)
        return self._recipe(winner, fresh, samples)

    def _installed(self, name: str) -> Sequence[Part] | str:
        return self.baselines.get(name) or list(self.candidates[name])

    def _first_look(self) -> None:
        """Let the plain model and truncation answer a few questions, which also tells what time they take."""
        length, trained = self.exam.length, self.exam.anatomy.train_length
        told = False
        if (seconds := self.exam.first_answer()) is not None:
            # A guess for one task, by a length that is read as fast as the training length
            self.pace.at_length = {NONE: seconds * length / trained, TRUNCATE: seconds}
            self.pace.inside = {NONE: seconds}
            told = self._tell_what_it_takes(seconds, trained, rounds=2)
        first = self.exam.answers(RACE, {NONE: NONE}, [length], ROUNDS[0])
        self.untried += [f"the task {task} (no time)" for task in self.exam.unasked]
        self.pace.at_length[NONE] = seconds_of(first, NONE) / ROUNDS[0]
        try:
            truncated = self.exam.answers(RACE, {TRUNCATE: TRUNCATE}, [length], ROUNDS[0])
            self.pace.at_length[TRUNCATE] = seconds_of(truncated, TRUNCATE) / ROUNDS[0]
        except BadInput as error:
            del self.baselines[TRUNCATE]
            self.pace.at_length.pop(TRUNCATE, None)
            self.untried.append(f"truncation ({str(error).partition(';')[0]})")
        if not self.exam.has_own_lengths:
            within = self.exam.answers(RACE, {NONE: NONE}, [trained], ROUNDS[0])
            self.pace.inside[NONE] = seconds_of(within, NONE) / ROUNDS[0]
        # The first ones also pay for what is done once
        self.pace.fastest = min(answer.seconds for answer in first)
        if not told:
            self._tell_what_it_takes(self.pace.fastest, length, rounds=1)

    def _calibrations_in_order(self) -> list[Calibration]:
        """Calibrations, cheapest first; but fits to answers first where sharpening by a law does worse than the plain model."""
        listed = calibrations(self.exam.anatomy, self.exam.length)
        if all(calibration.statistic == "answers" for calibration in listed):
            return listed
        law = LAWS[0]
        try:
            answers = self.exam.answers(RACE, {NONE: NONE, law: law}, [self.exam.length], ROUNDS[0])
        except Exception as error:
            _reason_or_raise(error)
            return listed
        self.pace.fastest = min(answer.seconds for answer in answers)
        scores = by_method(answers)
        return listed[::-1] if fmean(scores[law]) < fmean(scores[NONE]) else listed

    def _calibrate(self, calibration: Calibration) -> None:
        """Add a calibrated temperature to the race, if there is time and memory for it."""
        exam, path = self.exam, self.exam.folder / f"{calibration.name.replace(':', '-').replace('+', '-')}.json"
        made_for = _made_for(exam, calibration.statistic)
        # Another model, length, seed or text may have been asked in this folder before
        kept = Alignment.load(path) if path.exists() else None
        if kept is not None and kept.provenance.get(MADE_FOR) == made_for:
            self._add(calibration, kept)
            return
        require(kept is None or MADE_FOR in kept.provenance, FOREIGN.format(path=path))
        raced = exam.folder / RACE / CONFIG
        taken = raced.exists() and calibration.name in read_config(raced)["methods"]
        require(not taken, f"{exam.folder} was begun for another length or other questions; {ANOTHER}")
        answers = calibration.statistic == "answers"
        takes = FORWARDS.get((calibration.statistic, calibration.scope), 2) * (len(exam.usable_tasks) + 1) * self.pace.fastest
        fitted = sum(parts != (name,) for name, parts in self.candidates.items())
        left_to_fit = self.pace.left_to_fit(fitted)
        left = min(self.clock.left(CALIBRATING), left_to_fit)
        # Given more time it would be made for more tasks, and could not race in the same folder
        if takes > left or (answers and exam.unasked):
            self.untried.append(f"{calibration.name} (no time)")
            return
        hurried = 9 * takes > left
        sequences = (FEWEST if hurried else SAMPLES[calibration.scope]) if answers else None
        minutes = left / 60 if answers else None
        try:
            with warnings.catch_warnings(), time_limit(left_to_fit):
                warnings.simplefilter("ignore")
                alignment = calibrate(
                    exam.model,
                    exam.tokenizer,
                    exam.length,
                    statistic=calibration.statistic,
                    scope=calibration.scope,
                    train_length=exam.anatomy.train_length,
                    method=calibration.method,
                    seed=exam.seed,
                    minutes=minutes,
                    show_progress=exam.show_progress,
                    **exam.material(calibration.statistic, sequences),
                )
        except Exception as error:
            self.untried.append(f"{calibration.name} ({_reason_or_raise(error)})")
            return
        alignment = replace(alignment, provenance={**alignment.provenance, MADE_FOR: made_for})
        alignment.save(path)
        self._add(calibration, alignment)

    def _find_the_fall(self) -> None:
        """Find where the plain model begins to fail, if its training length is not known and there is time."""
        if self.exam.anatomy.trained.is_known or self.exam.has_own_lengths:
            return
        try:
            if forwards(self.exam) * self.pace.fastest > SHARE * self.clock.seconds:
                raise TimeIsUp
            with time_limit(self.pace.left_to_confirm()):
                self.plain = scores_by_length(self.exam)
        except TimeIsUp:
            self.untried.append("the lengths from which on the plain model falls (no time)")

    def _tell_what_it_takes(self, seconds: float, length: int, rounds: int) -> bool:
        """Say so where even so many first rounds and the fewest fresh questions take longer than the time that was given."""
        least = self.pace.shortest(rounds)
        if least <= self.clock.left():
            return False
        minutes = (self.clock.seconds - self.clock.left() + least) / 60
        told = f"one answer at {length:,} tokens takes {seconds:.2g} s: even with the fewest questions this will take about"
        stage(f"{told} {minutes:.2g} minutes, not {self.clock.seconds / 60:g}", self.exam.show_progress)
        return True

    def _first_round(self) -> None:
        """Let candidates answer the first questions, the calibrated ones before the others.

        Drops those that there is no time for, that this model refuses or that do not fit into memory. One is always tried.
        """
        tried = 0
        for name in sorted(self.candidates, key=lambda name: self.candidates[name] == (name,)):
            left = min(self.clock.left(RACING), self.pace.left_to_confirm()) if tried else math.inf
            try:
                if ROUNDS[0] * self.pace.sample(NONE) > left:
                    raise TimeIsUp
                with time_limit(left):
                    self._round({name: self._installed(name)}, ROUNDS[0])
                tried += 1
            except Exception as error:
                self.untried.append(f"{name} ({_reason_or_raise(error)})")
                del self.candidates[name]

    def _add(self, calibration: Calibration, alignment: Alignment) -> None:
        base = () if calibration.method == NONE else (calibration.method,)
        self.candidates[calibration.name] = (*base, alignment)

    def _round(self, methods: dict[str, Any], samples: int) -> tuple[Sequence[Scored], Sequence[Scored]]:
        """Answers of methods of the race at the length; and at the training length, of the plain model as well."""
        at_length = self.exam.answers(RACE, methods, [self.exam.length], samples)
        if self.exam.has_own_lengths:
            return at_length, []
        others = {name: method for name, method in {NONE: NONE, **methods}.items() if name != TRUNCATE}
        return at_length, self.exam.answers(RACE, others, [self.exam.anatomy.train_length], samples)

    def _race(self, methods: dict[str, Any]) -> str:
        """Run the rounds of the race; returns the name of the winner."""
        exam, trained = self.exam, self.exam.anatomy.train_length
        tests = pairs(len(methods)) * len(ROUNDS)
        for samples, more in zip(ROUNDS, (*ROUNDS[1:], 0), strict=True):
            try:
                with time_limit(math.inf if samples == ROUNDS[0] else self.pace.left_to_confirm(methods)):
                    answers, within = self._round(methods, samples)
            except TimeIsUp:
                break
            kept = still_in(by_method(answers), tests)
            out = {name: "behind the first" for name in methods if name not in kept}
            # Nothing may be lost where the model needs no help
            if within:
                inside = by_method(within)
                self.pace.inside |= {name: seconds_of(within, name) / samples for name in inside}
                lost = [name for name in inside if is_behind(inside[name], inside[NONE], LEVEL / tests)]
                out |= dict.fromkeys(lost, f"loses at {trained:,} tokens")
                kept = [name for name in kept if name not in lost]
            self.raced |= {line.method: line for line in raced(methods, answers, exam.measure, out)}
            methods = {name: method for name, method in methods.items() if name in kept}
            self.pace.at_length |= {name: seconds_of(answers, name) / samples for name in by_method(answers)}
            next_round = (more - samples) * sum(map(self.pace.sample, methods))
            if len(methods) <= 1 or next_round > min(self.clock.left(RACING), self.pace.left_to_confirm(methods)):
                break
        if not any(answer.score for answer in answers):
            with time_limit(self.pace.left_to_confirm(methods)):
                self.nats = exam.nats({name: method for name, method in methods.items() if name != TRUNCATE})
        return min(self.nats, key=lambda name: _or_infinite(self.nats[name]), default=(kept or [NONE])[0])

    def _confirm(self, winner: str) -> tuple[Sequence[Scored], int]:
        """Fresh answers of the winner, the plain model and truncation at both lengths, to as many samples as time allows."""
        exam = self.exam
        methods = {**self.baselines, winner: self._installed(winner)}
        asked = CONFIRM, methods, [exam.anatomy.train_length, exam.length]
        # Beside other work on the same machine an answer can take twice as long as before
        safe = 2 * FRESH[0] * sum(map(self.pace.sample, methods)) <= self.clock.left()
        samples = FRESH[0] if safe else FEWEST_FRESH
        answers = exam.answers(*asked, samples)
        for more in (n for n in FRESH if n > samples):
            takes = (more / samples - 1) * sum(answer.seconds for answer in answers)
            if takes > self.clock.left(1.0 if more == FRESH[0] else CONFIRMING):
                break
            try:
                with time_limit(self.clock.left()):
                    answers = exam.answers(*asked, more)
            except TimeIsUp:
                break
            samples = more
        return answers, samples

    def _recipe(self, winner: str, fresh: Sequence[Scored], samples: int) -> Recipe:
        """The recipe that fresh answers support: the winner, unless truncation or the plain model is as good."""
        exam, anatomy, measure = self.exam, self.exam.anatomy, self.exam.measure
        inside = [] if exam.has_own_lengths else [answer for answer in fresh if answer.length != exam.length]
        at_length = [answer for answer in fresh if exam.has_own_lengths or answer.length == exam.length]
        scores = by_method(at_length)
        base = max(self.baselines, key=lambda name: fmean(scores[name]))
        best = winner if winner not in self.baselines and measure.beats(scores[winner], scores[base]) else base
        memory = self._memory(best)
        longer = [] if best == TRUNCATE else self._longer(best, fmean(scores[best]))
        out_of_time = self.clock.left() < 0 or any("no time" in told for told in self.untried)
        evidence = {
            "tasks": exam.tasks,
            "asked": exam.usable_tasks,
            "measure": measure.name,
            "race": [asdict(line) for line in self.raced.values()],
            "nats": {name: round(nats, 4) for name, nats in self.nats.items()},
            "fresh": [asdict(line) for answers in (at_length, inside) for line in confirmed(answers, measure)],
            "longer": [asdict(line) for answers in longer for line in confirmed(answers, measure)],
            "memory": memory,
            "untried": self.untried,
            "plain_by_length": [[length, measure.interval(scores), len(scores)] for length, scores in self.plain.items()],
        }
        provenance = {
            **versions(),
            "model": model_fingerprint(anatomy),
            "train_length": anatomy.trained.source,
            "options": list(exam.options),
            "seed": exam.seed,
            "samples": samples,
            "seconds": round(self.clock.seconds - self.clock.left(), 1),
            "minutes": self.clock.seconds / 60,
        }
        trained, tasks = anatomy.train_length, (exam.tasks, exam.usable_tasks, self.untried, out_of_time)
        says = Findings(winner, best, measure, at_length, inside, longer, memory, trained, *tasks).words()
        if self.plain:
            says = (*says, fall_in_words(self.plain, measure, anatomy.trained.source))
        return Recipe(best, self.candidates.get(best, ()), exam.length, trained, says, evidence, provenance)

    def _longer(self, best: str, score: float) -> list[Sequence[Scored]]:
        return at_longer(self.exam, best, self._installed(best), score, self.pace.at_length[best], self.clock)

    def _memory(self, best: str) -> dict[str, int]:
        """By method, the most bytes that reading takes beside the weights; empty where that cannot be measured."""
        read = {NONE: (NONE, self.exam.length), TRUNCATE: (NONE, self.exam.anatomy.train_length)}
        peaks = {
            name: peak_memory(self.exam, *(read.get(name) or (self._installed(name), self.exam.length)))
            for name in (NONE, best)
        }
        return {name: peak for name, peak in peaks.items() if peak is not None}


def _or_infinite(nats: float) -> float:
    return nats if math.isfinite(nats) else math.inf


def _reason_or_raise(error: Exception) -> str:
    """In words, why a candidate cannot be tried; raises errors that are neither bad input nor a lack of memory or time."""
    if isinstance(error, TimeIsUp):
        return "no time"
    if is_out_of_memory(error):
        return "no memory"
    if not isinstance(error, BadInput):
        raise error
    return str(error)


def _made_for(exam: Exam, statistic: str) -> str:
    """A digest of the model, the length, the seed and the material that an alignment is made for."""
    material = exam.material(statistic, None).items()
    given: dict[str, Any] = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in material}
    if (data := given.get("data")) is not None:
        # What it holds, wherever it stands today
        given["data"] = [find_task(task).of(Path(data)).material for task in given["task"]]
    weights = model_fingerprint(exam.anatomy)["weights"]
    made_for = (weights, exam.length, exam.seed, exam.anatomy.train_length, given)
    return hashlib.sha256(repr(made_for).encode()).hexdigest()[:16]
