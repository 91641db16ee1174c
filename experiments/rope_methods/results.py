"""The finished cells as tables: perplexity by position, and against re-encoding or another method on the same tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments._lib.likelihood_cells import Array, Cell, read_cells, read_nll
from experiments.rope_methods.contenders import NAMES
from experiments.rope_methods.gold import Reencoding
from lengthwise.tasks.perplexity import Bucket, Ratio, by_bucket, compared, doubling

GOLD = "re-encoding"


@dataclass(frozen=True)
class Row:
    """One method at one length."""

    method: str  # as named, with places to fill
    spec: str  # as filled at this length
    length: int
    whole: Bucket  # all tokens
    buckets: list[Bucket]  # up to the training length, then doubling
    against: Ratio | None  # re-encoding, all tokens; None while that is not finished, and for itself
    beyond: Ratio | None  # the same, only tokens told from more than the training length
    seconds: float | None


class Results:
    """Read from a folder; likelihoods are kept once read.

    `stretch` tokens of a stream count as independent of the next ones in all intervals; without it only streams do.
    """

    def __init__(self, folder: Path, streams: int, reencoding: Reencoding, stretch: int | None) -> None:
        self.folder, self.streams, self.reencoding, self.stretch = folder, streams, reencoding, stretch
        self.cells = {cell.key: cell for cell in read_cells(folder)}
        self._nll: dict[tuple[str, int], Array | None] = {}
        self._ratios: dict[tuple[str, str, int, int | None], Ratio] = {}
        self._rows: dict[int, list[Row]] = {}

    @property
    def train_length(self) -> int:
        return self.reencoding.window

    @cached_property
    def lengths(self) -> list[int]:
        return sorted({length for _, length in self.cells})

    def methods(self, length: int) -> list[str]:
        """In the order of our list; others after it, as they came."""
        found = [method for method, at in self.cells if at == length]
        return [*(name for name in NAMES if name in found), *(name for name in found if name not in NAMES)]

    def spec(self, method: str, length: int) -> str:
        return self.cells[method, length].spec

    def nll(self, method: str, length: int) -> Array | None:  # [streams, length]
        """None for re-encoding while it is not finished."""
        key = method, length
        if key not in self._nll:
            gold = method == GOLD
            self._nll[key] = self._gold(length) if gold else read_nll(self.folder, self.cells[key])
        return self._nll[key]

    def ratio(self, method: str, other: str, length: int, last: int | None = None) -> Ratio:
        """Perplexity of one over the other's, all tokens or those before `last`."""
        key = method, other, length, last
        if key not in self._ratios:
            ours, theirs = self.nll(method, length), self.nll(other, length)
            assert ours is not None
            assert theirs is not None
            self._ratios[key] = compared(ours[:, :last], theirs[:, :last], self.stretch)
        return self._ratios[key]

    def rows(self, length: int) -> list[Row]:
        """Re-encoding where it is finished, then all methods, the best first."""
        if length not in self._rows:
            self._rows[length] = self._made_rows(length)
        return self._rows[length]

    def _made_rows(self, length: int) -> list[Row]:
        gold = [self._row(GOLD, self.reencoding.name, None, length)] if self.nll(GOLD, length) is not None else []
        cells: list[Cell] = [self.cells[method, length] for method in self.methods(length)]
        rows = [self._row(cell.method, cell.spec, cell.seconds, length) for cell in cells]
        return gold + sorted(rows, key=lambda row: row.whole.perplexity)

    def _row(self, method: str, spec: str, seconds: float | None, length: int) -> Row:
        nll, gold = self.nll(method, length), self.nll(GOLD, length)
        assert nll is not None
        train = self.train_length
        against = beyond = None
        if gold is not None and method != GOLD:
            against = self.ratio(method, GOLD, length)
            beyond = compared(nll[:, train:], gold[:, train:], self.stretch) if length > train else None
        (whole,) = by_bucket(nll, [0, length], self.stretch)
        return Row(method, spec, length, whole, by_bucket(nll, self._edges(length), self.stretch), against, beyond, seconds)

    def _edges(self, length: int) -> list[int]:
        """The training length and its doublings, and the other lengths that were measured."""
        return sorted({*doubling(self.train_length, length), *(other for other in self.lengths if other < length)})

    def _gold(self, length: int) -> Array | None:
        return self.reencoding.read(self.folder, self.streams, length)
