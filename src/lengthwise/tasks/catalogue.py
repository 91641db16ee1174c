"""The one list of tasks. Those of a user's own stand beside it: FILE.py:NAME, or what an installed package announces."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from lengthwise.common import plugins
from lengthwise.errors import BadInput, did_you_mean, require
from lengthwise.tasks import (
    answer,
    association,
    babilong,
    code_completion,
    code_key_retrieval,
    line,
    multi_document_qa,
    passkey,
    ruler,
    topic,
)
from lengthwise.tasks.ruler import chains, needles, questions, references, words
from lengthwise.tasks.sample import Sample

# What code tasks are made of differs from one Python to the next
PYTHON = f"the standard library of Python {platform.python_version()}"


@dataclass(frozen=True)
class Task:
    """Prompts of any length or out of a file, and the score of an answer, from 0 to 1."""

    samples: Callable[..., list[Sample]]  # (tokenizer, length, n, seed, depth=None)
    score: Callable[..., float]  # (prediction, target), and the labels of a sample that has some
    answer_tokens: int  # the most tokens an answer takes
    read: Callable[[Any, Path], list[Sample]]  # (tokenizer, path)
    material: str = ""  # what the samples are made of, in words, where it is not what the package brings
    about: str = ""  # the task in one line, where it shares its file with others
    also: Mapping[str, Callable[..., float]] = field(default_factory=dict)  # further scores of the same answers, by their names
    bucket: int | None = None  # the cases of a file that share a mean have from k to k + 1 times so many tokens; None for all
    take: Callable[[Path], dict[str, Any]] | None = None  # what `samples` may be made of, out of a user's file or folder
    code: str = ""  # of a user's own task: its file or package, and a digest

    def __post_init__(self) -> None:
        tokens = self.answer_tokens
        require(isinstance(tokens, int) and tokens > 0, f"a task's answer takes at least 1 token, not {tokens!r}")

    @classmethod
    def from_module(cls, module: Any, **others: Any) -> Task:
        """The task of a file that has `samples`, `score`, `ANSWER_TOKENS` and `read`; `others` are further fields."""
        return cls(module.samples, module.score, module.ANSWER_TOKENS, module.read, **others)

    def mark(self, prediction: str, sample: Sample) -> float:
        """The score of an answer to one sample."""
        return _mark(self.score, prediction, sample)

    def marks(self, prediction: str, sample: Sample) -> dict[str, float]:
        """The further scores of the same answer."""
        return {name: _mark(score, prediction, sample) for name, score in self.also.items()}

    def of(self, path: Path) -> Task:
        """The same task, its samples made of a user's file or folder."""
        if self.take is None:
            raise BadInput("give lengths or a file of cases (--data), not both: the cases have their own lengths")
        taken = self.take(path)
        digest = hashlib.sha256(repr(taken).encode()).hexdigest()[:16]
        return replace(self, samples=partial(self.samples, **taken), material=f"{path.name} ({digest})")


def _mark(score: Callable[..., float], prediction: str, sample: Sample) -> float:
    labels = (sample.labels,) if sample.labels else ()
    value = score(prediction, sample.target, *labels)
    require(isinstance(value, int | float) and 0 <= value <= 1, f"a score is a number from 0 to 1, not {value!r}")
    return float(value)


def _babilong(kind: str, told: str) -> Task:
    about = f"BABILong {kind}: facts between the sentences of a book tell {told}."
    return replace(Task.from_module(babilong), samples=partial(babilong.samples, kind=kind), about=about)


def _ruler(kind: str, samples: Callable[..., list[Sample]], answer_tokens: int, told: str, **others: Any) -> dict[str, Task]:
    score = references.any_held if kind.startswith("qa") else references.share_held
    about = f"RULER {kind}: {told}."
    return {f"{ruler.NAME}_{kind}": Task(samples, score, answer_tokens, references.read, about=about, **others)}


def _ruler_needles() -> dict[str, Task]:
    """The eight tasks of needles; those in essays can be hidden in a text of the user's."""
    tasks: dict[str, Task] = {}
    for kind, hidden in needles.KINDS.items():
        others = {} if hidden.haystack != "essays" else {"take": needles.take}
        among = {"noise": "in noise", "essays": "in essays", "needles": "among others"}[hidden.haystack]
        there = hidden.keys * hidden.values
        count = f"one {hidden.value}" if there == 1 else f"{hidden.values * hidden.asked} of {there} {hidden.value}s"
        what = f"{count}, hidden {among}"
        tasks |= _ruler(kind, partial(needles.samples, kind=kind), needles.ANSWER_TOKENS, what, **others)
    return tasks


TASKS: dict[str, Task] = {
    "answer": Task.from_module(answer, also={"answer_exact": answer.exact, "answer_f1": answer.f1}),
    "association": Task.from_module(association),
    "babilong_qa1": _babilong("qa1", "where somebody is"),
    "babilong_qa2": _babilong("qa2", "where a thing is that somebody carries"),
    "babilong_qa3": _babilong("qa3", "where a thing was before"),
    "babilong_qa4": _babilong("qa4", "what lies on one side of a place"),
    "babilong_qa5": _babilong("qa5", "who gave what to whom"),
    "code_completion": Task.from_module(
        code_completion,
        material=PYTHON,
        also={"code_completion_es": code_completion.edit_similarity},
        bucket=code_completion.BUCKET,
        take=code_completion.take,
    ),
    "code_key_retrieval": Task.from_module(code_key_retrieval, material=PYTHON, take=code_key_retrieval.take),
    "line": Task.from_module(line),
    "multi_document_qa": Task.from_module(multi_document_qa, take=multi_document_qa.take),
    "passkey": Task.from_module(passkey),
    **_ruler_needles(),
    **_ruler("vt", chains.samples, chains.ANSWER_TOKENS, "all variables of a chain of assignments, hidden in noise"),
    **_ruler("cwe", words.common_words, words.COMMON_TOKENS, "the ten most common words of a list"),
    **_ruler("fwe", words.frequent_words, words.FREQUENT_TOKENS, "the three most frequent words of a coded text"),
    **_ruler(
        "qa_1",
        questions.one_document,
        questions.ANSWER_TOKENS,
        "a question that one of many documents answers",
        take=multi_document_qa.take,
    ),
    **_ruler("qa_2", questions.two_documents, questions.ANSWER_TOKENS, "a question that takes two of many documents"),
    "topic": Task.from_module(topic),
}
GROUPS = {ruler.NAME: ruler.NAMES}  # names that stand for several tasks


def without_groups(names: str | Iterable[str]) -> list[str]:
    """Names of tasks from one name or several, with the tasks of a group in place of its name."""
    names = [names] if isinstance(names, str) else names
    return list(dict.fromkeys(name for given in names for name in GROUPS.get(given, (given,))))


def find_task(name: str) -> Task:
    """The task of a name, ours or a plug-in's. Only for names that a user typed: a FILE.py:NAME is code that is run."""
    plugin = plugins.find("task", name, TASKS)
    if plugin is None and name not in TASKS:
        grouped = set().union(*GROUPS.values())
        installed = [entry.name for entry in plugins.announced("task")]
        listed = [*(task for task in TASKS if task not in grouped), *GROUPS, *installed]
        hint = did_you_mean(name, [*listed, *grouped], f"the tasks are {', '.join(listed)}")
        raise BadInput(f"no task {name!r}; {hint}")
    if plugin is None:
        return TASKS[name]
    task = plugin.value
    if not isinstance(task, Task):
        raise BadInput(f"{name} is a {type(task).__name__}; a task is a lengthwise.tasks.Task")
    # Records go by these names, and two tasks may have a further score of one name
    also = {f"{name}_{score}": mark for score, mark in task.also.items()}
    return replace(task, also=also, code=" ".join(plugin.code.values()))


def scores_of_records(own: Mapping[str, Task] | None = None) -> dict[str, Callable[[str, str], float]]:
    """Score functions by task, for checking records; without those that need a sample's labels, which no record holds.

    `own` are tasks of the user's own that are at hand.
    """
    tasks = {**TASKS, **(own or {})}
    named = [(name, task.score) for name, task in tasks.items()] + [
        pair for task in tasks.values() for pair in task.also.items()
    ]
    return {name: score for name, score in named if "labels" not in signature(score).parameters}
