"""Score methods by task and length, with records in a run directory that can be resumed.

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

from lengthwise.common.arguments import require_tokenizer, typed
from lengthwise.common.progress import progress
from lengthwise.common.text import parse_lengths
from lengthwise.errors import require
from lengthwise.evaluation.sweep import in_process, on_ray
from lengthwise.evaluation.sweep.cells import check_methods, check_truncation, default_batch_tokens
from lengthwise.evaluation.sweep.chat import ChatTokenizer
from lengthwise.evaluation.sweep.jobs import EvaluatedModel, Job, RemainingWork
from lengthwise.evaluation.sweep.named_methods import named_methods
from lengthwise.evaluation.sweep.questions import Questions
from lengthwise.evaluation.sweep.run_config import run_config
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.patches import refuse_extended
from lengthwise.records import Record, RunDirectory, check_consistent
from lengthwise.records.config import Config
from lengthwise.tasks import Task, scores_of_records


@typed
def evaluate(
    model: nn.Module,
    tokenizer: Any,
    methods: str | Iterable[object] | Mapping[str, object] = ("none",),
    tasks: str | Sequence[str] | Mapping[str, Task] | None = None,
    lengths: int | Sequence[int] = (),
    samples: int = 100,
    seed: int = 0,
    out: str | Path | None = None,
    *,
    data: str | Path | None = None,
    train_length: int | None = None,
    batch_tokens: int | None = None,
    name: str = "",
    chat: bool = False,
    force: bool = False,
    ray: str | None = None,
    device: str | None = None,
    sharpness: bool = True,
    show_progress: bool = True,
) -> list[Record]:
    """Ask every method every task at every length, or the cases in `data` (a file, or `hub:NAME`), and return the records.

    Some tasks take both: their samples are then made of `data`, a file of questions or a folder of code, at the `lengths`.
    A task with a further score (`Task.also`) has records of that, too, under its name.

    `methods` are specs, method objects, or a mapping from names to them; `truncate` is the baseline that reads the last
    `train_length` tokens, a decoder's answer included. `tasks` are names, or a mapping from names to tasks whose samples are
    made of other material; without them `passkey`, or `answer` for the cases in `data`. `out` is the run directory; without it
    the records are only returned. `batch_tokens` are the tokens of one batch, by default what suits the device. `chat` puts
    prompts into the tokenizer's chat template, whose tokens count within their length. `force` accepts alignments of another
    model. `sharpness` also measures each cell's P_max and entropy on its first sample. `ray` is the address of a Ray cluster,
    or "local"; its workers load the model by its `name`, onto `device`.
    """
    refuse_extended(model, "evaluate")
    require_tokenizer(tokenizer)
    anatomy = anatomy_of(model, train_length)
    tokenizer = ChatTokenizer(tokenizer) if chat else tokenizer
    require(batch_tokens is None or batch_tokens >= 1, f"batch_tokens must be at least 1, not {batch_tokens}")
    compared = named_methods(methods, anatomy.facts)
    check_methods(model, compared, train_length, force)
    asked = parse_lengths(lengths)
    if tasks is None:
        tasks = "passkey" if data is None else "answer"
    questions = Questions(tokenizer, tasks, asked, samples, seed, data)
    jobs = questions.jobs(compared, sharpness)
    check_truncation(model, tokenizer, anatomy.train_length, jobs, questions.example)
    device = device or next(model.parameters()).device.type
    budget = default_batch_tokens(device) if batch_tokens is None else batch_tokens
    name = name or model_fingerprint(anatomy)["name"]
    evaluated = EvaluatedModel(model, tokenizer, name, anatomy.train_length, budget, seed, force, chat)
    config = run_config(anatomy, evaluated, jobs, questions, device)
    cluster = None if ray is None else _cluster(ray, name, device, config)
    with ExitStack() as stack:
        run = RunDirectory(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out, config)
        # Nothing is added to what does not add up
        check_consistent(run.records.lines.values(), run.records.path, run.config, scores_of_records(questions.definitions))
        # A directory that was begun keeps the model's first name
        evaluated = replace(evaluated, name=run.config["model"]["name"])
        stack.callback(run.write_summary)
        remaining = RemainingWork(jobs, run, evaluated.train_length)
        remaining.on_progress = stack.enter_context(progress("evaluating", remaining.total, show_progress))
        if cluster is None:
            in_process.run_jobs(evaluated, jobs, run, questions.samples_of, remaining)
        else:
            on_ray.run_jobs(evaluated, cluster, jobs, run, questions.samples_of, remaining)
        return _records_of(jobs, run)


def _cluster(address: str, name: str, device: str, config: Config) -> on_ray.Cluster:
    on_ray.import_ray()
    settings = config["settings"]
    return on_ray.Cluster(address, name, settings["dtype"], device, settings["parameters"])


def _records_of(jobs: Sequence[Job], run: RunDirectory) -> list[Record]:
    """The records that were asked for; the directory may hold more, or, where an earlier version began it, not every score."""
    cells = [(job.samples, run.of_cell(cell)) for job in jobs for cell in job.cells]
    return [records[index] for samples, records in cells for index in range(samples) if index in records]
