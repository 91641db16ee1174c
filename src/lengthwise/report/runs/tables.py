"""The scores as tables: one a task for people (HTML and Markdown), one of all cells for programs (CSV).

Beside them one sample a task, as every method answered it: a score is easier to believe beside an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lengthwise.records import Cell, Record
from lengthwise.report.formatting import interval, markdown_row, plain
from lengthwise.report.runs.group import ReportedTask, RunGroup
from lengthwise.report.styles import Style

# Stands above the Markdown of all groups
MARKDOWN_HEAD = "# Scores by task and length\n\nMean score in percent, 95 % interval in brackets.\n\n"


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


def markdown(group: RunGroup, styles: Mapping[str, Style]) -> str:
    lines = [f"## {plain(group.model)}, trained on {group.train_length:,} tokens", ""]
    for reported in group.tasks:
        lines += _markdown_table(table(group, reported), styles)
    return "\n".join(lines)


def _markdown_table(scores: ScoreTable, styles: Mapping[str, Style]) -> list[str]:
    head = ["length", *(["file"] if scores.task.own_files else []), *(styles[spec].name for spec in scores.methods)]
    rule = ["--:", *["---"] * scores.task.own_files, *["--:"] * len(scores.methods)]
    lines = [f"### {plain(scores.task.title)}", "", markdown_row(head), markdown_row(rule)]
    for row in scores.rows:
        intervals = [interval(cell) if cell else "" for cell in row.cells]
        lines.append(markdown_row([f"{row.length:,}", *([row.data] if scores.task.own_files else []), *intervals]))
    return [*lines, ""]


def csv_rows(group: RunGroup) -> list[dict[str, object]]:
    """The cells of summary.csv; the last column says of which runs."""
    runs = " ".join(str(run.path) for run in group.runs)
    return [{**asdict(cell), "runs": runs} for cell in group.cells]


@dataclass(frozen=True)
class Example:
    name: str
    length: int
    data: str
    target: str
    answers: tuple[Record, ...]  # one a method


def example(group: RunGroup, reported: ReportedTask) -> Example:
    """At the longest length: the first sample that the methods answered differently well, else the first of all."""
    records = [record for record in group.records if reported.covers(record)]
    length, data = max((record.length, record.data) for record in records)
    samples: dict[tuple[int, int], dict[str, Record]] = {}
    for record in records:
        if (record.length, record.data) == (length, data):
            samples.setdefault((record.seed, record.index), {})[record.method] = record
    tell = [answers for answers in samples.values() if len({record.score for record in answers.values()}) > 1]
    chosen = (tell or list(samples.values()))[0]
    answers = tuple(chosen[spec] for spec in group.methods if spec in chosen)
    return Example(reported.title, length, data, answers[0].target, answers)
