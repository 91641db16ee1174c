"""What has been recorded so far, by task, length and method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from experiments.attention_alignment.contenders import NAMES as METHODS
from experiments.attention_alignment.material import NAMES, RUNS
from lengthwise.records import Cell, CellKey, Record, read_lines, summarise
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
        return [name for name in NAMES if any(cell.task == name and not cell.data for cell in self.cells)]

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


def read_results(folder: Path, train_length: int) -> Results:
    records: list[Record] = []
    for run, names in RUNS.items():
        found = read_lines(folder / run / RECORDS, Record)
        records += [replace(record, task=names.get(record.task, record.task)) for record in found]
    return Results(records, train_length)


def made_with(folder: Path) -> dict[str, str]:
    """With what the first of the run directories was made: its records tell of that machine, not of this one."""
    configs = [folder / run / CONFIG for run in RUNS]
    return next((dict(read_config(path)["made_with"]) for path in configs if path.exists()), {})


def materials(folder: Path) -> dict[str, str]:
    """What the samples of each task are made of, as the run directories tell."""
    configs = {run: folder / run / CONFIG for run in RUNS}
    found = {run: read_config(path).get("tasks", {}) for run, path in configs.items() if path.exists()}
    return {RUNS[run].get(task, task): str(material) for run, tasks in found.items() for task, material in tasks.items()}
