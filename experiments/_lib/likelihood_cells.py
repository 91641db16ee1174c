"""What is measured: the negative log-likelihood of every token, by each method in one forward.

OUT/cells.jsonl     a line a method and length, when it is finished
OUT/nll/            its likelihoods, [streams, length]

Of continuations some methods need no forward of their own:

truncate at any length beyond       = none at the training length: the same case, read from its end
hedge-X, hedge+X at a length beyond = X there, mixed by Bayes with that (lengthwise/evaluation/hedge.py)
"""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments._lib.alignments import behind, hedged
from experiments._lib.results import SETTINGS, read, unfinished
from lengthwise.common.files import write_whole
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.evaluation.hedge import mixed_nll
from lengthwise.evaluation.likelihood import token_nll
from lengthwise.methods.spec import TRUNCATE
from lengthwise.records.append_only import AppendOnly, read_lines

CELLS = "cells.jsonl"
FOLDER = "language_modelling"
PLAIN = "none"
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Cell(Declared):
    """One method at one length, over all streams."""

    method: str  # as named, with places to fill
    length: int  # tokens of the forward
    spec: str  # as filled at this length
    perplexity: float  # over all tokens
    seconds: float  # of all forwards; calibration is not counted
    nll: str  # file of the likelihoods

    @property
    def key(self) -> tuple[str, int]:
        return self.method, self.length


class Cells:
    """The finished cells of one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.lines = AppendOnly(folder / CELLS, Cell)

    def once(self, name: str, spec: str, length: int, measured: Callable[[], tuple[Tensor, float]]) -> None:
        """Adds the cell where it is missing; it is measured as likelihoods and seconds."""
        for _ in unfinished(self.lines, [[(name, length)]]):
            nll, seconds = measured()
            mean = float(nll.double().mean())
            require(math.isfinite(mean), "some of its likelihoods are not finite numbers")
            file = self.folder / "nll" / f"{hashlib.sha256(f'{name} {length}'.encode()).hexdigest()[:16]}.npy"
            save_array(file, nll)
            self.lines.append([Cell(name, length, spec, math.exp(mean), round(seconds, 2), file.name)])


def read_cells(folder: Path) -> list[Cell]:
    return read_lines(folder / CELLS, Cell)


def read_nll(folder: Path, cell: Cell) -> Array:  # [streams, length]
    return load_array(folder / "nll" / cell.nll)


def in_one_forward(model: Any, ids: Tensor, length: int, method: Any, train_length: int) -> tuple[Tensor, float]:
    """The likelihoods, [streams, length], and the seconds they took."""
    begun = time.perf_counter()
    nll = token_nll(model, ids[:, : length + 1], method=method, train_length=train_length)
    return nll, time.perf_counter() - begun


def save_array(file: Path, values: Tensor) -> None:
    content = io.BytesIO()
    np.save(content, values.float().numpy(), allow_pickle=False)
    write_whole(file, content.getvalue())


def load_array(file: Path) -> Array:
    return np.asarray(np.load(file, allow_pickle=False), dtype=np.float32)


def measured_as(names: Sequence[str]) -> list[str]:
    """The methods that must be measured for those named."""
    plain = [PLAIN] if any(hedged(name) or name == TRUNCATE for name in names) else []
    return list(dict.fromkeys([*plain, *(behind(name) for name in names if name != TRUNCATE)]))


@dataclass(frozen=True)
class Likelihoods:
    """All that has been measured in one folder."""

    out: Path
    cells: dict[tuple[str, int], Cell]  # by method and length, as measured
    train_length: int
    made_with: dict[str, str]

    @classmethod
    def read(cls, out: Path) -> Likelihoods:
        noted = read(out / FOLDER / SETTINGS)
        cells = {cell.key: cell for cell in read_cells(out / FOLDER)}
        return cls(out, cells, noted["settings"]["train_length"], noted["made_with"])

    @property
    def lengths(self) -> list[int]:
        return sorted({length for _, length in self.cells})

    def nll(self, method: str, length: int) -> Tensor | None:  # [cases, continuation]
        """None where it has not been measured."""
        if method == TRUNCATE:
            return self._measured(PLAIN, min(length, self.train_length))
        if not hedged(method) or length <= self.train_length:
            return self._measured(behind(method), length)
        whole, end = self._measured(behind(method), length), self._measured(PLAIN, self.train_length)
        return None if whole is None or end is None else mixed_nll(whole, end)

    def _measured(self, method: str, length: int) -> Tensor | None:
        cell = self.cells.get((method, length))
        return None if cell is None else _read(self.out / FOLDER, cell)


@cache
def _read(folder: Path, cell: Cell) -> Tensor:
    return torch.from_numpy(read_nll(folder, cell))
