"""What is measured: the hidden tokens of all test documents, one line for a row and length in cells.jsonl."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from experiments._lib.processes import Once, share_out
from experiments.entropy_invariance.batches import Special
from experiments.entropy_invariance.prose import Chapter
from experiments.entropy_invariance.rows import Row
from experiments.entropy_invariance.scoring import answers
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import fingerprint_of
from lengthwise.models.load import load
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.records.intervals import mean_interval
from lengthwise.tasks.masked_tokens import MaskedTokenScore, score

CELLS, EXAM = "cells.jsonl", "exam.json"


@dataclass(frozen=True)
class Cell:
    """One row of the tables at one length."""

    method: str
    cos: float | None
    law: str | None
    released: bool
    length: int  # tokens of an input
    model: str  # folder of the model
    weights: str  # its fingerprint
    spec: str  # the method it was extended with
    seconds: float
    nll: list[list[float]]  # [documents][hidden tokens]
    right: list[list[int]]

    @property
    def row(self) -> Row:
        return Row(self.method, self.cos, self.law, self.released)

    @property
    def key(self) -> tuple[Row, int]:
        return self.row, self.length

    @cached_property
    def score(self) -> MaskedTokenScore:
        return score(self.nll, self.right, mean_interval)


@dataclass(frozen=True)
class Exam:
    """What all cells of a folder are measured on."""

    documents: list[str]  # names of chapters
    count: int  # tokens hidden in each
    longest: int
    tokens_each: int | None = None  # an input has so many for each hidden one; None hides one alone

    @property
    def together(self) -> str:
        """How many at once, in words."""
        return "one at a time" if self.tokens_each is None else f"one in {self.tokens_each} tokens at a time"

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
    """Measures what is not there yet, method by method; rows whose model is not trained are left out.

    Several processes share the work.
    """
    lines, loaded = AppendOnly(folder / CELLS, Cell), Loaded(models, device)
    groups: dict[tuple[str, str], list[tuple[Row, int]]] = {}
    for row in (row for row in rows if trained(models, row)):
        groups.setdefault((row.configuration.name, row.method), []).extend((row, length) for length in lengths)

    def missing(group: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
        lines.refresh()
        return [key for key in group if key not in lines.lines]

    def make(name: str, group: list[tuple[Row, int]]) -> None:
        model, special, weights = loaded.of(name)
        _refuse_another(name, weights, list(lines.lines.values()))
        for row, length in missing(group):
            lines.append([_measured(model, special, weights, row, length, documents, exam)])
            print(f"{row.label}, {length} tokens: {_said(lines.lines[row, length].score)}", flush=True)

    share_out(
        [
            Once(folder / f".claim-{name}-{method}", lambda group=group: not missing(group), partial(make, name, group))
            for (name, method), group in groups.items()
        ]
    )


class Loaded:
    """The model that was asked for last."""

    def __init__(self, models: Path, device: str) -> None:
        self.models, self.device, self.name = models, device, ""
        self.found: tuple[Any, Special, str]

    def of(self, name: str) -> tuple[Any, Special, str]:
        """The model, its special tokens and its fingerprint."""
        if name != self.name:
            model, tokenizer = load(str(self.models / name / "export"), device=self.device)
            # PyTorch's fused kernels are slow where values are twelve times as wide as keys
            model.set_attn_implementation("eager")
            self.name, self.found = name, (model, Special.of(tokenizer), fingerprint_of(anatomy_of(model))["weights"])
        return self.found


def _measured(
    model: Any, special: Special, weights: str, row: Row, length: int, documents: Sequence[Chapter], exam: Exam
) -> Cell:
    begun = time.perf_counter()
    spec = row.spec(length, anatomy_of(model).train_length)
    # Short inputs have fewer tokens to hide
    found = answers(model, documents, length, min(exam.count, length - 2), special, spec, exam.tokens_each)
    seconds = round(time.perf_counter() - begun, 2)
    return Cell(
        **asdict(row),
        length=length,
        model=row.configuration.name,
        weights=weights,
        spec=spec,
        seconds=seconds,
        **asdict(found),
    )


def _refuse_another(name: str, weights: str, cells: Sequence[Cell]) -> None:
    others = {cell.weights for cell in cells if cell.model == name} - {weights}
    if others:
        raise BadInput(f"{name} was trained again since it was measured; give another --name for the new tables")


def _said(score: MaskedTokenScore) -> str:
    return f"PPL {score.perplexity:.3g}, ACC {score.accuracy:.3f}"
