"""The one list of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.tasks import line, passkey, topic
from lengthwise.tasks.sample import Sample


@dataclass(frozen=True)
class Task:
    """Prompts of any length or out of a file, and the score of an answer, from 0 to 1."""

    samples: Callable[..., list[Sample]]  # (tokenizer, length, n, seed, depth=None)
    score: Callable[[str, str], float]  # (prediction, target)
    answer_tokens: int  # the most tokens an answer takes
    read: Callable[[Any, Path], list[Sample]]  # (tokenizer, path)
    material: str = ""  # what the samples are made of, in words, where it is not what the package brings


TASKS: dict[str, Task] = {
    "line": Task(line.samples, line.score, line.ANSWER_TOKENS, line.read),
    "passkey": Task(passkey.samples, passkey.score, passkey.ANSWER_TOKENS, passkey.read),
    "topic": Task(topic.samples, topic.score, topic.ANSWER_TOKENS, topic.read),
}
