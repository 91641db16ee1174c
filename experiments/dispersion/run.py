"""How sharp attention is by length: Tables 1 and 7 and Figures 1 to 9, for any T5.

    python -m experiments.dispersion.run embedded --out runs/embedded
    python -m experiments.dispersion.run embedded --analyse --out runs/embedded

Means of P_max and entropy over all layers, heads and rows of the samples of a task; of the plain model's first layer the
sorted, averaged logits; and the temperatures that keep P_max and entropy, solved on each sample alone. --analyse runs
`lengthwise analyse` on prose and on one long prompt of every task instead, into OUT/analysis and OUT/analysis-TASK; new
lengths are added.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import lengthwise as lw
from experiments._lib import alignments, measure, results
from experiments._lib.command import main, option
from experiments._lib.measure import LENGTHS, Subject
from experiments._lib.minutes import say
from experiments._lib.retrieval_tasks import TASKS as RETRIEVAL
from experiments._lib.retrieval_tasks import asked
from experiments.dispersion.page import FORMAT, write_pages
from lengthwise.analysis.measurements import at_length
from lengthwise.errors import require
from lengthwise.models.anatomy import anatomy_of
from lengthwise.tasks import TASKS

METHODS = ("none", "log", *alignments.ALIGNED)
PROSE = "prose"
STATISTICS = {"pmax": "p_max", "entropy": "entropy"}
# The most important first
TEXTS = (PROSE, "topic", "line", "passkey", "multi_document_qa", "code_completion")


@dataclass(frozen=True, kw_only=True)
class Options(measure.Options):
    samples: int = option(4, "of each cell")
    lengths: tuple[int, ...] = option(LENGTHS, "tokens", flag="--length")
    tasks: tuple[str, ...] = option((), f"{', '.join(RETRIEVAL)}; all there are if none", flag="--task")
    data: Path | None = option(None, "folder with gutenberg/*.txt, for the passkey in held-out novels")
    analyse: bool = option(False, "run `lengthwise analyse` on texts instead")
    texts: tuple[str, ...] = option(TEXTS, "what --analyse reads", flag="--text", choices=TEXTS)

    def __post_init__(self) -> None:
        plain = [name for name in self.methods if name == "truncate" or alignments.hedged(name)]
        require(not plain, f"{', '.join(plain)} leaves attention as it is; leave it out here")

    @property
    def read_at(self) -> tuple[int, ...]:
        return self.lengths


def dispersion(options: Options) -> list[dict[str, Any]]:
    """Measures all cells, in a minute or so, and writes their page; or analyses texts."""
    subject = Subject.of(options)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.analyse:
        for name in options.texts:
            _analyse(subject, options, name)
        return []
    names, tasks = options.methods or METHODS, asked(options.tasks, options.data)
    methods = subject.contenders(names)
    cells, logits, temperatures = [], [], []
    for task in tasks:
        for length in options.lengths:
            say(f"{task.name} at {length:,} tokens")
            samples = task.make(subject.tokenizer, length, options.samples, options.seed)
            ids = [torch.tensor([subject.tokenizer(sample.prompt, verbose=False).input_ids]) for sample in samples]
            for name, method in methods.items():
                cells.append({"task": task.name, "length": length, "method": name, **_means(subject, ids, method)})
            logits.append({"task": task.name, "length": length, **_logits(subject, ids)})
            if length > subject.train_length:
                temperatures.append({"task": task.name, "length": length, **_temperatures(subject, ids)})
    facts = subject.facts("dispersion", {task.name: task.material for task in tasks})
    found = {**facts, "cells": cells, "logits": logits, "temperatures": temperatures}
    results.write(options.out / "dispersion.json", FORMAT, facts["command"], found)
    write_pages(options.out, options.out)
    return cells


def _means(subject: Subject, ids: Sequence[Tensor], method: Any) -> dict[str, Any]:
    """P_max and entropy: of everything, of each text, of each layer."""
    stats = [lw.row_statistics(subject.model, one, method=method, train_length=subject.train_length) for one in ids]
    means: dict[str, Any] = {}
    for key, name in STATISTICS.items():
        values = torch.stack([getattr(one, name) for one in stats]).double()  # [texts, layers, heads]
        means |= {key: float(values.mean()), f"{key}_by_text": values.mean((1, 2)).tolist()}
        means |= {f"{key}_by_layer": values.mean((0, 2)).tolist()}
    return means


def _logits(subject: Subject, ids: Sequence[Tensor]) -> dict[str, Any]:
    """The largest of the plain model's first layer, their deviation and how straight their QQ plot is; means over texts."""
    anatomy = anatomy_of(subject.model, subject.train_length)
    found = [at_length(subject.model, anatomy, one) for one in ids]
    values = {name: [getattr(one, name) for one in found] for name in ("top", "sigma", "qq_r")}
    means = {name: fmean(known) for name, known in values.items()}
    return {**means, "top_by_text": values["top"], "qq_r_by_text": values["qq_r"]}


def _temperatures(subject: Subject, ids: Sequence[Tensor]) -> dict[str, list[float]]:
    """By statistic: the temperature that keeps it, for each text."""

    def solved(one: Tensor, statistic: str) -> float:
        alignment = lw.calibrate(
            subject.model,
            None,
            one.shape[1],
            statistic=statistic,
            input_ids=one,
            train_length=subject.train_length,
            show_progress=False,
        )
        return float(alignment.tau(one.shape[1]))

    return {statistic: [solved(one, statistic) for one in ids] for statistic in STATISTICS}


def _analyse(subject: Subject, options: Options, name: str) -> None:
    folder = options.out / ("analysis" if name == PROSE else f"analysis-{name}")
    say(f"analysing {name}")
    how: dict[str, Any] = {"train_length": options.train_length, "seed": options.seed, "name": options.model}
    if name != PROSE:
        # The same text whatever the lengths, so that shorter ones can be added; stretches are cut out of it
        size = int(1.1 * max(*LENGTHS, *options.lengths))
        (sample,) = TASKS[name].samples(subject.tokenizer, size, 1, options.seed)
        how["text"] = sample.prompt
    lw.analyse(subject.model, subject.tokenizer, options.lengths, folder, show_progress=False, **how)


if __name__ == "__main__":
    sys.exit(main(Options, dispersion, __doc__))
