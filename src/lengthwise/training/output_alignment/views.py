"""Two readings of one row of tokens, and the positions that both of them predict from.

    first: tokens [0, L)      second: tokens [e, L + e)      e ~ U{1 ... L/2}               Output Alignment, section 4.2

Position i of the first reading and i - e of the second have the same next token, for i = e ... L - 1: L - e positions, of which
the second reading tells the earliest from few tokens. `overlap` says which of them count: `whole` all, as the text of the paper
has it; `half` those told from at least L/2 tokens in both readings, as its metric and its printed code have it. The printed
slice starts one position later, with more than L/2 tokens, and is empty at e = L/2; ours holds at least one position there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lengthwise.errors import require

# Table 5, as shares of L from which e is drawn; at e = L nothing overlaps, so the widest range ends at L - 1
SAMPLING = {"1..L/2": (0.0, 0.5), "1..L/4": (0.0, 0.25), "L/4..L/2": (0.25, 0.5), "1..L": (0.0, 1.0)}
OVERLAPS = ("whole", "half")


@dataclass(frozen=True)
class Views:
    """Where the two readings of a row stand, and which of their positions are compared."""

    length: int  # L, tokens of each reading
    extra: int  # e, how much later the second one starts
    overlap: str = "whole"

    def __post_init__(self) -> None:
        require(self.overlap in OVERLAPS, f"overlap must be one of {', '.join(OVERLAPS)}, not {self.overlap!r}")
        require(self.length >= 2, f"a reading needs at least 2 tokens, not {self.length}")
        require(self.extra >= 1, f"the second reading must start at least 1 token later, not {self.extra}")
        apart = f"readings of {self.length} tokens that start {self.extra} apart have no position in common"
        most = self.length - 1 - self._skipped
        require(self.positions >= 1, f"{apart} (overlap {self.overlap}); start at most {most} apart")

    @property
    def positions(self) -> int:
        """How many positions of the overlap count."""
        return self.length - self.extra - self._skipped

    @property
    def tokens(self) -> int:
        """How many tokens a row has that holds both readings."""
        return self.length + self.extra

    @property
    def first(self) -> slice:
        return slice(0, self.length)

    @property
    def second(self) -> slice:
        return slice(self.extra, self.length + self.extra)

    @property
    def shared(self) -> tuple[slice, slice]:
        """The overlap as positions of the first reading, which are the row's own, and as positions of the second."""
        start = self._skipped
        return slice(start + self.extra, self.length), slice(start, self.length - self.extra)

    @property
    def _skipped(self) -> int:
        """Positions of the second reading with less context than the overlap asks for: position j is told from j + 1 tokens."""
        return (self.length + 1) // 2 - 1 if self.overlap == "half" else 0


def extra_range(sampling: str, length: int) -> tuple[int, int]:
    """The smallest and the largest e that a range of Table 5 allows at this length."""
    require(sampling in SAMPLING, f"sampling must be one of {', '.join(SAMPLING)}, not {sampling!r}")
    low, high = SAMPLING[sampling]
    ends = max(1, int(low * length)), min(length - 1, int(high * length))
    require(ends[0] <= ends[1], f"at length {length} there is no e in {sampling}; give a longer training length")
    return ends


def drawn_extra(sampling: str, length: int, seed: int, step: int) -> int:
    """The e of one step: a function of the seed and the step alone, so every process and every resumed run draws the same."""
    low, high = extra_range(sampling, length)
    return int(np.random.default_rng([seed, step]).integers(low, high, endpoint=True))
