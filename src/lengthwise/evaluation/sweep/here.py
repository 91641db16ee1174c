"""Run the cells of an evaluation in this process, side by side with any other process on the same directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lengthwise.evaluation.sweep.cells import Job, Subject, answer_cell, check_recorded, sharpness_of
from lengthwise.evaluation.sweep.todo import Left, todo
from lengthwise.records import Record, RunDirectory
from lengthwise.tasks import Sample

SamplesOf = Callable[[Job], Sequence[Sample]]
# Between two looks at cells that another process holds
PAUSE = 0.5


def sweep(subject: Subject, jobs: Sequence[Job], run: RunDirectory, samples_of: SamplesOf, left: Left) -> None:
    """Fill every cell; those that other processes hold are looked at again at the end, and finished if need be."""

    def attempt(some: Sequence[Job]) -> list[Job]:
        return [job for job in some if not _filled(subject, job, run, samples_of, left)]

    until_none_is_held(jobs, attempt)


def until_none_is_held(jobs: Sequence[Job], attempt: Callable[[Sequence[Job]], list[Job]]) -> None:
    """`attempt` returns the jobs that others hold."""
    held = attempt(jobs)
    while held:
        time.sleep(PAUSE)
        held = attempt(held)


def _filled(subject: Subject, job: Job, run: RunDirectory, samples_of: SamplesOf, left: Left) -> bool:
    """False when another process holds the cell."""
    with run.claim(job.cell) as mine:
        if not mine:
            return False
        found = todo(job, run)
        left.now(job, found.steps)
        if found.steps:
            left.say(job)
        if found.missing:
            check_recorded(job, samples_of(job), found.recorded)

            def emit(records: list[Record]) -> None:
                run.records.append(records)
                left.now(job, left.steps[job.cell] - sum(record.cell == job.cell for record in records))

            answer_cell(subject, job, samples_of(job), found.recorded, emit)
        if found.sharpness:
            line = sharpness_of(subject, job, samples_of(job)[0])
            run.sharpness.append([line] if line else [])
        left.now(job, 0)
    return True
