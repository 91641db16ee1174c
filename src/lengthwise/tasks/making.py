"""Make or read a task's samples, by what may be a user's own code, and refuse what is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lengthwise.errors import NoRoom, require
from lengthwise.tasks.catalogue import Task
from lengthwise.tasks.sample import Sample

HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")


def make_samples(name: str, task: Task, tokenizer: Any, length: int, n: int, seed: int) -> list[Sample]:
    """`n` samples of a task at a length; refuses what a user's own task may return instead."""
    try:
        made = task.samples(tokenizer, length, n, seed)
    except NoRoom as error:
        raise NoRoom(f"{name}: {error}") from error
    asked, due = ("one sample", "one Sample") if n == 1 else (f"{n} samples", f"{n} Samples")
    problem = f"asked for {asked}, the task {name} must make a list of {due}, not {made!r:.100}"
    require(_are_samples(made) and len(made) == n, problem)
    _check_whole(name, made)
    return made


def read_samples(name: str, task: Task, tokenizer: Any, path: Path) -> list[Sample]:
    """A file's samples; refuses what a user's own task may return instead."""
    read = task.read(tokenizer, path)
    require(_are_samples(read) and bool(read), f"of {path} the task {name} must make a list of Samples, not {read!r:.100}")
    _check_whole(name, read)
    return read


def _are_samples(made: object) -> bool:
    return isinstance(made, list) and all(isinstance(sample, Sample) for sample in made)


def _check_whole(name: str, made: list[Sample]) -> None:
    """Refuse samples with values that records could not hold."""
    for sample in made:
        given = (sample.prompt, sample.target, sample.question)
        # Half a character cannot be written
        texts = all(isinstance(text, str) and not HALF_A_CHARACTER.search(text) for text in given)
        placed = sample.depth is None or (isinstance(sample.depth, int | float) and 0 <= sample.depth <= 1)
        numbers = type(sample.tokens) is int and placed
        what = "prompt, target and question are texts, tokens a whole number, depth is None or from 0 to 1"
        require(texts and numbers, f"the task {name} has made a Sample that is none: {what}; it made {sample!r:.300}")
        ends = sample.prompt.endswith(sample.question)
        require(ends, f"the task {name} has made a prompt that does not end with its question {sample.question[:40]!r}")
