"""What the rows say: coefficients of sets of rows, and in words whether misalignment tells more of long perplexity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.output_alignment.correlation_paper import TABLE_1
from experiments.output_alignment.correlation_rows import Row
from experiments.output_alignment.correlation_strength import Coefficient, Strength, strength
from experiments.rope_methods.contenders import PLAIN

MEASURES = {"l_train": "L_train", "l_misalign": "L_misalign", "kl": "symmetric KL"}
MORE, LESS, NEITHER, UNDECIDED, SILENT = "more strongly", "less strongly", "neither does", "undecided", "too few rows"


@dataclass(frozen=True)
class Group:
    """A set of rows of which coefficients are taken."""

    models: str
    lengths: str
    rows: list[Row]

    @property
    def label(self) -> str:
        return f"{self.models}, {self.lengths}"

    @property
    def acting(self) -> Group:
        """Without those that leave the model as it is up to the training length; the plain model stays."""
        return Group(self.models, self.lengths, [row for row in self.rows if row.method == PLAIN or not row.unchanged])

    def strength(self, kind: str = "Spearman", quality: str = "log_ppl") -> Strength | None:
        columns = {name: [getattr(row, name).mean for row in self.rows] for name in MEASURES}
        results = [getattr(row, quality).mean for row in self.rows]
        return strength(kind, columns, results, [(row.model, row.family) for row in self.rows])


def groups(rows: Sequence[Row]) -> list[Group]:
    """All rows first, then by length, and the same within each model."""
    models = list(dict.fromkeys(row.model for row in rows))
    scopes = [("all models", models)] if len(models) > 1 else []
    found = []
    for name, members in [*scopes, *((model, [model]) for model in models)]:
        own = [row for row in rows if row.model in members]
        factors = sorted({row.factor for row in own})
        if len(factors) > 1:
            found.append(Group(name, "all lengths", own))
        found += [Group(name, f"{factor:g} x", [row for row in own if row.factor == factor]) for factor in factors]
    return found


def of_the_paper(kind: str) -> Strength:
    """The same of its seven models."""
    columns = {name: [getattr(one, name) for one in TABLE_1] for name in ("l_train", "l_misalign")}
    found = strength(kind, columns, [one.log_ppl for one in TABLE_1], [one.model for one in TABLE_1])
    assert found is not None
    return found


def verdict(found: Strength | None) -> str:
    """Decided where whole intervals say so; of two measures that may not rise with perplexity at all, none is the stronger."""
    if found is None:
        return SILENT
    if found.more.high < 0:
        return LESS
    if found.of["l_train"].low <= 0 and found.of["l_misalign"].low <= 0:
        return NEITHER
    return MORE if found.more.low > 0 and found.of["l_misalign"].low > 0 else UNDECIDED


def findings(rows: Sequence[Row]) -> list[str]:
    """Sentences, the answer first."""
    first, *others = groups(rows)
    said = [f"**{_answer(first)}**", *(_of_lengths(first, others)), *_within(first, others)]
    said += [words for words in (_unchanged(first), _acting(first), _divergence(first), _alike(first)) if words]
    return [*said, _paper(first)]


def _paper(group: Group) -> str:
    paper, ours = of_the_paper("Spearman"), group.strength()
    words = (
        f"Paper, seven models: {_two(paper)}; the difference is {told(paper.more)} when models are drawn again: by the "
        f"standard used here, {verdict(paper)}."
    )
    if ours is None:
        return words
    holds = "holds" if ours.more.low <= paper.more.value <= ours.more.high else "does not hold"
    return f"{words} Our interval of the difference {holds} the paper's {paper.more.value:.2f}."


def told(one: Coefficient) -> str:
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _answer(group: Group) -> str:
    found = group.strength()
    if found is None:
        return f"{len(group.rows)} rows are too few, or too much alike, to say anything."
    answers = {
        MORE: "Misalignment correlates more strongly with long perplexity than training loss does",
        LESS: "Misalignment does not correlate more strongly with long perplexity than training loss does, but less",
        NEITHER: "Misalignment does not correlate more strongly with long perplexity than training loss does: neither does for "
        "certain",
        UNDECIDED: "Whether misalignment correlates more strongly with long perplexity than training loss does is undecided",
    }
    return (
        f"{answers[verdict(found)]}. Over {found.rows} rows ({group.label}) Spearman's coefficient is {_two(found)}; the "
        f"difference is {told(found.more)}."
    )


def _two(found: Strength) -> str:
    return f"{told(found.of['l_misalign'])} for L_misalign and {told(found.of['l_train'])} for L_train"


def _of_lengths(first: Group, others: Sequence[Group]) -> list[str]:
    parts = [f"{one.lengths} {_short(one)}" for one in others if one.models == first.models]
    return [f"By length, L_misalign's coefficient less L_train's: {'; '.join(parts)}."] if parts else []


def _within(first: Group, others: Sequence[Group]) -> list[str]:
    """Each model by itself, where there are several."""
    models = list(dict.fromkeys(one.models for one in others if one.models != first.models))
    parts = [next(one for one in others if one.models == model) for model in models]
    return [f"Within a model: {'; '.join(f'{one.label} {_short(one)}' for one in parts)}."] if parts else []


def _short(group: Group) -> str:
    found = group.strength()
    return verdict(found) if found is None else f"{told(found.more)}, {verdict(found)}"


def _unchanged(group: Group) -> str | None:
    same = [row for row in group.rows if row.unchanged]
    if len(same) < 2:
        return None
    low, high = (math.exp(pick(row.log_ppl.mean for row in same)) for pick in (min, max))
    return (
        f"{len(same)} of {len(group.rows)} rows are the plain model up to the training length, so that neither measure can "
        f"tell them apart; their long perplexities go from {low:.3g} to {high:.3g}."
    )


def _acting(group: Group) -> str | None:
    acting = group.acting
    found = acting.strength()
    if found is None or len(acting.rows) == len(group.rows):
        return None
    rows = f"Without those but the plain model itself, over {found.rows} rows"
    return f"{rows}: {_two(found)}; the difference is {told(found.more)}, {verdict(found)}."


def _divergence(group: Group) -> str | None:
    found = group.strength()
    if found is None:
        return None
    return (
        f"The symmetric KL, which is 0 for a model that is unsure in the same way twice, has {told(found.of['kl'])} where "
        f"L_misalign has {told(found.of['l_misalign'])}."
    )


def _alike(group: Group) -> str | None:
    found = group.strength()
    return None if found is None else f"L_misalign and L_train with each other: {told(found.between)}."
