"""The scores as tables: one a task for people (HTML and Markdown), one of all cells for programs (CSV)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lengthwise.records import Cell
from lengthwise.report.formatting import interval, markdown_row, plain
from lengthwise.report.runs.group import ReportedTask, RunGroup
from lengthwise.report.styles import Style


@dataclass(frozen=True)
class Row:
    length: int
    data: str
    cells: tuple[Cell | None, ...]  # one a method; None where nothing was run

    def is_best(self, cell: Cell) -> bool:
        return cell.mean > 0 and all(other is None or other.mean <= cell.mean for other in self.cells)


@dataclass(frozen=True)
class ScoreTable:
    """Rows are lengths, columns are methods."""

    task: ReportedTask
    methods: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def samples(self) -> int | None:
        """Samples a cell, where all cells have as many."""
        counts = {cell.n for row in self.rows for cell in row.cells if cell}
        return counts.pop() if len(counts) == 1 else None


def table(group: RunGroup, reported: ReportedTask) -> ScoreTable:
    cells = {(c.method, c.length, c.data): c for c in group.cells if reported.covers(c)}
    methods = tuple(spec for spec in group.methods if group.cells_of(reported, spec))
    columns = sorted({(length, data) for _, length, data in cells})
    rows = (Row(length, data, tuple(cells.get((spec, length, data)) for spec in methods)) for length, data in columns)
    return ScoreTable(reported, methods, tuple(rows))


def markdown_head() -> str:
    """What stands above the Markdown of all groups."""
    return "# Scores by task and length\n\nMean score in percent, 95 % interval in brackets.\n\n"


def markdown(group: RunGroup, styles: Mapping[str, Style]) -> str:
    lines = [f"## {plain(group.model)}, trained on {group.train_length:,} tokens", ""]
    for reported in group.tasks:
        lines += _markdown_table(table(group, reported), styles)
    return "\n".join(lines)


def _markdown_table(scores: ScoreTable, styles: Mapping[str, Style]) -> list[str]:
    official = scores.task.official
    head = ["length", *(["file"] if official else []), *(styles[spec].name for spec in scores.methods)]
    lines = [
        f"### {plain(scores.task.title)}",
        "",
        markdown_row(head),
        markdown_row(["--:", *["---"] * official, *["--:"] * len(scores.methods)]),
    ]
    for row in scores.rows:
        intervals = [interval(cell) if cell else "" for cell in row.cells]
        lines.append(markdown_row([f"{row.length:,}", *([row.data] if official else []), *intervals]))
    return [*lines, ""]


def csv_rows(group: RunGroup) -> list[dict[str, object]]:
    """The cells of summary.csv; the last column says of which runs."""
    runs = " ".join(str(run.path) for run in group.runs)
    return [{**asdict(cell), "runs": runs} for cell in group.cells]
