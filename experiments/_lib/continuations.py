"""What every token of every continuation cost, by method and length: measured, or computed from what was measured.

truncate at any length beyond       = none at the training length: the same case, read from its end
hedge-X, hedge+X at a length beyond = X there, mixed by Bayes with that (lengthwise/evaluation/hedge.py)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments._lib.alignments import behind, hedged
from experiments._lib.likelihood_cells import Cell, read_cells, read_nll
from experiments._lib.processes import Once, share_out
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.hedge import mixed_nll
from lengthwise.methods.spec import TRUNCATE
from lengthwise.records.config import check_same

FOLDER = "language_modelling"
CONFIG = "config.json"
PLAIN = "none"


def measured_as(names: Sequence[str]) -> list[str]:
    """The methods that must be measured for those named."""
    for name in filter(hedged, names):
        require(behind(name) != TRUNCATE, f"{name}: a hedge mixes truncation in; name what reads the whole, as in hedge+log")
    plain = [PLAIN] if any(hedged(name) or name == TRUNCATE for name in names) else []
    return list(dict.fromkeys([*plain, *(behind(name) for name in names if name != TRUNCATE)]))


def begin(out: Path, config: dict[str, Any]) -> None:
    """Notes what the likelihoods of a folder depend on, or refuses to mix others with them."""
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / CONFIG
    share_out([Once(folder / ".claim-config", file.exists, lambda: write_whole(file, json.dumps(config, indent=1) + "\n"))])
    check_same(_config(out), config, folder)


@dataclass(frozen=True)
class Likelihoods:
    """All that has been measured in one folder."""

    out: Path
    cells: dict[tuple[str, int], Cell]  # by method and length, as measured
    train_length: int
    made_with: dict[str, str]

    @classmethod
    def read(cls, out: Path) -> Likelihoods:
        config = _config(out)
        cells = {cell.key: cell for cell in read_cells(out / FOLDER)}
        return cls(out, cells, int(config["settings"]["train_length"]), dict(config["made_with"]))

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
        if cell is None:
            return None
        if cell.nll not in self._arrays:
            self._arrays[cell.nll] = torch.from_numpy(read_nll(self.out / FOLDER, cell))
        return self._arrays[cell.nll]

    @cached_property
    def _arrays(self) -> dict[str, Tensor]:
        return {}


def _config(out: Path) -> dict[str, Any]:
    path = out / FOLDER / CONFIG
    try:
        config = json.loads(path.read_text())
        if not all(isinstance(config[key], dict) for key in ("model", "settings", "made_with")):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{path} does not say what was measured; give another --out") from None
    return dict(config)
