"""What the runs say, in sentences: does the misalignment loss improve long perplexity, at equal steps and at equal compute?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.output_alignment import fine_tuning_answers as answered
from experiments.output_alignment.fine_tuning_compared import HARMS, HELPS, LONG, UNDECIDED, Mean, Outcome, Point, Ratio
from experiments.output_alignment.fine_tuning_cost import Cost
from experiments.output_alignment.fine_tuning_grid import ALPHAS, KL_ALPHAS, MODERATE, RANGES, SAMPLING, Setting, cheaper
from experiments.output_alignment.fine_tuning_paper import TABLE_4, TABLE_5
from experiments.output_alignment.fine_tuning_records import Answers, Found
from lengthwise.training.output_alignment.fused import KL, SCE

NONE = "none"  # is no adjustment
ENOUGH = 2  # adjustments on which it must help
WEIGHTS = {SCE: MODERATE, KL: KL_ALPHAS[1:]}  # alphas that the answer is of


@dataclass(frozen=True)
class Findings:
    found: Found
    outcome: Outcome
    steps: int
    cost: Cost | None

    def said(self) -> list[str]:
        """Sentences, the answer first; none of what has not been measured."""
        told = [SCE, *([KL] if any(one.compare == KL for one in self.outcome.settings) else [])]
        words = [f"**{self._answer(compare)}**" for compare in told]
        words += [one for one in (self._entropy(compare) for compare in told) if one]
        words += [
            self._by_alpha(alpha, equal, compare) for compare in told for equal in (False, True) for alpha in WEIGHTS[compare]
        ]
        others = (self._at_twice(), self._larger(), self._loss(), self._ranges(), self._alone(), self._babilong(), self._cost())
        return [*words, *(one for one in others if one)]

    def compared(
        self, alpha: float, equal_compute: bool, factors: Sequence[int] = LONG, compare: str = SCE
    ) -> dict[Setting, Ratio]:
        """With the loss against without, after the last step, of all settings that have both."""
        found = {}
        for setting in self._settings(compare):
            steps = cheaper(self.steps) if equal_compute else self.steps
            ratio = self.outcome.ratio(Point(setting, alpha, steps), Point(setting, alpha, self.steps).without, factors)
            if ratio is not None:
                found[setting] = ratio
        return found

    def _settings(self, compare: str) -> list[Setting]:
        """Without those of Table 5."""
        return [one for one in self.outcome.settings if (one.sampling, one.compare) == (SAMPLING, compare)]

    def _answer(self, compare: str) -> str:
        alphas = WEIGHTS[compare]
        improved = {alpha: self._helped(alpha, compare) for alpha in alphas}
        best = max(alphas, key=lambda alpha: len(improved[alpha]))
        enough = len(improved[best]) >= ENOUGH
        told = "; ".join(f"alpha {alpha:g}: {_listed(sorted(names)) or 'no adjustment'}" for alpha, names in improved.items())
        how = "With" if compare == SCE else "Not in the paper: compared by the symmetric KL, with"
        return (
            f"{how} alpha {alphas[0]:g} to {alphas[-1]:g}, long perplexity {'improves' if enough else 'does not improve'} over "
            f"alpha 0 at equal compute on at least two adjustments. Adjustments on which it does for certain: {told}."
        )

    def _helped(self, alpha: float, compare: str) -> set[str]:
        """Adjustments that it helps at a length trained at, and harms at none."""
        ratios = self.compared(alpha, True, compare=compare)
        found = {one: ratio.verdict for one, ratio in ratios.items() if one.adjustment != NONE}
        harmed = {one.adjustment for one, verdict in found.items() if verdict == HARMS}
        return {one.adjustment for one, verdict in found.items() if verdict == HELPS} - harmed

    def _entropy(self, compare: str) -> str | None:
        """What of L_misalign the loss takes away: how far readings are apart, or how unsure they are."""
        parts = []
        for alpha in WEIGHTS[compare][: 1 if compare == SCE else None]:
            found = []
            for setting in self._settings(compare):
                point = Point(setting, alpha, self.steps)
                sce, kl = (self.outcome.difference(point, point.without, name) for name in ("sce", "kl"))
                if sce is not None and kl is not None:
                    sure = sce.value - kl.value
                    found.append(f"{setting.label} {sce.value:+.3f}, of which KL is {kl.value:+.4f} and entropy {sure:+.3f}")
            if found:
                parts.append(f"alpha {alpha:g}: {'; '.join(found)}")
        how = "What the loss does to L_misalign = KL + H(y) + H(y')" if compare == SCE else "What KL in its place does to it"
        return f"{how} on novels held out, change against alpha 0 in nats: {'. '.join(parts)}." if parts else None

    def _by_alpha(self, alpha: float, equal: bool, compare: str) -> str:
        found = self.compared(alpha, equal, compare=compare)
        parts = [f"{setting.label} {told(ratio)}" for setting, ratio in found.items()]
        after = f"{cheaper(self.steps)} steps against {self.steps} (equal compute)" if equal else f"{self.steps} steps both"
        tally = ", ".join(f"{word} {sum(one.verdict == word for one in found.values())}" for word in (HELPS, HARMS, UNDECIDED))
        words = (
            f"{tally} of {len(found)}. Perplexity over 2 x to 8 x of that with alpha 0: {'; '.join(parts) or 'not measured'}"
        )
        return f"{'Alpha' if compare == SCE else 'By KL, alpha'} {alpha:g}, {after}: {words}."

    def _at_twice(self) -> str | None:
        """The length of the paper's perplexities."""
        parts = [
            f"alpha {alpha:g}: {'; '.join(f'{setting.label} {told(ratio)}' for setting, ratio in found.items())}"
            for alpha in MODERATE
            if (found := self.compared(alpha, True, (2,)))
        ]
        return f"At 2 x alone, as the paper measures, at equal compute: {'. '.join(parts)}." if parts else None

    def _larger(self) -> str | None:
        parts = []
        for alpha in ALPHAS[3:]:
            found = self.compared(alpha, False)
            if found:
                words = "; ".join(f"{setting.label} {told(ratio)}" for setting, ratio in found.items())
                parts.append(f"alpha {alpha:g}: {words} (paper, CLEX {TABLE_4[alpha][-1] / TABLE_4[0.0][-1]:.2f})")
        return f"Larger weights, which the paper warns of, at equal steps: {'. '.join(parts)}." if parts else None

    def _loss(self) -> str | None:
        """Whether what is trained away is gone on other text."""
        parts = []
        for setting in self._settings(SCE):
            point = Point(setting, MODERATE[0], self.steps)
            less = [self.outcome.difference(point, point.without, name) for name in ("sce", "kl")]
            before = [self.outcome.measure(point.without, name) for name in ("sce", "kl")]
            if None not in less:
                words = ", ".join(
                    f"{name} {value:.3f} {signed(one, 3)} ({_way(one)})"
                    for name, value, one in zip(("L_misalign", "KL"), before, less, strict=True)
                    if one is not None
                )
                parts.append(f"{setting.label} {words}")
        label = f"What alpha {MODERATE[0]:g} does to misalignment on novels held out, in nats: "
        return f"{label}{'; '.join(parts)}." if parts else None

    def _ranges(self) -> str | None:
        base = Point(Setting("longqlora", 2), MODERATE[0], self.steps)
        parts = []
        for sampling in RANGES[1:]:
            ratio = self.outcome.ratio(Point(Setting("longqlora", 2, sampling), MODERATE[0], self.steps), base, (2,))
            if ratio is not None:
                parts.append(f"{sampling} {told(ratio)} (paper {TABLE_5[sampling][-1] / TABLE_5[SAMPLING][-1]:.2f})")
        return f"Ranges of e, perplexity at 2 x of that with {SAMPLING}: {'; '.join(parts)}." if parts else None

    def _alone(self) -> str | None:
        raw = Point(Setting(NONE, 2), 0.0, self.steps)
        wanted = [(Setting("longqlora", 2), 0.0), (Setting("eabf", 2), 0.0), (Setting(NONE, 2), MODERATE[0])]
        parts = []
        for setting, alpha in wanted:
            ratio = self.outcome.ratio(Point(setting, alpha, self.steps), raw, (2,))
            if ratio is not None:
                parts.append(f"{setting.adjustment} with alpha {alpha:g} {told(ratio)}")
        return f"Each technique alone, perplexity at 2 x of that of plain fine-tuning: {'; '.join(parts)}." if parts else None

    def _babilong(self) -> str | None:
        parts = []
        for factor, cell in answered.by_length(self.found.answers).items():
            words = "; ".join(_share(cell, score) for score in answered.SCORES if answered.share(cell, score, MODERATE[0]))
            if words:
                parts.append(f"{factor} x {words} (chance {answered.chance(cell):.0f})")
        return (
            f"BABILong, percent right with alpha 0 and what alpha {MODERATE[0]:g} adds: {'. '.join(parts)}." if parts else None
        )

    def _cost(self) -> str | None:
        if self.cost is None:
            return None
        covered = "cover" if self.cost.ratio <= self.steps / cheaper(self.steps) else "do not cover"
        return (
            f"With alpha above 0 a step forwards as many tokens as without ({self.cost.tokens:,}) and takes "
            f"{self.cost.ratio:.3f} times as long (quartiles {self.cost.low:.3f} to {self.cost.high:.3f} of {self.cost.pairs} "
            f"pairs of neighbouring steps, other runs beside them): the paper's 5 % fewer steps {covered} that."
        )


def told(ratio: Ratio) -> str:
    return f"{ratio.value:.3f}{_ends(ratio.low, ratio.high, 3)} {ratio.verdict}"


def signed(mean: Mean, digits: int) -> str:
    ends = "" if mean.low is None else f" [{mean.low:+.{digits}f}, {mean.high:+.{digits}f}]"
    return f"{mean.value:+.{digits}f}{ends}"


def _ends(low: float | None, high: float | None, digits: int) -> str:
    return "" if low is None else f" [{low:.{digits}f}, {high:.{digits}f}]"


def _way(mean: Mean) -> str:
    return {-1: "lower", 0: "undecided", 1: "higher"}[mean.sign]


def _share(cell: Sequence[Answers], score: str) -> str:
    found = answered.share(cell, score, MODERATE[0])
    assert found is not None
    return f"{answered.SCORES[score]} {found.without:.0f} {signed(found.more, 1)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
