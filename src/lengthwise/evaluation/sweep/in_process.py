"""Run the cells of an evaluation in this process, side by side with any other process on the same run directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lengthwise.evaluation.sweep.cells import answer_cell, check_recorded, sharpness_of
from lengthwise.evaluation.sweep.jobs import EvaluatedModel, Job, RemainingWork, missing_work
from lengthwise.records import Record, RunDirectory
from lengthwise.tasks import Sample

SamplesOf = Callable[[Job], Sequence[Sample]]
PAUSE = 0.5  # seconds between two looks at cells that another process holds


def run_jobs(
    evaluated: EvaluatedModel, jobs: Sequence[Job], run: RunDirectory, samples_of: SamplesOf, remaining: RemainingWork
) -> None:
    """Fill every cell; those that other processes hold are looked at again at the end, and finished if need be."""

    def attempt(some: Sequence[Job]) -> list[Job]:
        return [job for job in some if not _fill(evaluated, job, run, samples_of, remaining)]

    repeat_while_held(jobs, attempt)


def repeat_while_held(jobs: Sequence[Job], attempt: Callable[[Sequence[Job]], list[Job]]) -> None:
    """Call `attempt` until it returns no jobs that other processes hold."""
    held = attempt(jobs)
    while held:
        time.sleep(PAUSE)
        held = attempt(held)


def _fill(evaluated: EvaluatedModel, job: Job, run: RunDirectory, samples_of: SamplesOf, remaining: RemainingWork) -> bool:
    """Answer what one cell lacks and write its records; False when another process holds the cell."""
    with run.claim(job.cell) as claimed:
        if not claimed:
            return False
        missing = missing_work(job, run)
        if missing.steps:
            remaining.announce(job)
        if missing.samples:
            check_recorded(job, samples_of(job), missing.recorded)

            def write(records: list[Record]) -> None:
                run.records.append(records)
                remaining.update(job, remaining.steps[job.cell] - sum(record.cell == job.cell for record in records))

            answer_cell(evaluated, job, samples_of(job), missing.recorded, write)
        if missing.sharpness:
            line = sharpness_of(evaluated, job, samples_of(job)[0])
            run.sharpness.append([line] if line else [])
        remaining.update(job, 0)
    return True
