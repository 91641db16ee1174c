"""The lines of a run directory: one sample answered, and how sharp attention was in one cell."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, NamedTuple, TypeVar

Line = TypeVar("Line")


class CellKey(NamedTuple):
    """The samples that share one mean."""

    method: str
    task: str
    data: str
    length: int


@dataclass(frozen=True)
class Record:
    """One sample, answered and scored."""

    model: str  # the name the model was given, or its checkpoint's
    method: str  # the method's spec, `none` or `truncate`
    task: str  # name of the task
    data: str  # name of the official file the sample comes from, "" for generated samples
    length: int  # tokens asked for; for an official file its mean number of tokens, rounded
    index: int  # which sample of its task, data and length
    seed: int  # seed the samples were made from
    tokens: int  # tokens the prompt really has
    depth: float | None  # where the answer stands in the prompt: 0 beginning, 1 end, None unknown
    prediction: str  # what the model answered, greedily
    target: str  # what it should have answered
    score: float  # 0 to 1
    seconds: float  # time its batch took, shared among the batch

    @property
    def cell(self) -> CellKey:
        return CellKey(self.method, self.task, self.data, self.length)

    @property
    def key(self) -> tuple[CellKey, int]:
        return self.cell, self.index


@dataclass(frozen=True)
class Sharpness:
    """How sharp attention is on the first sample of a method, task and length."""

    method: str  # the method's spec
    task: str  # name of the task
    length: int  # tokens asked for
    tokens: int  # tokens the prompt really has
    p_max: list[list[float]]  # [layers][heads], mean largest probability of a row
    entropy: list[list[float]]  # [layers][heads], mean entropy of a row, in nats

    @property
    def key(self) -> tuple[str, str, int]:
        return self.method, self.task, self.length


def to_json(line: Any) -> dict[str, Any]:
    return asdict(line)


def from_json(kind: type[Line], document: Any) -> Line:
    """Refuses, as a ValueError, what is not exactly such a line; older ones may lack a field that has a default."""
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    names = {field.name: field.default is MISSING for field in fields(kind)}  # type: ignore[arg-type]
    if missing := [name for name, needed in names.items() if needed and name not in document]:
        raise ValueError(f"it has no {missing[0]!r}")
    if unknown := [name for name in document if name not in names]:
        raise ValueError(f"it has an unknown key {unknown[0]!r}")
    return kind(**document)
