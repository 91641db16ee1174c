"""The samples of an evaluation: generated for tasks and lengths, or the cases of one file."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.common.files import read_file
from lengthwise.errors import is_out_of_memory, require
from lengthwise.evaluation.sweep.jobs import Job
from lengthwise.evaluation.sweep.named_methods import NamedMethod
from lengthwise.tasks import TASKS, Sample, Task, find_task, without_groups
from lengthwise.tasks.making import make_samples, read_samples
from lengthwise.tasks.material.hub import is_hub
from lengthwise.tasks.material.token_counts import token_count

NEAR = 0.1  # share of the length asked for, by which the longest prompt may differ
SPARE = 4  # where a prompt of a task fits into the length by so much, all do


class Questions:
    """Samples by task and length; they are made once and shared by all methods."""

    def __init__(
        self,
        tokenizer: Any,
        tasks: str | Sequence[str] | Mapping[str, Task],
        lengths: Sequence[int],
        samples: int,
        seed: int,
        data: str | Path | None = None,
    ) -> None:
        self.tasks, self.lengths, self.samples = tasks_by_name(tasks), sorted(set(lengths)), samples
        # As they are without a user's material: what a job carries with it
        self.definitions = {name: find_task(name) for name in self.tasks}
        self.data = None if data is None else Path(data)
        self._path = data
        self._check()

        @lru_cache(maxsize=2)
        def generated(task: str, length: int, n: int = samples) -> list[Sample]:
            made = make_samples(task, self.tasks[task], tokenizer, length, n, seed)
            tell_length(task, tokenizer, made, length)
            return made

        self._generated = generated
        self._first: dict[tuple[str, int], list[Sample]] = {}
        if self.data is not None and self.lengths:
            self.tasks = {name: task.of(self.data) for name, task in self.tasks.items()}
            self.data = None
        if self.data is not None:
            ((name, task),) = self.tasks.items()
            read = read_samples(name, task, tokenizer, self.data)
            check_answerable(name, task, read, self.data)
            self.cases = by_length(read, task.bucket)
            self.lengths = list(self.cases)
        else:
            # Refused now, not after hours at other lengths: the shortest one may have no room for some question
            shortest = self.lengths[0]
            for name, task in self.tasks.items():
                generated(name, shortest, 1)
                if not has_room(task, tokenizer, shortest // SPARE, seed):
                    self._first[name, shortest] = generated(name, shortest)

    @property
    def materials(self) -> dict[str, str | None]:
        """By task, what its generated samples are made of; None is what the package brings."""
        return {} if self.data is not None else {name: task.material or None for name, task in self.tasks.items()}

    @property
    def files(self) -> dict[str, str]:
        """The name of the file of cases and a digest of its content; for a data set of the hub, of the rows read."""
        if self.data is None:
            return {}
        content = repr(self.cases).encode() if is_hub(self.data) else read_file(self.data)
        return {self.data.name: hashlib.sha256(content).hexdigest()[:16]}

    @property
    def given(self) -> dict[str, str | None]:
        """Where each file or material was read from; None for samples given in Python."""
        if self.data is not None:
            return {self.data.name: str(self._path)}
        path = None if self._path is None else str(self._path)
        other = [task for name, task in self.tasks.items() if task.samples is not self.definitions[name].samples]
        return {task.material: path for task in other}

    @property
    def code(self) -> dict[str, str]:
        """By name, where tasks of the user's own come from, with a digest."""
        return {name: task.code for name, task in self.definitions.items() if task.code}

    def jobs(self, methods: Sequence[NamedMethod], sharpness: bool) -> list[Job]:
        """One job a cell: shortest lengths first, the methods of one task and length side by side."""
        name = "" if self.data is None else self.data.name
        plugins = {name: task for name, task in self.definitions.items() if task.code}
        return [
            Job(method, task, name, length, self._count(length), sharpness and self.data is None, plugins.get(task))
            for length in self.lengths
            for task in self.tasks
            for method in methods
        ]

    def samples_of(self, job: Job) -> Sequence[Sample]:
        if self.data is not None:
            return self.cases[job.length]
        return self._first.get((job.task, job.length)) or self._generated(job.task, job.length)

    def example(self, job: Job) -> Sample:
        """One sample of the job, without making the others; of a file's cases the one with the longest question."""
        samples = self._generated(job.task, job.length, 1) if self.data is None else self.cases[job.length]
        return max(samples, key=lambda sample: len(sample.question))

    def _count(self, length: int) -> int:
        return self.samples if self.data is None else min(self.samples, len(self.cases[length]))

    def _check(self) -> None:
        require(self.samples >= 1, f"samples must be at least 1, not {self.samples}")
        if self.data is None:
            require(bool(self.lengths), "give lengths in tokens (--length N ...), or a file of cases (--data FILE)")
        else:
            several = f"--data holds cases of one task; give one --task, not {', '.join(self.tasks)}"
            require(len(self.tasks) == 1, several)


def has_room(task: Task, tokenizer: Any, length: int, seed: int) -> bool:
    """Whether a prompt of the task can be made at a length; whatever a user's own task raises means no."""
    try:
        return bool(task.samples(tokenizer, length, 1, seed))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return False


def tell_length(name: str, tokenizer: Any, made: Sequence[Sample], length: int) -> None:
    """Warn where prompts are not near the length asked for, under which their scores are recorded."""
    tokens = token_count(tokenizer, max((sample.prompt for sample in made), key=len))
    if abs(tokens - length) > NEAR * length:
        warnings.warn(f"asked for {length:,} tokens, the task {name} makes prompts of {tokens:,}", stacklevel=3)


def check_answerable(name: str, task: Task, cases: Sequence[Sample], data: Path) -> None:
    """Refuse cases that no answer could be right to, not even their own target; a user's score may ask for other words."""
    for number, case in enumerate(cases if not task.code else (), 1):
        require(
            any(task.mark(answer, case) == 1 for answer in (case.target, *case.labels)),
            f"case {number} of {data}: no answer would be right, because the task {name} does not find its target "
            f"{case.target[:40]!r} in that target itself; put the target right, or give another --task",
        )


def by_length(cases: Sequence[Sample], bucket: int | None) -> dict[int, list[Sample]]:
    """Cases by their mean number of tokens: all together, or those of each `bucket` tokens wide range, shortest first."""
    if bucket is None:
        return {round(fmean(case.tokens for case in cases)): list(cases)}
    buckets: dict[int, list[Sample]] = {}
    for case in cases:
        buckets.setdefault(case.tokens // bucket, []).append(case)
    # Rounded down, a mean stays in its bucket
    return {int(fmean(case.tokens for case in buckets[k])): buckets[k] for k in sorted(buckets)}


def tasks_by_name(tasks: str | Sequence[str] | Mapping[str, Task]) -> dict[str, Task]:
    """Tasks by their names: the catalogue's, or the caller's own, which may make samples of other material."""
    require(bool(tasks), f"give at least one task: {', '.join(TASKS)}")
    if not isinstance(tasks, Mapping):
        return {name: find_task(name) for name in without_groups(tasks)}
    known = {name: find_task(name) for name in tasks}
    for name, task in tasks.items():
        usual = known[name]
        same = replace(task, samples=usual.samples, material=usual.material) == usual
        require(same, f"the task {name!r} may be given other samples, but must keep its score, its answers and its files")
        named = task.samples is usual.samples or task.material not in ("", usual.material)
        require(named, f"say what the other samples of {name!r} are made of (Task.material), so that runs do not mix")
    return dict(tasks)
