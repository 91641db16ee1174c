"""The one list of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lengthwise.tasks import line, passkey
from lengthwise.tasks.sample import Sample


@dataclass(frozen=True)
class Task:
    """Prompts of any length, and the score of an answer, from 0 to 1."""

    samples: Callable[..., list[Sample]]
    score: Callable[[str, str], float]


TASKS: dict[str, Task] = {
    "line": Task(line.samples, line.score),
    "passkey": Task(passkey.samples, passkey.score),
}
