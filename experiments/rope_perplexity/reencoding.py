"""Re-encoding: what the plain model can do without any method, by reading the last tokens afresh, from position 0.

Exactly, that is a forward of the training length for every token. With a stride of s tokens there is one for every s tokens:
each is then told from at least window - s tokens, most of them from more.

OUT/gold/     the likelihoods, a file a stream
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from experiments._lib.likelihood_cells import Array, load_array, save_array
from experiments._lib.minutes import say
from lengthwise.evaluation.likelihood import reencoded_nll


@dataclass(frozen=True)
class Reencoding:
    """Every `stride` tokens the last `window` tokens are read again."""

    window: int
    stride: int = 1

    @property
    def name(self) -> str:
        return "re-encoding" if self.stride == 1 else f"re-encoding every {self.stride:,} tokens"

    def make(self, model: Any, ids: Tensor, length: int, folder: Path) -> None:
        """The first `length` predictions of every stream, which begin with those of any shorter length."""
        for stream in range(len(ids) if length > self.window else 0):
            file = _file(folder, stream)
            if not file.exists() or len(load_array(file)) < length:
                say(f"{self.name} for stream {stream + 1}, {length:,} tokens")
                nll = reencoded_nll(model, ids[stream, None, : length + 1], self.window, self.stride)
                save_array(file, nll[0])

    def read(self, folder: Path, streams: int, length: int) -> Array | None:  # [streams, length]
        """None where it is not finished, or where one forward of the plain model tells the same."""
        files = [_file(folder, stream) for stream in range(streams)]
        if length <= self.window or not all(file.exists() for file in files):
            return None
        rows = [load_array(file)[:length] for file in files]
        return np.stack(rows) if all(len(row) == length for row in rows) else None


def _file(folder: Path, stream: int) -> Path:
    return folder / "gold" / f"{stream}.npy"
