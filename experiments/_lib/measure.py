"""Methods on tasks by length: alignments and answers, each made once and kept.

OUT/*.json       alignments (alignments.py), solved once for all experiments with this OUT
OUT/RUN/         run directories, as `lengthwise evaluate` writes them
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import lengthwise as lw
from experiments._lib import alignments
from experiments._lib.command import option
from experiments._lib.minutes import say, work_for
from lengthwise.errors import require
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.load import DTYPES, load
from lengthwise.records import Cell, CellKey, Record, read_lines, summarise
from lengthwise.records.directory import CONFIG, RECORDS, read_config
from lengthwise.tasks import TASKS, Sample, Task

LENGTHS = (512, 1024, 2048, 4096, 8192, 15000)
# Where alignments are solved for all experiments of one OUT; in between they are interpolated
SOLVED = (1024, 2048, 4096, 8192, 15000, 16000)
# Run directories of an experiment -> what their tasks are called in its tables, where that differs
Runs = Mapping[str, Mapping[str, str]]
NO_RUNS: Runs = {}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every experiment on methods by length takes."""

    model: str = option("embedded", "directory, hub name, or embedded", positional=True)
    out: Path = option(help="folder of the experiment; one a model serves all experiments")
    methods: tuple[str, ...] = option((), f"{', '.join(alignments.NAMES)}, or any spec; all of ours if none", flag="--method")
    samples: int = option(100, "of each cell")
    calibrate: tuple[int, ...] = option((), "lengths at which alignments are solved, where not the usual ones")
    seed: int = option(0)
    train_length: int | None = option(None, "the model's own if not given")
    dtype: str = option("auto", choices=list(DTYPES))
    device: str | None = option(None, "cuda where there is one")
    batch_tokens: int | None = option(None, "tokens of one batch; by default what suits the device")
    minutes: float = option(math.inf, "stop after so long; the same command goes on")
    command: str = ""  # as typed

    @property
    def read_at(self) -> tuple[int, ...]:
        """Lengths that are read, where they are the caller's to choose."""
        return ()

    @property
    def solved_at(self) -> tuple[int, ...]:
        """Those of --calibrate; else the usual ones and whatever longer ones are read."""
        return self.calibrate or (*SOLVED, *sorted({n for n in self.read_at if n > SOLVED[-1]}))


@dataclass(frozen=True)
class Asked:
    """A task as an experiment asks it."""

    name: str  # in its tables
    task: str  # in the catalogue
    run: str  # run directory of its records
    make: Callable[..., list[Sample]]  # (tokenizer, length, n, seed)
    material: str

    @cached_property
    def with_samples(self) -> Task:
        """The catalogue's task with these samples, made once a length: at 15,000 tokens that takes longer than answering."""
        return replace(TASKS[self.task], samples=cache(self.make), material=self.material)


@dataclass(frozen=True)
class Place:
    """One task at one length, and the methods that are asked there."""

    asked: Asked
    length: int
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """The loaded model, and what it is asked."""

    options: Options
    model: Any
    tokenizer: Any
    train_length: int

    @classmethod
    def of(cls, options: Options) -> Subject:
        model, tokenizer = load(options.model, options.dtype, options.device)
        return cls(options, model, tokenizer, anatomy_of(model, options.train_length).train_length)

    def contenders(self, names: Sequence[str]) -> dict[str, object]:
        """What `lengthwise.evaluate` takes for these names."""
        options = self.options
        return alignments.contenders(self.model, self.tokenizer, names, options.solved_at, self.train_length, options.out)

    def measure(self, places: Sequence[Place], sharpness: bool = False) -> None:
        """Alignments and answers, as far as there is time; the methods that matter most come first."""
        work_for(self.options.minutes, partial(self._measure, places, sharpness))

    def _measure(self, places: Sequence[Place], sharpness: bool) -> None:
        out, runs = self.options.out, {place.asked.run: {} for place in places}
        for run, config in configs(out, runs).items():
            begun = config["settings"]["train_length"]
            otherwise = f"was begun with another train_length: {begun} then, {self.train_length} now; give another --out"
            require(begun == self.train_length, f"{out / run} {otherwise}")
        methods = list(dict.fromkeys(name for place in places for name in place.methods))
        known = self.contenders(methods)
        answered = {run: {record.key for record in read_lines(out / run / RECORDS, Record)} for run in runs}
        for place, name in ((p, n) for stage in alignments.stages(methods) for p in places for n in stage if n in p.methods):
            asked, cell = place.asked, CellKey(name, place.asked.task, "", place.length)
            if not {(cell, index) for index in range(self.options.samples)} <= answered[asked.run]:
                say(f"{asked.name} at {place.length:,} tokens, {name}")
                how: dict[str, Any] = {"lengths": [place.length], "sharpness": sharpness, "show_progress": False}
                self.evaluate({name: known[name]}, asked.run, {asked.task: asked.with_samples}, **how)

    def evaluate(self, methods: Mapping[str, object], run: str, tasks: Any, **more: Any) -> None:
        options = self.options
        common: dict[str, Any] = {"samples": options.samples, "seed": options.seed, "train_length": options.train_length}
        common |= {"batch_tokens": options.batch_tokens, "name": options.model}
        lw.evaluate(self.model, self.tokenizer, methods, tasks, out=options.out / run, **common, **more)

    def facts(self, module: str, materials: Mapping[str, str], runs: Runs = NO_RUNS) -> dict[str, Any]:
        """How the numbers came about: what a result file says besides its numbers."""
        options = self.options
        here = made_with(next(self.model.parameters()).device.type)
        return {
            "command": f"python -m experiments.{module}.run {options.command}",
            "model": {**model_fingerprint(anatomy_of(self.model, options.train_length)), "name": options.model},
            # The records tell of the machine that measured, which may be another than this
            "made_with": next((dict(c["made_with"]) for c in configs(options.out, runs).values()), here),
            "dtype": dtype_of(self.model),
            "seed": options.seed,
            "samples": options.samples,
            "train_length": self.train_length,
            "materials": dict(materials),
        }

    def document(self, module: str, places: Sequence[Place], answers: Answers, runs: Runs) -> dict[str, Any]:
        """Facts, cells and temperatures of all answers so far, and how many that were asked for are missing."""
        keys = [CellKey(name, place.asked.name, "", place.length) for place in places for name in place.methods]
        return {
            **self.facts(module, materials(self.options.out, runs), runs),
            "missing": sum(max(0, self.options.samples - len(answers.groups.get(key, ()))) for key in keys),
            "cells": [asdict(cell) for cell in answers.cells],
            "temperatures": alignments.temperatures(answers.lengths, answers.train_length, self.options.out),
        }


@dataclass(frozen=True)
class Answers:
    """Records under the names that tasks have in an experiment's tables."""

    records: list[Record]
    train_length: int

    @classmethod
    def read(cls, folder: Path, train_length: int, runs: Runs) -> Answers:
        records: list[Record] = []
        for run, names in runs.items():
            lines = read_lines(folder / run / RECORDS, Record)
            records += [replace(record, task=names.get(record.task, record.task)) for record in lines]
        return cls(records, train_length)

    @cached_property
    def groups(self) -> dict[CellKey, dict[int, Record]]:
        groups: dict[CellKey, dict[int, Record]] = defaultdict(dict)
        for record in self.records:
            groups[record.cell][record.index] = record
        return dict(groups)

    @cached_property
    def cells(self) -> list[Cell]:
        return summarise(self.records)

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(cell.task for cell in self.cells if not cell.data))

    @property
    def lengths(self) -> list[int]:
        return sorted({cell.length for cell in self.cells if not cell.data})

    @property
    def methods(self) -> list[str]:
        """In the order of importance, others last."""
        names = dict.fromkeys(cell.method for cell in self.cells)
        return [*(name for name in alignments.NAMES if name in names), *(n for n in names if n not in alignments.NAMES)]

    def scores(self, method: str, tasks: Iterable[str], lengths: Iterable[int]) -> dict[tuple[str, int, int], float]:
        """By task, length and index, over all the given."""
        keys = [CellKey(method, task, "", length) for length in lengths for task in tasks]
        groups = ((key, self.groups.get(key, {})) for key in keys)
        return {(key.task, key.length, index): record.score for key, group in groups for index, record in group.items()}

    def means(self, method: str, tasks: Sequence[str], lengths: Sequence[int], places: int) -> dict[int, float]:
        """Mean score by index over all the given, of samples that were answered at so many places."""
        scores: dict[int, list[float]] = defaultdict(list)
        for (_, _, index), score in self.scores(method, tasks, lengths).items():
            scores[index].append(score)
        return {index: fmean(some) for index, some in scores.items() if len(some) == places}


def configs(folder: Path, runs: Runs) -> dict[str, dict[str, Any]]:
    """What the run directories were begun with."""
    paths = {run: folder / run / CONFIG for run in runs}
    return {run: read_config(path) for run, path in paths.items() if path.exists()}


def materials(folder: Path, runs: Runs) -> dict[str, str]:
    """What the samples of each task are made of, as the run directories tell."""
    known = {run: config.get("tasks", {}) for run, config in configs(folder, runs).items()}
    return {runs[run].get(task, task): str(material) for run, tasks in known.items() for task, material in tasks.items()}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
