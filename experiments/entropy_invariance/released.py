"""Do the faults of the released code explain the paper's rows? Each method as defined and as released, beside the paper.

    effect(row, n) = ln PPL(row, n) - ln PPL(plain GAU, n)          above 500 counts as 500, as in the paper
    distance       = mean over n of |our effect - the paper's effect|

Levels of perplexity differ from the paper's, because the prose does; effects can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from experiments.entropy_invariance.rows import TABLES, Row
from experiments.entropy_invariance.verdicts import Cells, lengths

LIMIT = 500.0
PLAIN = Row("gau")


@dataclass(frozen=True)
class Explanation:
    """How far from the paper a row is, as its method is defined and as it was released."""

    row: Row  # as released
    defined: float
    released: float

    @property
    def word(self) -> str:
        return "released" if self.released < self.defined else "defined"


def explanations(cells: Cells) -> list[Explanation]:
    """Of the rows measured both ways, over the lengths that the paper has."""
    found = []
    for row in TABLES["released"]:
        rows = (row, replace(row, released=False), PLAIN)
        shared = [n for n in lengths(cells) if row.printed(n) is not None and all((one, n) in cells for one in rows)]
        if shared:
            found.append(Explanation(row, *(_distance(cells, one, shared) for one in (rows[1], row))))
    return found


def _distance(cells: Cells, row: Row, shared: list[int]) -> float:
    def ours(one: Row, length: int) -> float:
        return cells[one, length].score.perplexity

    return math.fsum(abs(_effect(row, n, ours) - _effect(row, n, _theirs)) for n in shared) / len(shared)


def _theirs(row: Row, length: int) -> float:
    cell = row.printed(length)
    assert cell is not None
    return cell.number


def _effect(row: Row, length: int, perplexity: Callable[[Row, int], float]) -> float:
    own, plain = (min(LIMIT, perplexity(one, length)) for one in (row, PLAIN))
    return math.log(own / plain)
