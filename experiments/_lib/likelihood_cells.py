"""What is measured: the negative log-likelihood of every token, by each method in one forward.

OUT/cells.jsonl     a line a method and length, when it is finished
OUT/nll/            its likelihoods, [streams, length]
"""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from experiments._lib.results import unfinished
from lengthwise.common.files import write_whole
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.evaluation.likelihood import token_nll
from lengthwise.records.append_only import AppendOnly, read_lines

CELLS = "cells.jsonl"
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
