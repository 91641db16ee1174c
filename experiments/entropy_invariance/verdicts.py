"""Whether our numbers say what the paper's say: does a scale help a method, and which methods are better than others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from experiments.entropy_invariance.cells import Cell
from experiments.entropy_invariance.paper import table_1
from experiments.entropy_invariance.rows import Row
from lengthwise.tasks.perplexity import Ratio, compared

Cells = Mapping[tuple[Row, int], Cell]


@dataclass(frozen=True)
class Verdict:
    """A row against the same method without scales, at one length."""

    row: Row
    length: int
    ours: Ratio  # of perplexities, on the same hidden tokens
    paper: tuple[str, str] | None  # its perplexities, the row's and the plain one's, as printed

    @property
    def word(self) -> str:
        row, plain = map(_number, self.paper or ("1", "1"))
        if row == plain:  # two limits, too
            return "the paper does not say"
        if self.ours.low <= 1 <= self.ours.high:
            return "undecided"
        return "confirmed" if (self.ours.ratio < 1) == (row < plain) else "refuted"


def verdicts(cells: Cells) -> list[Verdict]:
    found = []
    for (row, length), cell in cells.items():
        plain = cells.get((replace(row, cos=False, info=False), length))
        if plain is not None and plain is not cell:
            found.append(Verdict(row, length, compared(cell.nll, plain.nll), _printed(row, length)))
    return found


def agreement(cells: Cells, length: int) -> tuple[float, int] | None:
    """Spearman's correlation of our perplexities with the paper's at one length, and over how many rows; limits are ties."""
    from scipy.stats import spearmanr

    printed = table_1()
    pairs = [
        (cell.score.perplexity, _number(printed[row.method, row.cos, row.info, at].perplexity))
        for (row, at), cell in cells.items()
        if at == length and (row.method, row.cos, row.info, at) in printed
    ]
    ours, theirs = zip(*pairs, strict=True) if pairs else ((), ())
    if len(pairs) < 3 or len(set(theirs)) < 2:
        return None
    return float(spearmanr(ours, theirs).statistic), len(pairs)


def _printed(row: Row, length: int) -> tuple[str, str] | None:
    cells = [table_1().get((row.method, *scales, length)) for scales in ((row.cos, row.info), (False, False))]
    found = tuple(cell.perplexity for cell in cells if cell is not None)
    return (found[0], found[1]) if len(found) == 2 else None


def _number(text: str) -> float:
    return math.inf if text.startswith(">") else float(text)
