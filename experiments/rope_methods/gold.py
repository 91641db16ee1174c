"""Re-encoding: what the plain model can do without any method, by reading the last tokens afresh, from position 0.

Exactly, that is a forward of the training length for every token. With a stride of s tokens there is one for every s tokens:
each is then told from at least window - s tokens, most of them from more.

OUT/gold/     the likelihoods, in parts that several processes share out
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from experiments._lib.likelihood_cells import Array, load_array, save_array
from experiments._lib.processes import Once, share_out
from lengthwise.errors import require
from lengthwise.evaluation.likelihood import reencoded_nll

PART = 1024  # tokens of a stream that are re-encoded in one go


@dataclass(frozen=True)
class Reencoding:
    """Every `stride` tokens the last `window` tokens are read again."""

    window: int
    stride: int = 1

    def __post_init__(self) -> None:
        require(
            1 <= self.stride <= self.window,
            f"a stride must be from 1 to {self.window}, the tokens of a window, not {self.stride}",
        )

    @property
    def name(self) -> str:
        return "re-encoding" if self.stride == 1 else f"re-encoding every {self.stride:,} tokens"

    def differs(self, length: int) -> bool:
        """Whether it is another thing than one forward of the plain model."""
        return length > self.window

    def make(self, model: Any, ids: Tensor, length: int, folder: Path, say: Callable[[str], None]) -> None:
        """The first `length` predictions of every stream; nothing where one forward of the plain model tells the same."""
        if not self.differs(length):
            return
        works = []
        for stream in range(len(ids)):
            for first, last in self._cuts(length):
                file = self._part(folder, stream, first, last)
                make = partial(self._reencode, model, ids[stream : stream + 1], first, last, file)
                told = _told(partial(say, f"{self.name} for stream {stream + 1}, tokens {first:,} to {last:,}"), make)
                works.append(Once(file.with_name(f".claim-{file.stem}"), file.exists, told))
        self._place(folder).mkdir(parents=True, exist_ok=True)
        share_out(works)

    def read(self, folder: Path, streams: int, length: int) -> Array | None:  # [streams, length]
        """None where it is not finished, or not needed."""
        if not self.differs(length):
            return None
        files = [[self._part(folder, stream, *cut) for cut in self._cuts(length)] for stream in range(streams)]
        if not all(file.exists() for row in files for file in row):
            return None
        return np.stack([np.concatenate([load_array(file) for file in row]) for row in files])

    def _reencode(self, model: Any, ids: Tensor, first: int, last: int, file: Path) -> None:
        # Where the window begins that tells the first token of the part
        start = max(0, first + self.stride - self.window)
        nll = reencoded_nll(model, ids[:, start : last + 1], self.window, self.stride)
        save_array(file, nll[0, first - start :])

    def _cuts(self, length: int) -> list[tuple[int, int]]:
        """Where windows begin to tell other tokens: the first one tells as many as it holds."""
        if self.stride == 1:
            edges = list(range(0, length, PART))
        else:
            step = self.stride * max(1, PART // self.stride)
            edges = [0, *range(self.window, length, step)]
        return list(zip(edges, [*edges[1:], length], strict=True))

    def _part(self, folder: Path, stream: int, first: int, last: int) -> Path:
        return self._place(folder) / f"{stream}-{first}-{last}.npy"

    def _place(self, folder: Path) -> Path:
        return folder / "gold" if self.stride == 1 else folder / "gold" / f"every-{self.stride}"


def _told(say: Callable[[], None], make: Callable[[], None]) -> Callable[[], None]:
    def told() -> None:
        say()
        make()

    return told
