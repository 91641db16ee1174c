"""Whether our numbers say what the paper's say, two rows at a time: does a scale help, which law and which S is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.entropy_invariance.cells import Cell
from experiments.entropy_invariance.paper import SCALE
from experiments.entropy_invariance.rows import TABLES, Row
from lengthwise.tasks.perplexity import Ratio, compared

Cells = Mapping[tuple[Row, int], Cell]
CONFIRMED, REFUTED, UNDECIDED, UNSAID = "confirmed", "refuted", "undecided", "the paper does not say"


@dataclass(frozen=True)
class Verdict:
    """A row against another one at one length."""

    row: Row
    other: Row
    length: int
    ours: Ratio  # of perplexities, on the same hidden tokens

    @property
    def paper(self) -> tuple[str, str] | None:
        """Both perplexities as printed."""
        cells = [row.printed(self.length) for row in (self.row, self.other)]
        found = tuple(cell.perplexity for cell in cells if cell is not None)
        return (found[0], found[1]) if len(found) == 2 else None

    @property
    def word(self) -> str:
        cells = [row.printed(self.length) for row in (self.row, self.other)]
        row, other = (None if cell is None else cell.number for cell in cells)
        if row is None or other is None or row == other:  # two limits, too
            return UNSAID
        if self.ours.low <= 1 <= self.ours.high:
            return UNDECIDED
        return CONFIRMED if (self.ours.ratio < 1) == (row < other) else REFUTED


def against(cells: Cells, row: Row, other: Row, length: int) -> Verdict | None:
    """None where one of them is not measured."""
    ours, theirs = cells.get((row, length)), cells.get((other, length))
    if ours is None or theirs is None:
        return None
    return Verdict(row, other, length, compared(ours.nll, theirs.nll))


def scales(cells: Cells) -> list[Verdict]:
    """Every row of Tables 1 and 10 against the same method without scales."""
    scaled = [row for row in (*TABLES["1"], *TABLES["10"]) if row.cos is not None or row.law is not None]
    found = [against(cells, row, replace(row, cos=None, law=None), length) for row in scaled for length in lengths(cells)]
    return [one for one in found if one is not None]


def laws(cells: Cells) -> list[Verdict]:
    """InfoScale against softmax plus, with CosScale (Table 2) and without (Table 3)."""
    found = [against(cells, *TABLES[table], length) for table in ("2", "3") for length in lengths(cells)]
    return [one for one in found if one is not None]


@dataclass(frozen=True)
class Best:
    """Table 9 at one length."""

    length: int
    ours: float  # the S of the lowest perplexity
    paper: list[float]  # of the lowest printed one; none where all are limits
    against_128: Ratio | None  # None where it is 128 itself, or 128 is not measured


def best_scales(cells: Cells) -> list[Best]:
    return [found for length in lengths(cells) if (found := _best_scale(cells, length)) is not None]


def _best_scale(cells: Cells, length: int) -> Best | None:
    measured = [row for row in TABLES["9"] if (row, length) in cells]
    if len(measured) < 2:
        return None
    best = min(measured, key=lambda row: cells[row, length].score.perplexity)
    verdict = None if best.cos == SCALE else against(cells, best, Row("gau", SCALE), length)
    return Best(length, float(best.cos or 0), _lowest(TABLES["9"], length), verdict and verdict.ours)


def _lowest(rows: Sequence[Row], length: int) -> list[float]:
    printed = {row.cos: cell.number for row in rows if row.cos is not None and (cell := row.printed(length)) is not None}
    numbers = [number for number in printed.values() if number < float("inf")]
    return [scale for scale, number in printed.items() if numbers and number == min(numbers)]


def lengths(cells: Cells) -> list[int]:
    return sorted({length for _, length in cells})
