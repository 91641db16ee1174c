"""One line a cell: mean, interval and number of its records, from the records alone."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields

from lengthwise.common.csv_text import csv_text
from lengthwise.records.intervals import mean_interval
from lengthwise.records.record import CellKey, Record


@dataclass(frozen=True)
class Cell:
    """The records of one model, method, task, file and length together."""

    model: str  # as in the records
    method: str
    task: str
    data: str
    length: int
    mean: float  # mean score, 0 to 1
    low: float  # lower end of its 95 % interval
    high: float  # upper end
    n: int  # samples
    tokens: float  # mean number of tokens the prompts really have


def summarise(records: Iterable[Record]) -> list[Cell]:
    """The cells in the order in which they first occur."""
    groups: dict[tuple[str, CellKey], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.model, record.cell].append(record)
    return [
        Cell(model, *key, *mean_interval([r.score for r in group]), len(group), statistics.fmean(r.tokens for r in group))
        for (model, key), group in groups.items()
    ]


def summary_csv(cells: Iterable[Cell]) -> str:
    """The text of summary.csv, sorted by task, file, length and method."""
    ordered = sorted(cells, key=lambda c: (c.task, c.data, c.length, c.method))
    return csv_text([field.name for field in fields(Cell)], (astuple(cell) for cell in ordered))
