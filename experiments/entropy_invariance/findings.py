"""All that follows from the cells, worked out once for the page and for the file beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from experiments.entropy_invariance.order import Standing, standings
from experiments.entropy_invariance.released import Explanation, explanations
from experiments.entropy_invariance.verdicts import Best, Cells, Verdict, best_scales, laws, scales


@dataclass(frozen=True)
class Findings:
    scales: list[Verdict]  # Tables 1 and 10
    laws: list[Verdict]  # Tables 2 and 3
    best_scales: list[Best]  # Table 9
    standings: list[Standing]
    explanations: list[Explanation]

    @classmethod
    def of(cls, cells: Cells) -> Findings:
        return cls(scales(cells), laws(cells), best_scales(cells), standings(cells), explanations(cells))

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "scales": [{**asdict(one), "paper": one.paper, "word": one.word} for one in self.scales],
            "laws": [{**asdict(one), "paper": one.paper, "word": one.word} for one in self.laws],
            "best_scales": [asdict(one) for one in self.best_scales],
            "standings": [{**asdict(one), "sentence": one.sentence} for one in self.standings],
            "explanations": [{**asdict(one), "nearer": one.word} for one in self.explanations],
        }
