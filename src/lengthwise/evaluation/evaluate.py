"""Score methods by task and length, with records that can be resumed.

    records = lengthwise.evaluate(model, tokenizer, methods=["none", "truncate", alignment], tasks=["passkey"],
                                  lengths=[512, 4096], samples=100, out="runs/x")

Stopped and started again with the same `out`, an evaluation goes on where it was; with more samples, methods, tasks or lengths
it adds to what is there. Several processes may share one `out`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.common.progress import progress
from lengthwise.common.text import lengths_of
from lengthwise.errors import require
from lengthwise.evaluation.sweep import here, on_ray
from lengthwise.evaluation.sweep.cells import Job, Subject, check_contenders, check_room, default_batch_tokens
from lengthwise.evaluation.sweep.contenders import contenders_of
from lengthwise.evaluation.sweep.questions import Questions
from lengthwise.evaluation.sweep.settings import made_with, settings_of
from lengthwise.evaluation.sweep.todo import Left
from lengthwise.models.anatomy import Anatomy, anatomy_of
from lengthwise.models.fingerprint import fingerprint_of
from lengthwise.models.patches import refuse_extended
from lengthwise.records import Record, RunDirectory
from lengthwise.records.config import FORMAT, Config
from lengthwise.tasks import Task


def evaluate(
    model: nn.Module,
    tokenizer: Any,
    methods: Iterable[object] | Mapping[str, object] = ("none",),
    tasks: str | Sequence[str] | Mapping[str, Task] = ("passkey",),
    lengths: int | Sequence[int] = (),
    samples: int = 100,
    seed: int = 0,
    out: str | Path | None = None,
    *,
    data: str | Path | None = None,
    train_length: int | None = None,
    batch_tokens: int | None = None,
    name: str = "",
    force: bool = False,
    ray: str | None = None,
    device: str | None = None,
    sharpness: bool = True,
    show_progress: bool = True,
) -> list[Record]:
    """The records of methods x tasks x lengths x samples, or of the cases in `data`: a file, or `hub:NAME`.

    Some tasks take both: their samples are then made of `data`, a file of questions or a folder of code, at the `lengths`.
    A task with a further score (`Task.also`) has records of that, too, under its name.

    `methods` are specs, method objects, or a mapping from names to them; `truncate` is the baseline that reads the last
    `train_length` tokens, a decoder's answer included. `tasks` are names, or a mapping from names to tasks whose samples are
    made of other material. `out` is the run directory; without it the records are only returned. `batch_tokens` are the
    tokens of one batch, by default what suits the device. `force` accepts alignments of another model. `sharpness` also
    measures each cell's P_max and entropy on its first sample. `ray` is the address of a Ray cluster, or "local"; its workers
    load the model by its `name`, onto `device`.
    """
    refuse_extended(model, "evaluate")
    anatomy = anatomy_of(model, train_length)
    require(batch_tokens is None or batch_tokens >= 1, f"batch_tokens must be at least 1, not {batch_tokens}")
    contenders = contenders_of(methods, anatomy.facts)
    check_contenders(model, contenders, train_length, force)
    tasks = [tasks] if isinstance(tasks, str) else tasks
    questions = Questions(tokenizer, tasks, lengths_of(lengths), samples, seed, data)
    jobs = questions.jobs(contenders, sharpness)
    check_room(model, tokenizer, anatomy.train_length, jobs, questions.one)
    device = device or next(model.parameters()).device.type
    budget = default_batch_tokens(device) if batch_tokens is None else batch_tokens
    subject = Subject(model, tokenizer, name or fingerprint_of(anatomy)["name"], anatomy.train_length, budget, seed, force)
    config = _config(anatomy, subject, jobs, questions, device)
    cluster = None if ray is None else _cluster(ray, subject.name, device, config)
    with ExitStack() as stack:
        run = RunDirectory(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out, config)
        subject = replace(subject, name=run.config["model"]["name"])
        stack.callback(run.write_summary)
        left = Left(jobs, run, subject.train_length)
        left.tick = stack.enter_context(progress("evaluating", left.total, show_progress))
        if cluster is None:
            here.sweep(subject, jobs, run, questions.of, left)
        else:
            on_ray.sweep(subject, cluster, jobs, run, questions.of, left)
        return _asked_for(jobs, run)


def _cluster(address: str, name: str, device: str, config: Config) -> on_ray.Cluster:
    on_ray.installed()
    settings = config["settings"]
    return on_ray.Cluster(address, name, settings["dtype"], device, settings["parameters"])


def _config(anatomy: Anatomy, subject: Subject, jobs: Sequence[Job], questions: Questions, device: str) -> Config:
    return {
        "format": FORMAT,
        "model": {**fingerprint_of(anatomy), "name": subject.name},
        "settings": settings_of(subject),
        "methods": {job.contender.name: job.contender.document for job in jobs},
        "reads": {job.contender.name: job.contender.reads for job in jobs},
        "tasks": questions.materials,
        "data": questions.files,
        "given": questions.given,
        "made_with": made_with(device),
    }


def _asked_for(jobs: Sequence[Job], run: RunDirectory) -> list[Record]:
    run.records.refresh()
    found = [(job, run.of_cell(key)) for job in jobs for key in job.cells]
    return [cell[index] for job, cell in found for index in range(job.samples)]
