"""How sharp attention is by length: the paper's Table 1, for any model, without a method and under the alignments.

    python -m experiments.attention_alignment.dispersion embedded --out runs/retrieval

Means over all layers, heads and rows of the samples of a task. Alignments that a retrieval experiment left in OUT are used,
those it lacks are calibrated. OUT then holds dispersion.json and dispersion.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

import lengthwise as lw
from experiments._lib.command import exit_status
from experiments._lib.markdown import table
from experiments._lib.processes import share_out
from experiments.attention_alignment import contenders, material, paper
from experiments.attention_alignment.arguments import ByLength, by_length, given, parser_of
from experiments.attention_alignment.facts import facts_of, told
from lengthwise.common.files import write_whole
from lengthwise.errors import require
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load

FORMAT = "lengthwise.experiments.dispersion/1"
METHODS = ("none", "log", *contenders.ALIGNED)
WORDS = {"pmax": "P_max, the mean largest probability of a row", "entropy": "Entropy of a row, mean, in nats"}


@dataclass(frozen=True)
class Dispersion:
    """One task, length and method."""

    task: str
    length: int
    method: str
    pmax: float  # mean over layers, heads and rows
    entropy: float  # in nats
    pmax_by_layer: list[float]
    entropy_by_layer: list[float]


def dispersion(call: ByLength) -> list[Dispersion]:
    require("truncate" not in call.methods, "truncate leaves attention as it is; leave it out here")
    hedged = [name for name in call.methods if contenders.hedged(name)]
    require(not hedged, f"{', '.join(hedged)} reads with the attention of the method behind it; name that here")
    asked = material.asked(call.tasks, call.data)
    model, tokenizer = load(call.model, call.dtype, call.device)
    train_length = anatomy_of(model, call.train_length).train_length
    names = call.methods or METHODS
    share_out(contenders.calibrated_once(model, tokenizer, names, call.solved_at, train_length, call.out))
    methods = contenders.contenders(names, call.solved_at, train_length, call.out)
    found: list[Dispersion] = []
    for one in asked:
        for length in call.lengths:
            print(f"{one.name} at {length:,} tokens", file=sys.stderr, flush=True)
            prompts = [sample.prompt for sample in one.make(tokenizer, length, call.samples, call.seed)]
            ids = [torch.tensor([tokenizer(prompt, verbose=False).input_ids]) for prompt in prompts]
            found += [
                Dispersion(one.name, length, name, *_means(model, ids, method, train_length))
                for name, method in methods.items()
            ]
    facts = facts_of("dispersion", call, model, names, {one.name: one.material for one in asked})
    text = _page(found, facts)
    document = {"format": FORMAT, **facts, "cells": [asdict(cell) for cell in found]}
    write_whole(call.out / "dispersion.json", json.dumps(document, indent=1) + "\n")
    write_whole(call.out / "dispersion.md", text)
    print(text)
    return found


def _means(model: Any, ids: Sequence[Tensor], method: Any, train_length: int) -> tuple[float, float, list[float], list[float]]:
    """P_max and entropy, of all layers and of each."""
    stats = [lw.row_statistics(model, one, method=method, train_length=train_length) for one in ids]
    p_max, entropy = (torch.stack([getattr(one, name) for one in stats]).double().mean((0, 2)) for name in ("p_max", "entropy"))
    return float(p_max.mean()), float(entropy.mean()), p_max.tolist(), entropy.tolist()


def _page(found: Sequence[Dispersion], facts: Mapping[str, Any]) -> str:
    return "\n\n".join(["# Attention by length", told(facts), *sections(found)]) + "\n"


def sections(found: Sequence[Dispersion]) -> list[str]:
    """Table 1, ours and the paper's."""
    parts = []
    for statistic, words in WORDS.items():
        parts += [f"## {words}", _paper(statistic)]
        for task in dict.fromkeys(cell.task for cell in found):
            parts.append(_ours([cell for cell in found if cell.task == task], statistic))
    return parts


def _paper(statistic: str) -> str:
    rows = [[task, *values] for task, values in paper.TABLE_1[statistic].items()]
    return table([f"paper, Table 1: {paper.TABLE_1_MODEL}, none", *(f"{n:,}" for n in paper.TABLE_1_LENGTHS)], rows)


def _ours(cells: Sequence[Dispersion], statistic: str) -> str:
    lengths = sorted({cell.length for cell in cells})
    values = {(cell.method, cell.length): getattr(cell, statistic) for cell in cells}
    methods = list(dict.fromkeys(cell.method for cell in cells))
    rows = [[method, *(f"{values[method, n]:.3f}" for n in lengths)] for method in methods]
    return table([f"ours, {cells[0].task}", *(f"{n:,}" for n in lengths)], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_status(lambda: dispersion(ByLength(**given(by_length(parser_of(__doc__, samples=4)), arguments))))


if __name__ == "__main__":
    sys.exit(main())
