"""What a cell still lacks, and the progress bar that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lengthwise.common.progress import Tick
from lengthwise.evaluation.sweep.cells import Job
from lengthwise.records import CellKey, Record, RunDirectory


@dataclass(frozen=True)
class Todo:
    """One cell, after looking at what has been recorded."""

    recorded: dict[int, Record]
    missing: int  # samples
    sharpness: bool  # whether its sharpness is still to be measured

    @property
    def steps(self) -> int:
        return self.missing + self.sharpness


def todo(job: Job, run: RunDirectory) -> Todo:
    """Reads what other processes have added first."""
    run.records.refresh()
    run.sharpness.refresh()
    recorded = run.of_cell(job.cell)
    missing = sum(index not in recorded for index in range(job.samples))
    measured = (job.contender.name, job.task, job.length) in run.sharpness.lines
    return Todo(recorded, missing, job.wants_sharpness and not measured)


class Left:
    """How much work is left, cell by cell, whoever does it; moves the bar when it shrinks."""

    def __init__(self, jobs: Sequence[Job], run: RunDirectory, train_length: int) -> None:
        self.weights = {job.cell: job.weight(train_length) for job in jobs}
        self.steps: dict[CellKey, int] = {job.cell: todo(job, run).steps for job in jobs}
        self.tick: Tick | None = None

    @property
    def total(self) -> float:
        return sum(self.weights[cell] * steps for cell, steps in self.steps.items())

    def now(self, job: Job, steps: int) -> None:
        if self.tick is not None:
            self.tick(self.weights[job.cell] * (self.steps[job.cell] - steps))
        self.steps[job.cell] = steps

    def say(self, job: Job) -> None:
        if self.tick is not None:
            self.tick(0, job.label)
