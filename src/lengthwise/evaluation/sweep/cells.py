"""One cell of an evaluation, the samples of one task at one length under one method, answered and scored.

Batches are fixed runs of sample indices. What is already recorded never changes them: a batch of which only some samples are
missing is answered whole again, so that a resumed evaluation predicts bit for bit what an undisturbed one does.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lengthwise.calibration.measure import Means, run_stack
from lengthwise.errors import BadInput
from lengthwise.evaluation.hedge import Hedge
from lengthwise.evaluation.sweep.contenders import Contender
from lengthwise.evaluation.sweep.generate import answers, check_answers
from lengthwise.evaluation.sweep.truncate import truncated
from lengthwise.models.anatomy import anatomy_of, unwrapped
from lengthwise.models.extend import extend
from lengthwise.records import CellKey, Record, Sharpness
from lengthwise.tasks import TASKS, Sample

# Tokens in a batch: a GPU fills up at about this many, a CPU gains nothing from more
GPU_BATCH = 16384
CPU_BATCH = 1024


@dataclass(frozen=True)
class Subject:
    """The loaded model, and what all its cells share."""

    model: Any
    tokenizer: Any
    name: str
    train_length: int
    batch_tokens: int
    seed: int
    force: bool


@dataclass(frozen=True)
class Job:
    """A cell to be filled up to `samples` records."""

    contender: Contender
    task: str
    data: str  # name of the official file, "" for generated samples
    length: int
    samples: int
    sharpness: bool = True  # whether to measure the sharpness of its first sample

    @property
    def cell(self) -> CellKey:
        return CellKey(self.contender.name, self.task, self.data, self.length)

    @property
    def cells(self) -> list[CellKey]:
        """Its own, then those of the further scores of its answers."""
        return [self.cell, *(self.cell._replace(task=name) for name in TASKS[self.task].also)]

    @property
    def label(self) -> str:
        where = f" ({self.data})" if self.data else ""
        return f"{self.task}{where} at {self.length:,} tokens, {self.contender.name}"

    @property
    def wants_sharpness(self) -> bool:
        return self.sharpness and not self.contender.truncates

    def read_tokens(self, train_length: int) -> int:
        """Tokens of one prompt that the model really reads."""
        return min(self.length, train_length) if self.contender.truncates else self.length

    def weight(self, train_length: int) -> float:
        """What one sample costs, for the progress bar: between linear and quadratic in its length."""
        return float(self.read_tokens(train_length) ** 1.3)


def check_contenders(model: Any, contenders: Sequence[Contender], train_length: int | None, force: bool) -> None:
    """Refused now, not when their turn comes."""
    check_answers(model)
    for contender in contenders:
        with extend(model, contender.methods, train_length=train_length, force=force):
            pass


def check_room(model: Any, tokenizer: Any, train_length: int, jobs: Sequence[Job], one: Callable[[Job], Sample]) -> None:
    """Where an end is read, it must have room for the question; `one` is a sample of a job."""
    longest = max(job.length for job in jobs)
    cut = {job.task: job for job in jobs if job.length == longest and job.contender.reads != "whole"}
    for task, job in cut.items():
        truncated(tokenizer, one(job), _room(model, train_length, task))


def default_batch_tokens(device: str) -> int:
    return CPU_BATCH if device.startswith("cpu") else GPU_BATCH


def batches(job: Job, subject: Subject) -> list[range]:
    """Runs of indices; their size follows from the length and the settings of the run alone."""
    size = max(1, subject.batch_tokens // job.read_tokens(subject.train_length))
    return [range(first, min(first + size, job.samples)) for first in range(0, job.samples, size)]


def answer_cell(
    subject: Subject,
    job: Job,
    samples: Sequence[Sample],
    recorded: Collection[int],
    emit: Callable[[list[Record]], None],
) -> None:
    """Hands `emit` the missing records, a batch at a time."""
    task = TASKS[job.task]
    model, tokenizer = subject.model, subject.tokenizer
    with extend(model, job.contender.methods, train_length=subject.train_length, force=subject.force):
        for batch in batches(job, subject):
            missing = [index for index in batch if index not in recorded]
            if not missing:
                continue
            start = time.perf_counter()
            prompts = [_prompt(subject, job, samples[index]) for index in batch]
            processor = _hedge(subject, job, prompts, [samples[index] for index in batch])
            found = answers(model, tokenizer, prompts, task.answer_tokens, processor)
            predictions = dict(zip(batch, found, strict=True))
            seconds = (time.perf_counter() - start) / len(batch)
            emit(
                [one for index in missing for one in _records(subject, job, samples[index], index, predictions[index], seconds)]
            )


def sharpness_of(subject: Subject, job: Job, sample: Sample) -> Sharpness | None:
    """Row statistics of one prompt under the job's method; None, with a warning, where attention is not finite."""
    anatomy = anatomy_of(subject.model, subject.train_length)
    means = Means(len(anatomy.layers))
    ids = torch.tensor([subject.tokenizer(sample.prompt, verbose=False).input_ids])
    with extend(subject.model, job.contender.methods, train_length=subject.train_length, force=subject.force, observer=means):
        run_stack(anatomy, ids)
    found = means.result()
    if not bool(found.p_max.isfinite().all() and found.entropy.isfinite().all()):
        warnings.warn(f"{job.label}: attention is not finite, so its sharpness is left out", stacklevel=2)
        return None
    p_max, entropy = (_rounded(table) for table in (found.p_max, found.entropy))
    return Sharpness(job.contender.name, job.task, job.length, sample.tokens, p_max, entropy)


def check_recorded(job: Job, samples: Sequence[Sample], recorded: dict[int, Record]) -> None:
    """What was recorded must have been asked of the same samples that would be made now."""
    for index, record in recorded.items():
        if index < len(samples) and (record.target, record.tokens) != (samples[index].target, samples[index].tokens):
            raise BadInput(
                f"sample {index} of {job.label} is another one now than when it was recorded ({samples[index].tokens} tokens "
                f"and target {samples[index].target!r}, then {record.tokens} and {record.target!r}); give another --out"
            )


def _prompt(subject: Subject, job: Job, sample: Sample) -> list[int]:
    if job.contender.truncates:
        return truncated(subject.tokenizer, sample, _room(subject.model, subject.train_length, job.task))
    return [int(token) for token in subject.tokenizer(sample.prompt, verbose=False).input_ids]


def _hedge(subject: Subject, job: Job, prompts: list[list[int]], samples: Sequence[Sample]) -> Hedge | None:
    """The second reading."""
    if not job.contender.hedges:
        return None
    room = _room(subject.model, subject.train_length, job.task)
    return Hedge(subject.model, prompts, [truncated(subject.tokenizer, sample, room) for sample in samples])


def _room(model: Any, train_length: int, task: str) -> int:
    """Tokens of a prompt that truncation keeps: in a decoder prompt and answer share the training length."""
    return train_length - (0 if unwrapped(model).config.is_encoder_decoder else TASKS[task].answer_tokens)


def _records(subject: Subject, job: Job, sample: Sample, index: int, prediction: str, seconds: float) -> list[Record]:
    """One line a score; the task's own last, so that the others stand in the file where it does."""
    task = TASKS[job.task]
    own = Record(
        model=subject.name,
        method=job.contender.name,
        task=job.task,
        data=job.data,
        length=job.length,
        index=index,
        seed=subject.seed,
        tokens=sample.tokens,
        depth=sample.depth,
        prediction=prediction,
        target=sample.target,
        score=task.mark(prediction, sample),
        seconds=round(seconds, 4),
    )
    return [*(replace(own, task=name, score=score) for name, score in task.marks(prediction, sample).items()), own]


def _rounded(table: torch.Tensor) -> list[list[float]]:
    return [[float(f"{value:.6g}") for value in row] for row in table.tolist()]
