"""The paper's order of methods, row by row: every two rows of Tables 1 and 10 at every length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from experiments.entropy_invariance.rows import TABLES, Row
from experiments.entropy_invariance.verdicts import CONFIRMED, REFUTED, UNDECIDED, UNSAID, Cells, against, lengths

ORDERED = (*TABLES["1"], *TABLES["10"])


@dataclass(frozen=True)
class Standing:
    """One row among the others: in how many pairs our interval says what the paper's two numbers say."""

    row: Row
    confirmed: int
    refuted: int
    undecided: int
    ranks: dict[int, tuple[float, float | None]]  # by length: ours, and the paper's; equals share the mean of theirs

    @property
    def sentence(self) -> str:
        said = self.confirmed + self.refuted + self.undecided
        return f"confirmed {self.confirmed}, refuted {self.refuted}, undecided {self.undecided} of {said}"


def standings(cells: Cells) -> list[Standing]:
    counts: dict[Row, Counter[str]] = {row: Counter() for row in ORDERED if any(row == key[0] for key in cells)}
    for length in lengths(cells):
        for row, other in combinations(counts, 2):
            verdict = against(cells, row, other, length)
            if verdict is not None and verdict.word != UNSAID:
                counts[row][verdict.word] += 1
                counts[other][verdict.word] += 1
    ranks = {length: _ranks(cells, length) for length in lengths(cells)}
    return [
        Standing(
            row,
            *(count[word] for word in (CONFIRMED, REFUTED, UNDECIDED)),
            {length: found[row] for length, found in ranks.items() if row in found},
        )
        for row, count in counts.items()
    ]


def agreement(cells: Cells, length: int) -> tuple[float, int] | None:
    """Spearman's correlation of our perplexities with the paper's at one length, and over how many rows; limits are ties."""
    from scipy.stats import spearmanr

    pairs = [
        (cells[row, length].score.perplexity, printed.number)
        for row in ORDERED
        if (row, length) in cells and (printed := row.printed(length)) is not None
    ]
    ours, theirs = zip(*pairs, strict=True) if pairs else ((), ())
    if len(pairs) < 3 or len(set(theirs)) < 2:
        return None
    return float(spearmanr(ours, theirs).statistic), len(pairs)


def _ranks(cells: Cells, length: int) -> dict[Row, tuple[float, float | None]]:
    """1 is best; among the rows that are measured."""
    rows = [row for row in ORDERED if (row, length) in cells]
    printed = [cell.number for row in rows if (cell := row.printed(length)) is not None]
    ours = _ranked([cells[row, length].score.perplexity for row in rows])
    # The paper has all rows at its own lengths and none at others
    theirs = _ranked(printed) if printed else [None] * len(rows)
    return {row: (a, b) for row, a, b in zip(rows, ours, theirs, strict=True)}


def _ranked(values: Sequence[float]) -> list[float]:
    from scipy.stats import rankdata

    return [float(rank) for rank in rankdata(values)]
