"""The one list of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lengthwise.tasks import babilong, line, passkey, topic
from lengthwise.tasks.sample import Sample


@dataclass(frozen=True)
class Task:
    """Prompts of any length or out of a file, and the score of an answer, from 0 to 1."""

    samples: Callable[..., list[Sample]]  # (tokenizer, length, n, seed, depth=None)
    score: Callable[..., float]  # (prediction, target), and the labels of a sample that has some
    answer_tokens: int  # the most tokens an answer takes
    read: Callable[[Any, Path], list[Sample]]  # (tokenizer, path)
    material: str = ""  # what the samples are made of, in words, where it is not what the package brings
    about: str = ""  # the task in one line, where it shares its file with others

    def mark(self, prediction: str, sample: Sample) -> float:
        """The score of an answer to one sample."""
        labels = (sample.labels,) if sample.labels else ()
        return float(self.score(prediction, sample.target, *labels))


def _babilong(kind: str, told: str) -> Task:
    make = partial(babilong.samples, kind=kind)
    about = f"BABILong {kind}: facts between the sentences of a book tell {told}."
    return Task(make, babilong.score, babilong.ANSWER_TOKENS, babilong.read, about=about)


TASKS: dict[str, Task] = {
    "babilong_qa1": _babilong("qa1", "where somebody is"),
    "babilong_qa2": _babilong("qa2", "where a thing is that somebody carries"),
    "babilong_qa3": _babilong("qa3", "where a thing was before"),
    "babilong_qa4": _babilong("qa4", "what lies on one side of a place"),
    "babilong_qa5": _babilong("qa5", "who gave what to whom"),
    "line": Task(line.samples, line.score, line.ANSWER_TOKENS, line.read),
    "passkey": Task(passkey.samples, passkey.score, passkey.ANSWER_TOKENS, passkey.read),
    "topic": Task(topic.samples, topic.score, topic.ANSWER_TOKENS, topic.read),
}
