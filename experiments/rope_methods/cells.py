"""What is measured: the negative log-likelihood of every token, by each method in one forward, and by re-encoding.

OUT/cells.jsonl     a line a method and length, when it is finished
OUT/nll/            its likelihoods, [streams, length]
OUT/gold/           those of re-encoding, in parts that several processes share out
"""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from experiments.common.together import Once, share_out
from lengthwise.errors import BadInput, require
from lengthwise.files import write_whole
from lengthwise.likelihood import reencoded_nll, token_nll
from lengthwise.records.append_only import AppendOnly, read_lines

CELLS = "cells.jsonl"
PART = 1024  # tokens of a stream that are re-encoded in one go
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Cell:
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
    """The finished cells of one folder, shared with other processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.lines = AppendOnly(folder / CELLS, Cell)

    def once(self, name: str, spec: str, length: int, measured: Callable[[], tuple[Tensor, float]]) -> Once:
        """The cell as a piece of work that one process does for all; it is measured as likelihoods and seconds."""
        digest = hashlib.sha256(f"{name} {length}".encode()).hexdigest()[:16]

        def make() -> None:
            nll, seconds = measured()
            mean = float(nll.double().mean())
            require(math.isfinite(mean), "some of its likelihoods are not finite numbers")
            file = self.folder / "nll" / f"{digest}.npy"
            _save(file, nll)
            self.lines.append([Cell(name, length, spec, math.exp(mean), round(seconds, 2), file.name)])

        return Once(self.folder / f".claim-{digest}", lambda: self.holds(name, length), make)

    def holds(self, name: str, length: int) -> bool:
        self.lines.refresh()
        return (name, length) in self.lines.lines


def read_cells(folder: Path) -> list[Cell]:
    return read_lines(folder / CELLS, Cell)


def read_nll(folder: Path, cell: Cell) -> Array:  # [streams, length]
    return _load(folder / "nll" / cell.nll)


def in_one_forward(model: Any, ids: Tensor, length: int, method: Any, train_length: int) -> tuple[Tensor, float]:
    """The likelihoods, [streams, length], and the seconds they took."""
    begun = time.perf_counter()
    nll = token_nll(model, ids[:, : length + 1], method=method, train_length=train_length)
    return nll, time.perf_counter() - begun


def make_gold(model: Any, ids: Tensor, length: int, window: int, folder: Path, say: Callable[[str], None]) -> None:
    """Re-encodes the last `window` tokens for each of the first `length` predictions of every stream."""
    works = []
    for stream in range(len(ids)):
        for first, last in _cuts(length):
            file = _part(folder, stream, first, last)
            make = partial(_reencode, model, ids[stream : stream + 1], first, last, window, file)
            works.append(Once(file.with_name(f".claim-{file.stem}"), file.exists, _told(say, stream, first, last, make)))
    (folder / "gold").mkdir(parents=True, exist_ok=True)
    share_out(works)


def read_gold(folder: Path, streams: int, length: int) -> Array | None:  # [streams, length]
    """None where it is not finished."""
    files = [[_part(folder, stream, first, last) for first, last in _cuts(length)] for stream in range(streams)]
    if not all(file.exists() for row in files for file in row):
        return None
    return np.stack([np.concatenate([_load(file) for file in row]) for row in files])


def _told(say: Callable[[str], None], stream: int, first: int, last: int, make: Callable[[], None]) -> Callable[[], None]:
    def told() -> None:
        say(f"re-encoding for stream {stream + 1}, tokens {first:,} to {last:,}")
        make()

    return told


def _reencode(model: Any, ids: Tensor, first: int, last: int, window: int, file: Path) -> None:
    start = max(0, first - window)
    _save(file, reencoded_nll(model, ids[:, start : last + 1], window)[0, first - start :])


def _cuts(length: int) -> list[tuple[int, int]]:
    return [(first, min(first + PART, length)) for first in range(0, length, PART)]


def _part(folder: Path, stream: int, first: int, last: int) -> Path:
    return folder / "gold" / f"{stream}-{first}-{last}.npy"


def _save(file: Path, values: Tensor) -> None:
    content = io.BytesIO()
    np.save(content, values.float().numpy(), allow_pickle=False)
    write_whole(file, content.getvalue())


def _load(file: Path) -> Array:
    try:
        return np.asarray(np.load(file, allow_pickle=False), dtype=np.float32)
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"cannot read {file}: {error}; remove it, and its line of {CELLS}, to have it measured again") from None
