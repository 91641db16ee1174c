"""The paper's tables beside ours, as lines of Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.output_alignment import fine_tuning_answers as answered
from experiments.output_alignment import fine_tuning_paper as paper
from experiments.output_alignment.fine_tuning_compared import LONG, Outcome, Point, Ratio
from experiments.output_alignment.fine_tuning_findings import signed
from experiments.output_alignment.fine_tuning_grid import LENGTHS, MODERATE, RANGES, SAMPLING, Setting, cheaper, marks
from experiments.output_alignment.fine_tuning_records import Answers, Trial
from lengthwise.training.output_alignment.fused import KL, SCE

HEAD = [
    "adjustment",
    "alpha",
    "steps",
    *(f"{factor} x" for factor in LENGTHS),
    "change at 2 x",
    "change over 2 x to 8 x",
    "lower on",
    "verdict",
    "paper",
]
Line = list[object]
# The paper's perplexities of a setting and an alpha, by corpus, or nothing
Printed = Callable[[Setting, float], Mapping[str, paper.Perplexities]]


@dataclass(frozen=True)
class Tables:
    outcome: Outcome
    steps: int

    def by_alpha(self, factor: int, equal_compute: bool) -> list[Line]:
        """Tables 2 and 4 at the model's own length, 3 at twice; 9 and 10 at equal compute. Each against alpha 0."""
        wanted = [one for one in self.outcome.settings if (one.factor, one.sampling, one.compare) == (factor, SAMPLING, SCE)]
        return self._against_alpha_0(
            wanted, equal_compute, _own_length(equal_compute) if factor == 1 else _twice(equal_compute)
        )

    def by_kl(self, equal_compute: bool) -> list[Line]:
        """The same of runs compared by the symmetric KL, which the paper does not have."""
        wanted = [one for one in self.outcome.settings if one.compare == KL]
        return self._against_alpha_0(wanted, equal_compute, lambda setting, alpha: {})

    def before(self) -> list[Line]:
        """Without a step of training."""
        lines: list[Line] = []
        for setting in self.outcome.settings:
            point = Point(setting, 0.0, 0)
            found = [self.outcome.perplexity(point, factor) for factor in LENGTHS]
            if setting.sampling == SAMPLING and self.outcome.results(point):
                lines.append([setting.label, *map(_number, found)])
        return lines

    def ranges(self) -> list[Line]:
        """Table 5: each range of e against the first."""
        lines: list[Line] = []
        for sampling in RANGES:
            for at, mark in enumerate(marks(self.steps)):
                one, other = (Point(Setting("longqlora", 2, some), MODERATE[0], mark) for some in (sampling, SAMPLING))
                beside = _paper({"": paper.TABLE_5[sampling]}, {"": paper.TABLE_5[SAMPLING]}, at)
                lines += self._line([sampling, f"{MODERATE[0]:g}"], one, other, beside)
        return lines

    def alone(self) -> list[Line]:
        """Table 11: each technique against plain fine-tuning."""
        lines: list[Line] = []
        for (adjustment, alpha), printed in paper.TABLE_11.items():
            for at, mark in enumerate(marks(self.steps)):
                one, other = Point(Setting(adjustment, 2), alpha, mark), Point(Setting("none", 2), 0.0, mark)
                beside = _paper({"": printed}, {"": paper.TABLE_11["none", 0.0]}, at)
                lines += self._line([adjustment, f"{alpha:g}"], one, other, beside)
        return lines

    def misaligned(self) -> list[Line]:
        """L_misalign and KL after the last step, and less those of alpha 0."""
        lines: list[Line] = []
        for setting in self.outcome.settings:
            for alpha in setting.alphas:
                point = Point(setting, alpha, self.steps)
                values = [self.outcome.measure(point, name) for name in ("sce", "kl")]
                if None in values:
                    continue
                less = [self.outcome.difference(point, point.without, name) for name in ("sce", "kl")]
                cells = [signed(one, 3) if one and alpha else "" for one in less]
                lines.append([setting.label, f"{alpha:g}", *(_number(value, 3) for value in values), *cells])
        return lines

    def _against_alpha_0(self, wanted: Sequence[Setting], equal_compute: bool, printed: Printed) -> list[Line]:
        lines: list[Line] = []
        for setting in wanted:
            for alpha in setting.alphas[equal_compute:]:
                for at, mark in enumerate(marks(self.steps)):
                    other = Point(setting, alpha, mark).without
                    one = Point(setting, alpha, cheaper(mark) if equal_compute else mark) if alpha else other
                    beside = _paper(printed(setting, alpha), printed(setting, 0.0), at)
                    lines += self._line([setting.adjustment, f"{alpha:g}"], one, other, beside)
        return lines

    def _line(self, label: list[object], one: Point, other: Point, beside: str) -> list[Line]:
        """None where the runs are missing."""
        if not self.outcome.results(one):
            return []
        found = [self.outcome.perplexity(one, factor) for factor in LENGTHS]
        twice, long = (None if one == other else self.outcome.ratio(one, other, factors) for factors in ((2,), LONG))
        lower = "" if long is None else f"{100 * long.lower:.0f} %"
        verdict = "" if long is None else long.verdict
        return [[*label, one.steps, *map(_number, found), _change(twice), _change(long), lower, verdict, beside]]


def rates(trials: Sequence[Trial], chosen: Mapping[str, float]) -> list[Line]:
    """Perplexities on text held back; the chosen one is bold."""
    every = sorted({trial.rate for trial in trials})
    lines: list[Line] = []
    for adjustment in dict.fromkeys(trial.adjustment for trial in trials):
        own = {trial.rate: trial.nll for trial in trials if trial.adjustment == adjustment}
        cells = [_tried(own[rate], chosen.get(adjustment) == rate) if rate in own else "" for rate in every]
        lines.append([adjustment, *cells])
    return lines


def _tried(nll: float | None, is_chosen: bool) -> str:
    text = _number(None if nll is None else math.exp(nll))
    return f"**{text}**" if is_chosen else text


def by_length(answers: Sequence[Answers]) -> list[Line]:
    """Table 6."""
    printed = {
        factor: _percent_change(value, paper.TABLE_6[MODERATE[0]][factor]) for factor, value in paper.TABLE_6[0.0].items()
    }
    return [[f"{factor} x", *_scores(cell), printed.get(factor, "")] for factor, cell in answered.by_length(answers).items()]


def by_depth(answers: Sequence[Answers]) -> list[Line]:
    """Table 7."""
    printed = {depth: _percent_change(value, paper.TABLE_7[MODERATE[0]][depth]) for depth, value in paper.TABLE_7[0.0].items()}
    return [
        [f"{100 * depth:.0f} %", *_scores(cell), printed.get(depth, "")] for depth, cell in answered.by_depth(answers).items()
    ]


def _scores(cell: Sequence[Answers]) -> Line:
    cells: Line = []
    for score in answered.SCORES:
        found = answered.share(cell, score, MODERATE[0])
        cells += ["", "", ""] if found is None else [f"{found.without:.1f}", f"{found.with_loss:.1f}", signed(found.more, 1)]
    return [*cells, f"{answered.chance(cell):.1f}"]


def _percent_change(before: float, after: float) -> str:
    return f"{before:g} -> {after:g} ({after - before:+.1f})"


def _own_length(equal_compute: bool) -> Printed:
    corpora = paper.TABLE_9 if equal_compute else {**paper.TABLE_2, "RedPajama-Book": paper.TABLE_4}

    def printed(setting: Setting, alpha: float) -> dict[str, paper.Perplexities]:
        if setting.adjustment != "clex":
            return {}
        return {corpus: found[alpha] for corpus, found in corpora.items() if alpha in found}

    return printed


def _twice(equal_compute: bool) -> Printed:
    table = paper.TABLE_10 if equal_compute else paper.TABLE_3

    def printed(setting: Setting, alpha: float) -> dict[str, paper.Perplexities]:
        key = setting.adjustment, alpha
        return {"": table[key]} if key in table else {}

    return printed


def _paper(own: Mapping[str, paper.Perplexities], base: Mapping[str, paper.Perplexities], at: int) -> str:
    """The perplexity, and how it differs from what it is compared with."""
    parts = []
    for corpus, printed in own.items():
        change = "" if printed == base[corpus] else f" ({100 * (printed[at] / base[corpus][at] - 1):+.1f} %)"
        parts.append(f"{corpus} {printed[at]:g}{change}".strip())
    return "; ".join(parts)


def _number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "not finite"
    return f"{value:.{digits}f}" if value < 1000 else f"{value:.3g}"


def _change(ratio: Ratio | None) -> str:
    """In percent."""
    if ratio is None:
        return ""
    ends = "" if ratio.low is None or ratio.high is None else f" [{100 * (ratio.low - 1):+.1f}, {100 * (ratio.high - 1):+.1f}]"
    return f"{100 * (ratio.value - 1):+.1f} %{ends}"
