"""What is measured: the hidden tokens of all test documents, one line for a row and length in cells.jsonl."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.entropy_invariance.batches import Special
from experiments.entropy_invariance.prose import Chapter
from experiments.entropy_invariance.rows import Row
from experiments.entropy_invariance.scoring import answers
from lengthwise.errors import BadInput
from lengthwise.files import write_whole
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import fingerprint_of
from lengthwise.models.load import load
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.records.intervals import mean_interval
from lengthwise.tasks.masked_tokens import Score, score

CELLS, EXAM = "cells.jsonl", "exam.json"


@dataclass(frozen=True)
class Cell:
    """One row of the table at one length."""

    method: str
    cos: bool
    info: bool
    length: int  # tokens of an input
    model: str  # folder of the model
    weights: str  # its fingerprint
    spec: str  # the method it was extended with
    seconds: float
    nll: list[list[float]]  # [documents][hidden tokens]
    right: list[list[int]]

    @property
    def row(self) -> Row:
        return Row(self.method, self.cos, self.info)

    @property
    def key(self) -> tuple[Row, int]:
        return self.row, self.length

    @cached_property
    def score(self) -> Score:
        return score(self.nll, self.right, mean_interval)


@dataclass(frozen=True)
class Exam:
    """What all cells of a folder are measured on."""

    documents: list[str]  # names of chapters
    count: int  # tokens hidden in each
    longest: int

    @classmethod
    def read(cls, folder: Path) -> Exam | None:
        file = folder / EXAM
        return cls(**json.loads(file.read_text())) if file.is_file() else None

    def write(self, folder: Path) -> None:
        write_whole(folder / EXAM, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


def read_cells(folder: Path) -> list[Cell]:
    return read_lines(folder / CELLS, Cell)


def trained(models: Path, row: Row) -> bool:
    return (models / row.configuration.name / "export" / "config.json").is_file()


def measure(
    folder: Path,
    models: Path,
    rows: Sequence[Row],
    lengths: Sequence[int],
    documents: Sequence[Chapter],
    exam: Exam,
    device: str,
) -> None:
    """Measures what is not there yet, model by model; rows whose model is not trained are left out."""
    lines = AppendOnly(folder / CELLS, Cell)
    for name in dict.fromkeys(row.configuration.name for row in rows if trained(models, row)):
        own = [row for row in rows if row.configuration.name == name]
        wanted = [(row, length) for length in lengths for row in own if (row, length) not in lines.lines]
        if not wanted:
            continue
        model, tokenizer = load(str(models / name / "export"), device=device)
        weights = fingerprint_of(anatomy_of(model))["weights"]
        _refuse_another(name, weights, list(lines.lines.values()))
        for row, length in wanted:
            lines.append([_measured(model, Special.of(tokenizer), weights, row, length, documents, exam.count)])
            print(f"{row.label}, {length} tokens: {_said(lines.lines[row, length].score)}", flush=True)


def _measured(
    model: Any, special: Special, weights: str, row: Row, length: int, documents: Sequence[Chapter], count: int
) -> Cell:
    begun = time.perf_counter()
    # Short inputs have fewer tokens to hide
    found = answers(model, documents, length, min(count, length - 2), special, row.spec)
    seconds = round(time.perf_counter() - begun, 2)
    return Cell(
        **asdict(row),
        length=length,
        model=row.configuration.name,
        weights=weights,
        spec=row.spec,
        seconds=seconds,
        **asdict(found),
    )


def _refuse_another(name: str, weights: str, cells: Sequence[Cell]) -> None:
    others = {cell.weights for cell in cells if cell.model == name} - {weights}
    if others:
        raise BadInput(f"{name} was trained again since it was measured; give another --name for the new table")


def _said(score: Score) -> str:
    return f"PPL {score.perplexity:.3g}, ACC {score.accuracy:.3f}"
