"""What every token of every continuation cost, by method and length: measured, or computed from what was measured.

truncate at any length beyond       = none at the training length: the same case, read from its end
hedge-X, hedge+X at a length beyond = X there, mixed by Bayes with that (lengthwise/evaluation/hedge.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from experiments._lib.alignments import behind, hedged
from experiments._lib.likelihood_cells import Cell, read_cells, read_nll
from experiments._lib.results import SETTINGS, read
from lengthwise.evaluation.hedge import mixed_nll
from lengthwise.methods.spec import TRUNCATE

FOLDER = "language_modelling"
PLAIN = "none"


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
