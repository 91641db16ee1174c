"""The lines of a run directory: one sample answered, and how sharp attention was in one cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

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

    def __post_init__(self) -> None:
        """Refuses, as a ValueError, numbers that no sample has: an interval, or a chart, could not be made of them."""
        for name, value, most in (("index", self.index, math.inf), ("depth", self.depth, 1), ("score", self.score, 1)):
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"its {name!r} is {value}, not {'0 or above' if most == math.inf else 'from 0 to 1'}")

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
    check_kinds(document, _kinds_of(kind))  # type: ignore[arg-type]
    return kind(**document)


@cache
def _kinds_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def check_kinds(document: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuses, as a ValueError, the first value that is not of its kind; a key that is not there is nobody's business here."""
    for name, kind in kinds.items():
        if name in document and not _is(document[name], kind):
            words = kind.__name__ if isinstance(kind, type) else str(kind)
            raise ValueError(f"its {name!r} is {repr(document[name])[:40]}, not {words}")


def _is(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if isinstance(kind, UnionType):
        return any(_is(value, one) for one in get_args(kind))
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer is list:
        return isinstance(value, list) and all(_is(one, inner[0]) for one in value)
    if outer is dict:
        # JSON has no keys but texts
        return isinstance(value, dict) and all(_is(one, inner[1]) for one in value.values())
    if outer is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    # JSON's true is no number, though Python's is
    return isinstance(value, outer) and not (outer is int and isinstance(value, bool))
