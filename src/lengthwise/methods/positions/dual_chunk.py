"""Dual chunk attention: keys are numbered anew in every chunk, and rows stand behind those of earlier chunks.

    key j stands at j mod c,   c = chunk - window                                   An et al. 2024
    row i stands at i mod c                       for keys of its own chunk
                    min(i mod c + c, chunk)       for those of the chunk before
                    min(2c - 1, chunk)            for older ones

Places count from the start of the row's own sequence; where a mask is bidirectional, distance'(i, j) = -distance'(j, i).
Distances up to `window` are true ones, and none is above `chunk`. As in the released code `chunk` is by default three quarters
of the training length and `window` an eighth; the code's own sharpening, which the paper has not, is left out (`dual_chunk+log`
has another).

Paper: An et al. 2024, arXiv:2402.17463
Code: https://github.com/HKUNLP/ChunkLlama
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lengthwise.attention.parts import Part, with_keys
from lengthwise.attention.visible import Visible
from lengthwise.errors import require


@dataclass(frozen=True)
class DualChunk:
    train_length: int
    chunk: int = None  # type: ignore[assignment]  # a number once the method is made
    window: int = None  # type: ignore[assignment]  # likewise

    def __post_init__(self) -> None:
        if self.chunk is None:
            object.__setattr__(self, "chunk", self.train_length * 3 // 4)
        if self.window is None:
            object.__setattr__(self, "window", min(self.train_length // 8, (self.chunk - 1) // 2))
        require(self.chunk >= 1, f"dual_chunk needs chunk >= 1, not {self.chunk}")
        require(
            self.chunk <= self.train_length,
            f"a chunk of {self.chunk} is longer than the training length {self.train_length}: "
            "keys would stand at a distance the model never saw",
        )
        fits = 0 <= self.window < self.chunk - self.window
        require(fits, f"dual_chunk needs a window from 0 to below half of the chunk, {self.chunk}, not {self.window}")

    def distances(self, seen: Visible, whole: Visible) -> list[Part]:
        size = self.chunk - self.window
        row, key = (place % size for place in whole.places)
        # Where the row's own chunk begins and ends
        start = seen.position - row
        stop, everything = start + size, torch.full_like(start, seen.keys)
        beyond = min(2 * size - 1, self.chunk)
        row_beyond, key_beyond = ((place + size).clamp_max(self.chunk) for place in (row, key))
        parts = (
            Part(seen.within(start, stop), row, key),
            Part(seen.within(start - size, start), row_beyond, key),
            Part(seen.within(torch.zeros_like(start), start - size), torch.full_like(row, beyond), key),
            Part(seen.within(stop, stop + size), row, key_beyond),
            Part(seen.within(stop + size, everything), row, torch.full_like(key, beyond)),
        )
        return with_keys(parts)

    def leaves_alone(self, length: int) -> bool:
        return length <= self.chunk + 1
