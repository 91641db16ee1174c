"""Entropy Invariance's Tables 1, 2, 3, 9 and 10: every method with and without its scales, at six lengths, a row measured once.

    python -m experiments.entropy_invariance.tables --data data --out runs/gau --minutes 9

OUT is the folder of `train`. What is measured lies in OUT/<name>, with tables.json and tables.md; the same command goes on
where it stopped, and several at once share the work. Rows whose model is not trained are left out. --page only writes the page.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from experiments._lib.command import exit_status
from experiments._lib.processes import work_for
from experiments.entropy_invariance import documents
from experiments.entropy_invariance.cells import Exam, measure, read_cells
from experiments.entropy_invariance.configuration import LENGTH, Configuration
from experiments.entropy_invariance.findings import Findings
from experiments.entropy_invariance.losses import read_losses
from experiments.entropy_invariance.page import Origin, page
from experiments.entropy_invariance.paper import LENGTHS
from experiments.entropy_invariance.prose import Chapter, chapters, tokenizer_of
from experiments.entropy_invariance.rows import METHODS, ROWS, TABLES, Row
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.models.load import load

FORMAT = "lengthwise.experiments.entropy_invariance/2"
MACHINE = "made_with.json"


@dataclass(frozen=True)
class Call:
    """What was asked for."""

    data: Path
    out: Path
    name: str = "tables"
    tables: tuple[str, ...] = tuple(TABLES)
    lengths: tuple[int, ...] = LENGTHS
    methods: tuple[str, ...] = tuple(METHODS)
    documents: int = 10
    count: int = 100  # tokens hidden in each document
    tokens_each: int | None = 512  # of an input for each token hidden in it
    window: int = LENGTH  # tokens that a document's feature is read in at a time
    minutes: float = math.inf
    device: str | None = None
    page: bool = False

    @property
    def folder(self) -> Path:
        return self.out / self.name

    @property
    def rows(self) -> list[Row]:
        wanted = {row for name in self.tables for row in TABLES[name]}
        return [row for row in ROWS if row in wanted and row.method in self.methods]


def run(call: Call) -> str:
    """Measures for as long as it may and writes the page."""
    require(min(call.lengths) >= 3, f"--length must be at least 3 tokens, not {min(call.lengths)}")
    call.folder.mkdir(parents=True, exist_ok=True)
    if not call.page:
        work_for(call.minutes, partial(_measure, call))
    return write(call)


def _measure(call: Call) -> None:
    device = call.device or ("cuda" if torch.cuda.is_available() else "cpu")
    exam, chosen = examined(call, device)
    write_whole(call.folder / MACHINE, json.dumps(made_with(device), indent=1) + "\n")
    measure(call.folder, call.out, call.rows, call.lengths, chosen, exam, device)


def examined(call: Call, device: str) -> tuple[Exam, list[Chapter]]:
    """Chosen at the first call, kept with the tables."""
    everything = {one.name: one for one in chapters(call.data, tokenizer_of(call.data))}
    exam, longest = Exam.read(call.folder), max(call.lengths)
    if exam is None:
        base = call.out / Configuration().name / "export"
        require(base.is_dir(), f"the test documents are chosen by the plain model, which is not trained in {call.out}")
        model, _ = load(str(base), device=device)
        chosen = documents.chosen(model, list(everything.values()), longest, call.documents, call.window)
        exam = Exam([one.name for one in chosen], call.count, longest, call.tokens_each)
        exam.write(call.folder)
    same = exam == replace(exam, count=call.count, tokens_each=call.tokens_each) and len(exam.documents) == call.documents
    asked = f"{len(exam.documents)} documents of {exam.longest} tokens with {exam.count} hidden, {exam.together}"
    require(
        same and longest <= exam.longest, f"{call.folder} holds tables of {asked}; ask for the same, or give another --name"
    )
    if unknown := [name for name in exam.documents if name not in everything]:
        raise BadInput(f"{call.folder} was measured on {unknown[0]}, which {call.data} does not have")
    return exam, [everything[name] for name in exam.documents]


def write(call: Call) -> str:
    folder = call.folder
    exam, cells = Exam.read(folder), {cell.key: cell for cell in read_cells(folder)}
    if exam is None or not cells:
        raise BadInput(f"nothing is measured in {folder} yet")
    missing = sum((row, length) not in cells for row in call.rows for length in call.lengths)
    machine = json.loads((folder / MACHINE).read_text()) if (folder / MACHINE).is_file() else {}
    findings = Findings.of(cells)
    text = page(cells, Origin(exam, machine, read_losses(call.out), missing), findings)
    document: dict[str, Any] = {
        "format": FORMAT,
        "exam": asdict(exam),
        "made_with": machine,
        "missing": missing,
        "cells": [
            {
                **asdict(row),
                "length": length,
                "spec": cell.spec,
                "model": cell.model,
                "weights": cell.weights,
                **asdict(cell.score),
            }
            for (row, length), cell in cells.items()
        ],
        **findings.document(),
    }
    write_whole(folder / "tables.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    write_whole(folder / "tables.md", text)
    return text


def tokens_each(text: str) -> int | None:
    return None if text == "alone" else int(text)


def call_from(arguments: list[str] | None = None) -> Call:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with zh/*.txt and gau_vocab/vocab.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder of the trained models")
    parser.add_argument("--name", default=Call.name, help="folder of the tables within it")
    parser.add_argument("--length", dest="lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--table", dest="tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--method", dest="methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--documents", type=int, default=Call.documents)
    parser.add_argument("--count", type=int, default=Call.count, help="tokens hidden in each document")
    each = "an input has so many for each hidden one; `alone` hides one at a time, as the paper does"
    parser.add_argument("--tokens-each", type=tokens_each, default=Call.tokens_each, metavar="TOKENS", help=each)
    parser.add_argument("--minutes", type=float, default=Call.minutes)
    parser.add_argument("--device", help="cuda where there is one")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    given: dict[str, Any] = vars(parser.parse_args(arguments))
    given |= {key: tuple(given[key]) for key in ("lengths", "methods", "tables")}
    return Call(**given)


def main() -> int:
    # Finer than the bfloat16 that the models were trained in, and several times as fast as float32
    torch.set_float32_matmul_precision("high")
    return exit_status(lambda: print(run(call_from())))


if __name__ == "__main__":
    sys.exit(main())
