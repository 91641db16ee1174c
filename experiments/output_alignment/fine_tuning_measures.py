"""What is measured of a model on novels that it was not trained on.

Perplexity at a length n is that of readings of n tokens, one after the other through the streams: every length scores the same
tokens. L_misalign is `lengthwise.misalignment`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import lengthwise as lw
from lengthwise.evaluation.likelihood import token_nll


@dataclass(frozen=True)
class Reader:
    """A model in evaluation, whose weights change from snapshot to snapshot, and what it reads."""

    model: Any
    ids: Tensor  # [streams, longest + 1]
    lengths: Sequence[int]  # divisors of the longest

    def nll(self, method: str) -> list[list[float]]:
        """[lengths][streams]; a length is left empty where a stream's mean is not finite."""
        means = [self._means(method, length) for length in self.lengths]
        return [some if all(map(math.isfinite, some)) else [] for some in means]

    def _means(self, method: str, length: int) -> list[float]:
        readings = self.ids.unfold(1, length + 1, length)  # [streams, readings, length + 1]
        found = token_nll(self.model, readings.flatten(0, 1), method=method)
        means: list[float] = found.view(len(self.ids), -1).double().mean(1).tolist()
        return means

    def misalignment(self, method: str, length: int, pairs: int) -> tuple[float | None, float | None]:
        """L_SCE and symmetric KL of two readings of at most `length` tokens; None where they are not finite."""
        text = self.ids[:, :-1].flatten()
        found = lw.misalignment(self.model, text, length=length, pairs=pairs, method=method, show_progress=False)
        sce, kl = (value if math.isfinite(value) else None for value in (found.sce, found.kl))
        return sce, kl
