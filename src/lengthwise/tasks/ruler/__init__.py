"""RULER (Hsieh et al. 2024): 13 tasks from finding one needle to counting words, and one number for all of them.

The tasks are the paper's, wording and material are ours, so that nothing is downloaded. A length is what the prompt has; RULER
subtracts the answer's tokens from it. The mean counts every task once. The effective length is the longest at which the mean is
still what Llama-2-7B scores at 4,096 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from lengthwise.tasks.ruler.needles import KINDS as NEEDLES

NAME = "ruler"
NAMES = tuple(f"{NAME}_{kind}" for kind in (*NEEDLES, "vt", "cwe", "fwe", "qa_1", "qa_2"))
THRESHOLD = 0.856


def mean_records(records: Iterable[Any]) -> list[Any]:
    """Records of the mean over the 13 tasks, under the name `ruler`: one for each sample's index that all tasks have.

    Samples of one index have nothing in common, so an interval over these means is one of the overall mean, and there is no
    depth, answer or time to tell.
    """
    untold = {"depth": None, "prediction": "", "target": "", "seconds": 0.0}
    answered: dict[tuple[Any, ...], list[Any]] = {}
    for record in records:
        if record.task in NAMES and not record.data:
            answered.setdefault((record.model, record.method, record.length, record.index), []).append(record)

    def mean(field: str, group: list[Any]) -> float:
        return fmean(getattr(record, field) for record in group)

    return [
        replace(group[0], **untold, task=NAME, score=mean("score", group), tokens=round(mean("tokens", group)))
        for group in answered.values()
        if len(group) == len(NAMES)
    ]


def effective_length(means: Mapping[int, float], threshold: float = THRESHOLD) -> int | None:
    """The longest length whose mean is at least the threshold; None where no length has such a mean."""
    return max((length for length, mean in means.items() if mean >= threshold), default=None)
