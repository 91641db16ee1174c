"""Answer and score one cell of an evaluation: the samples of one task at one length under one method.

Batches are fixed runs of sample indices. What is already recorded never changes them: a batch of which only some samples are
missing is answered whole again, so that an evaluation resumed with the same samples predicts bit for bit what an undisturbed
one does.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from lengthwise.calibration.measure import RowMeans, run_stack
from lengthwise.errors import BadInput
from lengthwise.evaluation.hedge import Hedge
from lengthwise.evaluation.sweep.generate import greedy_answers, truncated_prompt
from lengthwise.evaluation.sweep.jobs import EvaluatedModel, Job
from lengthwise.evaluation.sweep.named_methods import NamedMethod
from lengthwise.methods.spec import BOTH, END, WHOLE
from lengthwise.models.anatomy import anatomy_of, has_encoder
from lengthwise.models.extend import extend
from lengthwise.models.suitability import check_can_answer
from lengthwise.records import Record, Sharpness
from lengthwise.tasks import Sample

# Tokens in a batch: a GPU fills up at about this many, a CPU gains nothing from more
GPU_BATCH = 16384
CPU_BATCH = 1024


def check_methods(model: Any, methods: Sequence[NamedMethod], train_length: int | None, force: bool) -> None:
    """Try every method once, so that one that does not fit is refused now and not when its turn comes."""
    check_can_answer(model)
    for method in methods:
        with extend(model, method.installs, train_length=train_length, force=force):
            pass


def check_truncation(
    model: Any, tokenizer: Any, train_length: int, jobs: Sequence[Job], sample_of: Callable[[Job], Sample]
) -> None:
    """Refuse jobs that truncate prompts where the question alone is longer than what is kept."""
    longest = max(job.length for job in jobs)
    # Of cases in a file a shorter one may have the longer question
    asked = [job for job in jobs if (job.data or job.length == longest) and job.method.reads != WHOLE]
    truncating = {(job.task, job.length): job for job in asked}
    for job in truncating.values():
        truncated_prompt(tokenizer, sample_of(job), _kept_tokens(model, train_length, job))


def default_batch_tokens(device: str) -> int:
    return CPU_BATCH if device.startswith("cpu") else GPU_BATCH


def batches(job: Job, evaluated: EvaluatedModel) -> list[range]:
    """Fixed runs of sample indices; their size follows from the length and the settings of the run alone."""
    size = max(1, evaluated.batch_tokens // job.read_tokens(evaluated.train_length))
    return [range(first, min(first + size, job.samples)) for first in range(0, job.samples, size)]


def answer_cell(
    evaluated: EvaluatedModel,
    job: Job,
    samples: Sequence[Sample],
    recorded: Collection[int],
    write: Callable[[list[Record]], None],
) -> None:
    """Answer the samples that are not `recorded` and hand their records to `write`, a batch at a time."""
    task = job.definition
    model, tokenizer = evaluated.model, evaluated.tokenizer
    with extend(model, job.method.installs, train_length=evaluated.train_length, force=evaluated.force):
        for batch in batches(job, evaluated):
            missing = [index for index in batch if index not in recorded]
            if not missing:
                continue
            start = time.perf_counter()
            prompts = [_prompt(evaluated, job, samples[index]) for index in batch]
            processor = _hedge(evaluated, job, prompts, [samples[index] for index in batch])
            answers = dict(zip(batch, greedy_answers(model, tokenizer, prompts, task.answer_tokens, processor), strict=True))
            seconds = (time.perf_counter() - start) / len(batch)
            records = (_records(evaluated, job, samples[index], index, answers[index], seconds) for index in missing)
            write(list(chain.from_iterable(records)))


def sharpness_of(evaluated: EvaluatedModel, job: Job, sample: Sample) -> Sharpness | None:
    """Row statistics of one prompt under the job's method; None, with a warning, where attention is not finite."""
    anatomy = anatomy_of(evaluated.model, evaluated.train_length)
    means = RowMeans(len(anatomy.layers))
    ids = torch.tensor([evaluated.tokenizer(sample.prompt, verbose=False).input_ids])
    with extend(
        evaluated.model, job.method.installs, train_length=evaluated.train_length, force=evaluated.force, observer=means
    ):
        run_stack(anatomy, ids)
    result = means.result()
    if not bool(result.p_max.isfinite().all() and result.entropy.isfinite().all()):
        warnings.warn(f"{job.label}: attention is not finite, so its sharpness is left out", stacklevel=2)
        return None
    p_max, entropy = (_rounded(table) for table in (result.p_max, result.entropy))
    return Sharpness(job.method.name, job.task, job.length, sample.tokens, p_max, entropy)


def check_recorded(job: Job, samples: Sequence[Sample], recorded: dict[int, Record]) -> None:
    """Refuse to go on where the recorded samples are not those that would be made now."""
    for index, record in recorded.items():
        if index < len(samples) and (record.target, record.tokens) != (samples[index].target, samples[index].tokens):
            raise BadInput(
                f"sample {index} of {job.label} is another one now than when it was recorded ({samples[index].tokens} tokens "
                f"and target {samples[index].target!r}, then {record.tokens} and {record.target!r}); give another --out"
            )


def _prompt(evaluated: EvaluatedModel, job: Job, sample: Sample) -> list[int]:
    if job.method.reads == END:
        return truncated_prompt(evaluated.tokenizer, sample, _kept_tokens(evaluated.model, evaluated.train_length, job))
    return [int(token) for token in evaluated.tokenizer(sample.prompt, verbose=False).input_ids]


def _hedge(evaluated: EvaluatedModel, job: Job, prompts: list[list[int]], samples: Sequence[Sample]) -> Hedge | None:
    """The processor that also reads the end of each prompt, where the method asks for it."""
    if job.method.reads != BOTH:
        return None
    room = _kept_tokens(evaluated.model, evaluated.train_length, job)
    return Hedge(evaluated.model, prompts, [truncated_prompt(evaluated.tokenizer, sample, room) for sample in samples])


def _kept_tokens(model: Any, train_length: int, job: Job) -> int:
    """Tokens of a prompt that truncation keeps; a decoder's answer takes part of the training length."""
    return train_length - (0 if has_encoder(model) else job.definition.answer_tokens)


def _records(evaluated: EvaluatedModel, job: Job, sample: Sample, index: int, prediction: str, seconds: float) -> list[Record]:
    """One record a score. The task's own comes last: where it is in the file, the others are too."""
    task = job.definition
    main = Record(
        model=evaluated.name,
        method=job.method.name,
        task=job.task,
        data=job.data,
        length=job.length,
        index=index,
        seed=evaluated.seed,
        tokens=sample.tokens,
        depth=sample.depth,
        prediction=prediction,
        target=sample.target,
        score=task.mark(prediction, sample),
        seconds=round(seconds, 4),
    )
    return [*(replace(main, task=name, score=score) for name, score in task.marks(prediction, sample).items()), main]


def _rounded(table: torch.Tensor) -> list[list[float]]:
    return [[float(f"{value:.6g}") for value in row] for row in table.tolist()]
