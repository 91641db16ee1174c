"""The lines of a run directory: one sample answered, and how sharp attention was in one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from annotated_types import Ge, Le, MinLen

from lengthwise.common.formats import Declared
from lengthwise.common.text import LONGEST

Length = Annotated[int, Ge(1), Le(LONGEST)]  # tokens
Heads = Annotated[list[Annotated[list[float], MinLen(1)]], MinLen(1)]  # [layers][heads]


class CellKey(NamedTuple):
    """The samples that share one mean."""

    method: str
    task: str
    data: str
    length: int


@dataclass(frozen=True)
class Record(Declared):
    """One sample, answered and scored."""

    model: str  # the name the model was given, or its checkpoint's
    method: str  # the method's spec, `none` or `truncate`
    task: str  # name of the task
    data: str  # name of the file the sample comes from, "" for generated samples
    length: Length  # tokens asked for; for a file its mean number of tokens, rounded
    index: Annotated[int, Ge(0)]  # which sample of its task, data and length
    seed: int  # seed the samples were made from
    tokens: int  # tokens the prompt really has
    depth: Annotated[float, Ge(0), Le(1)] | None  # where the answer stands in the prompt: 0 beginning, 1 end, None unknown
    prediction: str  # what the model answered, greedily
    target: str  # what it should have answered
    score: Annotated[float, Ge(0), Le(1)]  # 1 is right
    seconds: float  # time its batch took, shared among the batch

    @property
    def cell(self) -> CellKey:
        return CellKey(self.method, self.task, self.data, self.length)

    @property
    def key(self) -> tuple[CellKey, int]:
        return self.cell, self.index


@dataclass(frozen=True)
class Sharpness(Declared):
    """How sharp attention is on the first sample of a method, task and length."""

    method: str  # the method's spec
    task: str  # name of the task
    length: Length  # tokens asked for
    tokens: int  # tokens the prompt really has
    p_max: Heads  # mean largest probability of a row
    entropy: Heads  # mean entropy of a row, in nats

    @property
    def key(self) -> tuple[str, str, int]:
        return self.method, self.task, self.length
