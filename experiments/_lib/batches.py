"""Examples of a training, and batches of them by the number of the step, made by worker processes.

Step s is the same whatever came before it, so a run that stops and resumes sees what an undisturbed run sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

IGNORED = -100


@dataclass(frozen=True)
class Bound:
    """A token that belongs to a name."""

    at: int
    name: tuple[int, int, int, int]  # the two tokens the name starts with and the two it ends with


def ends(name: Sequence[int]) -> tuple[int, int, int, int]:
    """The tokens of a name that are asked for; a name of one token says it four times."""
    second, last_but_one = (1, -2) if len(name) > 1 else (0, 0)
    return name[0], name[second], name[last_but_one], name[-1]


@dataclass(frozen=True)
class Example:
    """Tokens in, tokens out; `</s>` included where it belongs."""

    source: str
    tokens: list[int]
    target: list[int]
    text: str = ""  # what the input says; empty for what was never text by itself
    answer: str = ""  # what the target says
    bound: tuple[Bound, ...] = ()  # what the encoder must know at some of the tokens


@dataclass(frozen=True)
class Chunk:
    """Examples of like length; int16, because workers hand them over through shared memory, which can be small."""

    inputs: Tensor  # [examples, length], padded with 0
    labels: Tensor  # [examples, target length], padded with IGNORED
    sources: Tensor  # [examples], places in the list of sources
    bound: Tensor  # [tokens that belong to a name, 6]: example, place, four tokens of the name (reader.py)

    def to(self, device: torch.device | str) -> tuple[Tensor, ...]:
        """All parts on the device, as indices."""
        return tuple(part.to(device, non_blocking=True).long() for part in self._parts)

    def pin_memory(self) -> Chunk:
        return type(self)(*(part.pin_memory() for part in self._parts))

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


def collate(examples: Sequence[Example], sources: Sequence[str], width: int, target_width: int) -> Chunk:
    """A chunk whose inputs and targets are padded to multiples of the widths."""
    return Chunk(
        inputs=padded([example.tokens for example in examples], width, 0),
        labels=padded([example.target for example in examples], target_width, IGNORED),
        sources=torch.tensor([sources.index(example.source) for example in examples], dtype=torch.int16),
        bound=bound_rows(example.bound for example in examples),
    )


def padded(rows: Sequence[list[int]], multiple: int, value: int) -> Tensor:
    """To the longest row's length, rounded up to a multiple."""
    width = -(-max(map(len, rows)) // multiple) * multiple
    return torch.tensor([row + [value] * (width - len(row)) for row in rows], dtype=torch.int16)


def bound_rows(examples: Iterable[Sequence[Bound]]) -> Tensor:  # [tokens that belong to a name, 6]
    rows = [(number, token.at, *token.name) for number, bound in enumerate(examples) for token in bound]
    return torch.tensor(rows, dtype=torch.int16).reshape(-1, 6)


class Stream(IterableDataset[tuple[int, Any]]):
    """The batches of steps `start` to `stop`; worker w of n makes every n-th, and the loader puts them in order."""

    def __init__(self, batch: Callable[[int], Any], start: int, stop: int) -> None:
        self.batch, self.start, self.stop = batch, start, stop

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for step in range(self.start + first, self.stop, stride):
            yield step, self.batch(step)


def loader(stream: Stream, workers: int, pin: bool) -> DataLoader[tuple[int, Any]]:
    return DataLoader(stream, batch_size=None, num_workers=workers, prefetch_factor=4 if workers else None, pin_memory=pin)
