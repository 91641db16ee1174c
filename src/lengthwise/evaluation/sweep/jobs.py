"""What an evaluation has to do: one job a cell, what of it is recorded already, and how much work remains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.common.progress import ProgressCallback, no_progress
from lengthwise.evaluation.sweep.named_methods import NamedMethod
from lengthwise.methods.spec import END
from lengthwise.records import CellKey, Record, RunDirectory
from lengthwise.tasks import TASKS, Task


@dataclass(frozen=True)
class EvaluatedModel:
    """The loaded model, and the settings that all cells of a run share."""

    model: Any
    tokenizer: Any
    name: str  # as it stands in the records
    train_length: int
    batch_tokens: int
    seed: int
    force: bool  # whether alignments of another model are accepted
    chat: bool = False  # whether prompts are messages in the tokenizer's chat template


@dataclass(frozen=True)
class Job:
    """A cell, one method on one task at one length, to be filled up to `samples` records."""

    method: NamedMethod
    task: str
    data: str  # name of the file of cases, "" for generated samples
    length: int
    samples: int
    sharpness: bool = True  # whether to measure the sharpness of its first sample
    own_task: Task | None = None  # where the task is not of this package: workers on other machines do not have it

    @property
    def definition(self) -> Task:
        """The task: how it makes samples and scores answers."""
        return TASKS[self.task] if self.own_task is None else self.own_task

    @property
    def cell(self) -> CellKey:
        return CellKey(self.method.name, self.task, self.data, self.length)

    @property
    def cells(self) -> list[CellKey]:
        """The job's own cell, then one for each further score of its answers."""
        return [self.cell, *(self.cell._replace(task=name) for name in self.definition.also)]

    @property
    def label(self) -> str:
        file = f" ({self.data})" if self.data else ""
        return f"{self.task}{file} at {self.length:,} tokens, {self.method.name}"

    @property
    def wants_sharpness(self) -> bool:
        return self.sharpness and self.method.reads != END

    def read_tokens(self, train_length: int) -> int:
        """Tokens of one prompt that the model really reads."""
        return min(self.length, train_length) if self.method.reads == END else self.length

    def weight(self, train_length: int) -> float:
        """The cost of one sample, for the progress bar: between linear and quadratic in its length."""
        return float(self.read_tokens(train_length) ** 1.3)


@dataclass(frozen=True)
class MissingWork:
    """What one cell has, and what it still needs."""

    recorded: dict[int, Record]  # by sample index
    samples: int  # how many have no record
    sharpness: bool  # whether its sharpness is still to be measured

    @property
    def steps(self) -> int:
        return self.samples + self.sharpness


def missing_work(job: Job, run: RunDirectory) -> MissingWork:
    """Compare a job with what the run directory holds, other processes' additions included."""
    run.records.refresh()
    run.sharpness.refresh()
    recorded = run.of_cell(job.cell)
    missing = sum(index not in recorded for index in range(job.samples))
    measured = (job.method.name, job.task, job.length) in run.sharpness.lines
    return MissingWork(recorded, missing, job.wants_sharpness and not measured)


class RemainingWork:
    """How much work is left in each cell, whichever process does it; moves the progress bar when it shrinks."""

    def __init__(self, jobs: Sequence[Job], run: RunDirectory, train_length: int) -> None:
        self.weights = {job.cell: job.weight(train_length) for job in jobs}
        self.steps: dict[CellKey, int] = {job.cell: missing_work(job, run).steps for job in jobs}
        self.on_progress: ProgressCallback = no_progress

    @property
    def total(self) -> float:
        return sum(self.weights[cell] * steps for cell, steps in self.steps.items())

    def update(self, job: Job, steps: int) -> None:
        """Note that a cell now has `steps` left."""
        self.on_progress(self.weights[job.cell] * (self.steps[job.cell] - steps))
        self.steps[job.cell] = steps

    def announce(self, job: Job) -> None:
        """Name the job beside the bar."""
        self.on_progress(0, job.label)
