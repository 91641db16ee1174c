"""The page of language modelling: Tables 3 and 8, ours and the paper's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments._lib.markdown import table
from experiments.attention_alignment import paper
from experiments.attention_alignment.contenders import NAMES, temperatures
from experiments.attention_alignment.facts import told
from experiments.attention_alignment.likelihoods import MIXED, Likelihoods
from experiments.attention_alignment.tables import Temperatures, temperatures_told
from lengthwise.common.files import write_whole
from lengthwise.tasks.language_modelling import scores
from lengthwise.tasks.perplexity import Ratio, compared

FORMAT = "lengthwise.experiments.language_modelling/1"
NAME = "language_modelling"
ASKED = """{cases} continuations of {continuation} tokens from {text}, the same in every cell. Brackets are 95 % bootstrap
intervals over cases. `hedge+none` mixes the plain model's two readings, whole and truncated: what hedging gives by itself."""
Found = dict[str, dict[int, Tensor]]  # method -> length -> [cases, continuation]


def by_method(likelihoods: Likelihoods, names: Sequence[str]) -> Found:
    """Of the methods named, of whatever else was measured, and of a hedge without a method."""
    measured = dict.fromkeys(method for method, _ in likelihoods.cells)
    others = [name for name in (*measured, MIXED) if name not in names]
    found: Found = {}
    for name in [*(name for name in NAMES if name in names), *(name for name in names if name not in NAMES), *others]:
        known = {length: likelihoods.nll(name, length) for length in likelihoods.lengths}
        if row := {length: nll for length, nll in known.items() if nll is not None}:
            found[name] = row
    return found


def write_outcome(out: Path, likelihoods: Likelihoods, facts: Mapping[str, Any], names: Sequence[str]) -> str:
    """Writes language_modelling.json and language_modelling.md; returns the page."""
    found, train = by_method(likelihoods, names), likelihoods.train_length
    cells = []
    for method, nll in found.items():
        for score in scores(nll):
            ratio = asdict(compared(nll[score.length], nll[train])) if train in nll else None
            cells.append({"method": method, **asdict(score), "ratio": ratio, "nll": nll[score.length].mean(1).tolist()})
    taus = temperatures(likelihoods.lengths, train, out)
    parts = ["# Language modelling by length", told(facts)]
    if facts["missing"]:
        parts.append(f"**Unfinished**: {facts['missing']:,} cells are missing. The same command goes on.")
    text = "\n\n".join([*parts, ASKED.format(**facts), *sections(found, train, taus)]) + "\n"
    document = {"format": FORMAT, **facts, "cells": cells, "temperatures": taus}
    write_whole(out / f"{NAME}.json", json.dumps(document, indent=1) + "\n")
    write_whole(out / f"{NAME}.md", text)
    return text


def sections(found: Found, train: int, taus: Temperatures) -> list[str]:
    lengths = sorted({length for row in found.values() for length in row})
    head = [f"{n:,}" for n in lengths]
    ours = [[method, *(_perplexity(nll, n) for n in lengths)] for method, nll in found.items()]
    ratios = [[method, *(_ratio(nll, n, train) for n in lengths)] for method, nll in found.items()]
    papers = [f"{n:,}" for n in paper.TABLE_3_LENGTHS]
    return [
        "## Table 3: perplexity",
        table(["perplexity", *head], ours),
        table([f"over that at {train:,} tokens, which truncation gives", *head], ratios),
        table(["paper, Table 3", *papers], [[f"{model}, {method}", *row] for (model, method), row in paper.TABLE_3.items()]),
        "## Table 8: temperatures",
        temperatures_told(taus, train),
        table(["paper, Table 8", *papers], [[f"{model}, {method}", *row] for (model, method), row in paper.TABLE_8.items()]),
    ]


def _perplexity(nll: Mapping[int, Tensor], length: int) -> str:
    if length not in nll:
        return ""
    (score,) = scores({length: nll[length]})
    return _interval(score.perplexity, score.low, score.high)


def _ratio(nll: Mapping[int, Tensor], length: int, train: int) -> str:
    return ratio_told(compared(nll[length], nll[train])) if length in nll and train in nll else ""


def ratio_told(found: Ratio) -> str:
    return _interval(found.ratio, found.low, found.high)


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.4g} [{low:.4g}, {high:.4g}]"
