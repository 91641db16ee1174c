"""One temperature for the model, one a layer, or one a layer and head: which is better, on the same samples?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.attention_alignment.paired import Paired, paired
from experiments.attention_alignment.results import Results
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS

LENGTHS = (4096, 15000)
ALL = "all tasks"


@dataclass(frozen=True)
class Comparison:
    """The three scopes of one statistic, on one task and length or on several together."""

    statistic: str
    task: str  # or "all tasks"
    lengths: tuple[int, ...]
    means: dict[str, float]  # by scope, 0 to 1; a scope without records is missing
    against: dict[str, Paired]  # "layer - model", "head - model", "head - layer"

    @property
    def best(self) -> str:
        """The highest mean; of equals the one with fewer numbers."""
        return max(self.means, key=lambda scope: self.means[scope])


def lengths_compared(results: Results) -> list[int]:
    """4k and 15k, or the longest there is."""
    return [n for n in LENGTHS if n in results.lengths] or results.lengths[-1:]


def comparisons(results: Results) -> list[Comparison]:
    """Every statistic and length task by task, then all tasks, then all of those lengths together."""
    lengths = lengths_compared(results)
    spans = [*((n,) for n in lengths), *([tuple(lengths)] if len(lengths) > 1 else [])]
    found = []
    for statistic in STATISTICS:
        for span in spans:
            for tasks in [*([[task] for task in results.tasks] if len(span) == 1 else []), results.tasks]:
                one = _comparison(results, statistic, tasks, span)
                # Where there is one task only, it is all tasks
                if one is not None and one not in found:
                    found.append(one)
    return found


def _comparison(results: Results, statistic: str, tasks: Sequence[str], lengths: tuple[int, ...]) -> Comparison | None:
    scores = {scope: results.scores(f"{statistic}-{scope}", tasks, lengths) for scope in SCOPES}
    scores = {scope: one for scope, one in scores.items() if one}
    # The same samples for all of them, also while some are still being answered
    common = set.intersection(*map(set, scores.values())) if len(scores) > 1 else set()
    if not common:
        return None
    scores = {scope: {key: one[key] for key in common} for scope, one in scores.items()}
    means = {scope: sum(one.values()) / len(one) for scope, one in scores.items()}
    pairs = [("layer", "model"), ("head", "model"), ("head", "layer")]
    against = {f"{a} - {b}": paired(scores[a], scores[b]) for a, b in pairs if a in scores and b in scores}
    name = tasks[0] if len(tasks) == 1 else ALL
    measured = tuple(n for n in lengths if any(n == length for _, length, _ in common))
    return Comparison(statistic, name, measured, means, {key: value for key, value in against.items() if value is not None})


def verdict(some: Sequence[Comparison]) -> list[str]:
    """One sentence a statistic, from its widest comparison."""
    said = []
    for statistic in STATISTICS:
        of_it = [one for one in some if one.statistic == statistic]
        if not of_it:
            continue
        widest = of_it[-1]
        where = " and ".join(f"{n:,}" for n in widest.lengths)
        means = ", ".join(f"{scope} {100 * mean:.1f}" for scope, mean in widest.means.items())
        said.append(f"{statistic}, {widest.task}, {where} tokens: {means}. {_in_words(widest)}")
    return said


def by_default(some: Sequence[Comparison]) -> str:
    """What the comparison of P_max's scopes means for the default."""
    widest = [one for one in some if one.statistic == "pmax"][-1:]
    ahead = [key for one in widest for key, pair in one.against.items() if key == f"{one.best} - model" and pair.low > 0]
    if ahead:
        return f"The default should be {widest[0].best}: it is ahead of model beyond chance."
    return (
        "The default stays model: nothing is ahead of it beyond chance, it is one number a length, and `lengthwise bake` can "
        "fold it into a stock checkpoint, which T5's shared bias forbids for layers and heads."
    )


def _in_words(one: Comparison) -> str:
    better = {key: pair for key, pair in one.against.items() if pair.low > 0 or pair.high < 0}
    if not better:
        return "No scope is better than another beyond chance."
    parts = [f"{key} {100 * p.difference:+.1f} points [{100 * p.low:+.1f}, {100 * p.high:+.1f}]" for key, p in better.items()]
    return f"The best is {one.best}; differences beyond chance: {'; '.join(parts)}."
