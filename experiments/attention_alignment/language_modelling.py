"""Perplexity by length: the paper's Table 3, for any encoder-decoder or decoder.

    python -m experiments.attention_alignment.language_modelling embedded --no-sentinel --text novel.txt \
        --method none log @alignment.json --length 512 4096 --out runs/language_modelling

The same continuations at every length and under every method, so that a column over the training length's is a ratio on the
same tokens; the training length's own column is also what truncation gives at any length beyond. A perplexity has no place
among the records of `lengthwise evaluate`, whose scores run from 0 to 1, so it has this command of its own. OUT then holds
language_modelling.json and language_modelling.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.attention_alignment import paper
from experiments.common.markdown import table
from experiments.common.status import exit_status
from lengthwise.errors import require
from lengthwise.files import write_whole
from lengthwise.likelihood import language_modelling
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import fingerprint_of
from lengthwise.models.load import DTYPES, load
from lengthwise.sweep.settings import dtype_of, made_with
from lengthwise.tasks.language_modelling import scores
from lengthwise.tasks.perplexity import Ratio, compared
from lengthwise.text import read_texts, shipped_prose

FORMAT = "lengthwise.experiments.language_modelling/1"
NAME = "language_modelling"
Found = dict[str, dict[int, Tensor]]  # method -> length -> [cases, continuation]


def measured(call: argparse.Namespace, typed: str) -> Found:
    require(call.cases >= 2, f"--cases must be at least 2, for intervals, not {call.cases}")
    text = read_texts(call.text) if call.text else shipped_prose()
    device = call.device or ("cuda" if torch.cuda.is_available() else "cpu")
    model, tokenizer = load(call.model, call.dtype, device)
    anatomy = anatomy_of(model, call.train_length)
    options = {"cases": call.cases, "continuation": call.continuation, "sentinel": call.sentinel, "seed": call.seed}
    lengths = sorted({anatomy.train_length, *call.length})
    found: Found = {}
    for method in dict.fromkeys(call.method):
        print(f"{method}, {', '.join(f'{n:,}' for n in lengths)} tokens", file=sys.stderr, flush=True)
        found[method] = language_modelling(
            model, tokenizer, text, lengths, **options, method=method, train_length=call.train_length
        )
        facts = {
            "command": f"python -m experiments.attention_alignment.{NAME} {typed}",
            "model": {**fingerprint_of(anatomy), "name": call.model},
            "made_with": made_with(device),
            "dtype": dtype_of(model),
            "train_length": anatomy.train_length,
            "text": [Path(path).name for path in call.text] or "shipped prose",
            **options,
        }
        write(found, facts, call.out)
    print((call.out / f"{NAME}.md").read_text(encoding="utf-8"))
    return found


def write(found: Found, facts: Mapping[str, Any], out: Path) -> None:
    """After every method, so that what was measured is kept."""
    train = facts["train_length"]
    cells = []
    for method, nll in found.items():
        for score in scores(nll):
            ratio = compared(nll[score.length], nll[train])
            cells.append({"method": method, **asdict(score), "ratio": asdict(ratio), "nll": nll[score.length].mean(1).tolist()})
    write_whole(out / f"{NAME}.json", json.dumps({"format": FORMAT, **facts, "cells": cells}, indent=1) + "\n")
    write_whole(out / f"{NAME}.md", page(found, facts))


def page(found: Found, facts: Mapping[str, Any]) -> str:
    train = facts["train_length"]
    lengths = list(next(iter(found.values())))
    head = [f"{n:,}" for n in lengths]
    ours = [[method, *(_interval(s.perplexity, s.low, s.high) for s in scores(nll))] for method, nll in found.items()]
    ratios = [[method, *(_ratio(compared(nll[n], nll[train])) for n in lengths)] for method, nll in found.items()]
    paper_rows = [[f"{model}, {method}", *values] for (model, method), values in paper.TABLE_3.items()]
    asked = f"{facts['cases']} continuations of {facts['continuation']} tokens, the same in every cell"
    parts = [
        "# Language modelling by length",
        f"{facts['model']['name']}, trained on {train:,} tokens; {asked}. Brackets are 95 % bootstrap intervals over cases.",
        f"Made by `{facts['command']}`.",
        table(["perplexity", *head], ours),
        table([f"over that at {train:,} tokens, which truncation gives", *head], ratios),
        table(["paper, Table 3", *(f"{n:,}" for n in paper.TABLE_3_LENGTHS)], paper_rows),
    ]
    return "\n\n".join(parts) + "\n"


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.4g} [{low:.4g}, {high:.4g}]"


def _ratio(found: Ratio) -> str:
    return _interval(found.ratio, found.low, found.high)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("model", nargs="?", default="embedded", metavar="MODEL", help="directory, hub name, or embedded")
    made.add_argument("--text", nargs="+", action="extend", default=[], help="files; by default the package's prose")
    made.add_argument("--length", nargs="+", action="extend", type=int, default=[], help="tokens, beside the training length")
    made.add_argument("--method", nargs="+", action="extend", required=True, help="specs")
    made.add_argument("--cases", type=int, default=100, help="places in the text")
    made.add_argument("--continuation", type=int, default=64, help="tokens told at each place")
    made.add_argument("--no-sentinel", dest="sentinel", action="store_false", help="for models trained to go on with a prefix")
    made.add_argument("--out", type=Path, required=True, help="folder of the experiment")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--train-length", type=int, help="the model's own if not given")
    made.add_argument("--dtype", choices=list(DTYPES), default="auto")
    made.add_argument("--device", help="cuda where there is one")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return exit_status(lambda: measured(parser().parse_args(typed), shlex.join(typed)))


if __name__ == "__main__":
    sys.exit(main())
