"""What is asked in an evaluation: generated samples of tasks at lengths, or the cases of one file."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.errors import BadInput, require
from lengthwise.evaluation.sweep.cells import Job
from lengthwise.evaluation.sweep.contenders import Contender
from lengthwise.tasks import TASKS, Sample, Task
from lengthwise.tasks.hub import is_hub


class Questions:
    """The samples of a task and length are made once and shared by all methods."""

    def __init__(
        self,
        tokenizer: Any,
        tasks: Sequence[str] | Mapping[str, Task],
        lengths: Sequence[int],
        samples: int,
        seed: int,
        data: str | Path | None = None,
    ) -> None:
        self.tasks, self.lengths, self.samples = tasks_of(tasks), sorted(set(lengths)), samples
        self.data = None if data is None else Path(data)
        self._path = data
        self._check()
        if self.data is not None and self.lengths:
            self.tasks = {name: task.of(self.data) for name, task in self.tasks.items()}
            self.data = None
        if self.data is not None:
            (task,) = self.tasks.values()
            self.cases = by_length(task.read(tokenizer, self.data), task.bucket)
            self.lengths = list(self.cases)
        else:
            # Refused now, not after hours at other lengths: the shortest one may have no room for its question
            for task in self.tasks.values():
                task.samples(tokenizer, self.lengths[0], 1, seed)

        @lru_cache(maxsize=2)
        def made(task: str, length: int, n: int = samples) -> list[Sample]:
            return self.tasks[task].samples(tokenizer, length, n, seed)

        self._made = made

    @property
    def materials(self) -> dict[str, str | None]:
        """What the generated samples of each task are made of; None is what the package brings."""
        return {} if self.data is not None else {name: task.material or None for name, task in self.tasks.items()}

    @property
    def files(self) -> dict[str, str]:
        """The file's name and a digest of its content; of a data set of the hub, of what was read."""
        if self.data is None:
            return {}
        content = repr(self.cases).encode() if is_hub(self.data) else self.data.read_bytes()
        return {self.data.name: hashlib.sha256(content).hexdigest()[:16]}

    @property
    def given(self) -> dict[str, str | None]:
        """The path of the file, or of what samples are made of; None for samples given in Python."""
        if self.data is not None:
            return {self.data.name: str(self._path)}
        path = None if self._path is None else str(self._path)
        return {task.material: path for name, task in self.tasks.items() if task.samples is not TASKS[name].samples}

    def jobs(self, contenders: Sequence[Contender], sharpness: bool) -> list[Job]:
        """Shortest first, and the methods of one task and length side by side."""
        name = "" if self.data is None else self.data.name
        return [
            Job(contender, task, name, length, self._count(length), sharpness and self.data is None)
            for length in self.lengths
            for task in self.tasks
            for contender in contenders
        ]

    def of(self, job: Job) -> Sequence[Sample]:
        return self._made(job.task, job.length) if self.data is None else self.cases[job.length]

    def one(self, job: Job) -> Sample:
        """A sample of the job, without making the others; of a file, the one that asks most."""
        some = self._made(job.task, job.length, 1) if self.data is None else self.cases[job.length]
        return max(some, key=lambda sample: len(sample.question))

    def _count(self, length: int) -> int:
        return self.samples if self.data is None else min(self.samples, len(self.cases[length]))

    def _check(self) -> None:
        require(self.samples >= 1, f"samples must be at least 1, not {self.samples}")
        if self.data is None:
            require(bool(self.lengths), "give lengths in tokens (--length N ...), or a file of cases (--data FILE)")
        else:
            one = f"--data holds cases of one task; give one --task, not {', '.join(self.tasks)}"
            require(len(self.tasks) == 1, one)
        require(
            not self.lengths or self.lengths[0] > 0, f"a length must be at least 1 token, not {min(self.lengths, default=0)}"
        )


def by_length(cases: Sequence[Sample], bucket: int | None) -> dict[int, list[Sample]]:
    """Cases by their mean number of tokens: all of them, or those within each bucket of so many tokens, shortest first."""
    if bucket is None:
        return {round(fmean(case.tokens for case in cases)): list(cases)}
    buckets: dict[int, list[Sample]] = {}
    for case in cases:
        buckets.setdefault(case.tokens // bucket, []).append(case)
    # Rounded down, a mean stays in its bucket
    return {int(fmean(case.tokens for case in buckets[k])): buckets[k] for k in sorted(buckets)}


def tasks_of(tasks: Sequence[str] | Mapping[str, Task]) -> dict[str, Task]:
    """Tasks by their names: the catalogue's, or given ones that make samples of other material."""
    require(bool(tasks), f"give at least one task: {', '.join(TASKS)}")
    for name in tasks:
        if name not in TASKS:
            near = difflib.get_close_matches(name, TASKS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the tasks are {', '.join(TASKS)}"
            raise BadInput(f"no task {name!r}; {hint}")
    if not isinstance(tasks, Mapping):
        return {name: TASKS[name] for name in tasks}
    for name, task in tasks.items():
        usual = TASKS[name]
        alike = replace(task, samples=usual.samples, material=usual.material) == usual
        require(alike, f"the task {name!r} may be given other samples, but must keep its score, its answers and its files")
        said = task.samples is usual.samples or task.material not in ("", usual.material)
        require(said, f"say what the other samples of {name!r} are made of (Task.material), so that runs do not mix")
    return dict(tasks)
