"""Make a task's samples, which may be a user's own code, and refuse what is none."""

from __future__ import annotations

import re
from typing import Any

from lengthwise.errors import NoRoom, require
from lengthwise.tasks.catalogue import Task
from lengthwise.tasks.sample import Sample

HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")


def make_samples(name: str, task: Task, tokenizer: Any, length: int, n: int, seed: int) -> list[Sample]:
    """`n` samples of a task at a length, each of them whole."""
    try:
        made = task.samples(tokenizer, length, n, seed)
    except NoRoom as error:
        raise NoRoom(f"{name}: {error}") from error
    check_made(name, made, n)
    return made


def check_made(name: str, made: object, n: int) -> None:
    """Refuse what a task of the user's own has made where records could not hold it."""
    fits = isinstance(made, list) and len(made) == n and all(isinstance(sample, Sample) for sample in made)
    asked, due = ("one sample", "one Sample") if n == 1 else (f"{n} samples", f"{n} Samples")
    require(fits, f"asked for {asked}, the task {name} must make a list of {due}, not {made!r:.100}")
    for sample in made if isinstance(made, list) else ():
        given = (sample.prompt, sample.target, sample.question)
        # Half a character cannot be written
        texts = all(isinstance(text, str) and not HALF_A_CHARACTER.search(text) for text in given)
        placed = sample.depth is None or (isinstance(sample.depth, int | float) and 0 <= sample.depth <= 1)
        numbers = type(sample.tokens) is int and placed
        what = "prompt, target and question are texts, tokens a whole number, depth is None or from 0 to 1"
        require(texts and numbers, f"the task {name} has made a Sample that is none: {what}; it made {sample!r:.300}")
        ends = sample.prompt.endswith(sample.question)
        require(ends, f"the task {name} has made a prompt that does not end with its question {sample.question[:40]!r}")
