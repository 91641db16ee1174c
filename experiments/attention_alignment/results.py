"""What has been recorded so far, by task, length and method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from experiments.attention_alignment.contenders import NAMES as METHODS
from experiments.attention_alignment.material import NAMES, RUNS
from lengthwise.errors import BadInput
from lengthwise.records import Cell, CellKey, Record, read_lines, summarise
from lengthwise.records.config import Config
from lengthwise.records.directory import CONFIG, RECORDS, read_config


@dataclass(frozen=True)
class Results:
    """Records under the names that tasks have in our tables."""

    records: list[Record]
    train_length: int

    @cached_property
    def groups(self) -> dict[CellKey, dict[int, Record]]:
        found: dict[CellKey, dict[int, Record]] = defaultdict(dict)
        for record in self.records:
            found[record.cell][record.index] = record
        return dict(found)

    @cached_property
    def cells(self) -> dict[CellKey, Cell]:
        return {CellKey(cell.method, cell.task, cell.data, cell.length): cell for cell in summarise(self.records)}

    @property
    def tasks(self) -> list[str]:
        """In the order of importance, others last."""
        found = dict.fromkeys(cell.task for cell in self.cells if not cell.data)
        return [*(name for name in NAMES if name in found), *(name for name in found if name not in NAMES)]

    @property
    def lengths(self) -> list[int]:
        return sorted({cell.length for cell in self.cells if not cell.data})

    @property
    def methods(self) -> list[str]:
        """In the order of importance, others last."""
        found = dict.fromkeys(cell.method for cell in self.cells)
        return [*(name for name in METHODS if name in found), *(name for name in found if name not in METHODS)]

    def cell(self, method: str, task: str, length: int, data: str = "") -> Cell | None:
        return self.cells.get(CellKey(method, task, data, length))

    def answers(self, method: str, task: str, length: int) -> dict[int, Record]:
        return self.groups.get(CellKey(method, task, "", length), {})

    def scores(self, method: str, tasks: Iterable[str], lengths: Iterable[int]) -> dict[tuple[str, int, int], float]:
        """By task, length and index, over all the given."""
        lengths = list(lengths)
        return {
            (task, length, index): record.score
            for task in tasks
            for length in lengths
            for index, record in self.answers(method, task, length).items()
        }

    def means(self, method: str, tasks: Sequence[str], lengths: Sequence[int], places: int) -> dict[int, float]:
        """By index, over all the given, of those that were answered at so many places."""
        found: dict[int, list[float]] = defaultdict(list)
        for (_, _, index), score in self.scores(method, tasks, lengths).items():
            found[index].append(score)
        return {index: fmean(some) for index, some in found.items() if len(some) == places}


# Run directories of one experiment, and what their tasks are called in our tables, where that differs
Runs = Mapping[str, Mapping[str, str]]


def read_results(folder: Path, train_length: int, runs: Runs = RUNS) -> Results:
    records: list[Record] = []
    for run, names in runs.items():
        found = read_lines(folder / run / RECORDS, Record)
        records += [replace(record, task=names.get(record.task, record.task)) for record in found]
    return Results(records, train_length)


def made_with(folder: Path, runs: Runs = RUNS) -> dict[str, str]:
    """With what the first of the run directories was made: its records tell of that machine, not of this one."""
    return next((dict(config["made_with"]) for config in _configs(folder, runs).values()), {})


def materials(folder: Path, runs: Runs = RUNS) -> dict[str, str]:
    """What the samples of each task are made of, as the run directories tell."""
    found = {run: config.get("tasks", {}) for run, config in _configs(folder, runs).items()}
    return {runs[run].get(task, task): str(material) for run, tasks in found.items() for task, material in tasks.items()}


def trained_on(folder: Path, runs: Runs) -> int:
    """The training length that the run directories were begun with."""
    for config in _configs(folder, runs).values():
        return int(config["settings"]["train_length"])
    raise BadInput(f"{folder} holds no run directory of this experiment yet; run the script that measures it first")


def _configs(folder: Path, runs: Runs) -> dict[str, Config]:
    paths = {run: folder / run / CONFIG for run in runs}
    return {run: read_config(path) for run, path in paths.items() if path.exists()}
