"""Re-encoding: what the plain model can do without any method, by reading the last tokens afresh, from position 0.

Exactly, that is a forward of the training length for every token. With a stride of s tokens there is one for every s tokens:
each is then told from at least window - s tokens, most of them from more.

OUT/gold/     the likelihoods, in parts that several processes share out
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from experiments._lib.likelihood_cells import Array, load_array, save_array
from experiments._lib.processes import Once, share_out
from experiments._lib.rotary_methods import say
from lengthwise.evaluation.likelihood import reencoded_nll

PART = 1024  # tokens of a stream that are re-encoded in one go


@dataclass(frozen=True)
class Reencoding:
    """Every `stride` tokens the last `window` tokens are read again."""

    window: int
    stride: int = 1

    @property
    def name(self) -> str:
        return "re-encoding" if self.stride == 1 else f"re-encoding every {self.stride:,} tokens"

    def make(self, model: Any, ids: Tensor, length: int, folder: Path) -> None:
        """The first `length` predictions of every stream; nothing where one forward of the plain model tells the same."""
        if length <= self.window:
            return
        works = []
        for stream in range(len(ids)):
            for first, last in self._cuts(length):
                file = self._part(folder, stream, first, last)
                make = partial(self._reencode, model, ids, stream, first, last, file)
                works.append(Once(file.with_name(f".claim-{file.stem}"), file.exists, make))
        self._place(folder).mkdir(parents=True, exist_ok=True)
        share_out(works)

    def read(self, folder: Path, streams: int, length: int) -> Array | None:  # [streams, length]
        """None where it is not finished, or not needed."""
        if length <= self.window:
            return None
        files = [[self._part(folder, stream, *cut) for cut in self._cuts(length)] for stream in range(streams)]
        if not all(file.exists() for row in files for file in row):
            return None
        return np.stack([np.concatenate([load_array(file) for file in row]) for row in files])

    def _reencode(self, model: Any, ids: Tensor, stream: int, first: int, last: int, file: Path) -> None:
        say(f"{self.name} for stream {stream + 1}, tokens {first:,} to {last:,}")
        # Where the window begins that tells the first token of the part
        start = max(0, first + self.stride - self.window)
        nll = reencoded_nll(model, ids[stream : stream + 1, start : last + 1], self.window, self.stride)
        save_array(file, nll[0, first - start :])

    def _cuts(self, length: int) -> list[tuple[int, int]]:
        """Where windows begin to tell other tokens: the first one tells as many as it holds."""
        if self.stride == 1:
            edges = list(range(0, length, PART))
        else:
            edges = [0, *range(self.window, length, self.stride * max(1, PART // self.stride))]
        return list(zip(edges, [*edges[1:], length], strict=True))

    def _part(self, folder: Path, stream: int, first: int, last: int) -> Path:
        return self._place(folder) / f"{stream}-{first}-{last}.npy"

    def _place(self, folder: Path) -> Path:
        return folder / "gold" if self.stride == 1 else folder / "gold" / f"every-{self.stride}"
