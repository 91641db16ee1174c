"""The scores as tables: one a task for people (HTML and Markdown), one of all cells for programs (CSV)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from lengthwise.records import Cell
from lengthwise.report.section import Section, Subject
from lengthwise.report.styles import Style
from lengthwise.report.words import interval

COLUMNS = [field.name for field in fields(Cell)]


@dataclass(frozen=True)
class Row:
    length: int
    data: str
    cells: tuple[Cell | None, ...]  # one a method; None where nothing was run

    def is_best(self, cell: Cell) -> bool:
        return cell.mean > 0 and all(other is None or other.mean <= cell.mean for other in self.cells)


@dataclass(frozen=True)
class Table:
    """Rows are lengths, columns are methods."""

    subject: Subject
    methods: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def samples(self) -> int | None:
        """Samples a cell, where all cells have as many."""
        counts = {cell.n for row in self.rows for cell in row.cells if cell}
        return counts.pop() if len(counts) == 1 else None


def table(section: Section, subject: Subject) -> Table:
    cells = {(c.method, c.length, c.data): c for c in section.cells if subject.covers(c)}
    methods = tuple(spec for spec in section.methods if section.cells_of(subject, spec))
    columns = sorted({(length, data) for _, length, data in cells})
    rows = (Row(length, data, tuple(cells.get((spec, length, data)) for spec in methods)) for length, data in columns)
    return Table(subject, methods, tuple(rows))


def markdown(sections: Sequence[Section], looks: Mapping[str, Style]) -> str:
    lines = ["# Scores by task and length", "", "Mean score in percent, 95 % interval in brackets.", ""]
    for section in sections:
        lines += [f"## {plain(section.model)}, trained on {section.train_length:,} tokens", ""]
        for subject in section.subjects:
            lines += _markdown_table(table(section, subject), looks)
    return "\n".join(lines)


def _markdown_table(of: Table, looks: Mapping[str, Style]) -> list[str]:
    official = of.subject.official
    head = ["length", *(["file"] if official else []), *(looks[spec].name for spec in of.methods)]
    lines = [
        f"### {plain(of.subject.name)}",
        "",
        markdown_row(head),
        markdown_row(["--:", *["---"] * official, *["--:"] * len(of.methods)]),
    ]
    for row in of.rows:
        scores = [interval(cell) if cell else "" for cell in row.cells]
        lines.append(markdown_row([f"{row.length:,}", *([row.data] if official else []), *scores]))
    return [*lines, ""]


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(plain, cells))} |"


def plain(text: str) -> str:
    """Text that Markdown takes as it is: one line, no cell borders, no HTML."""
    text = " ".join(text.split())
    for character in "\\|<`*_[":
        text = text.replace(character, f"\\{character}")
    return text


def csv_text(sections: Sequence[Section]) -> str:
    """The cells of summary.csv, of all runs; the last column says which."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, "runs"])
    for section in sections:
        runs = " ".join(str(run.path) for run in section.runs)
        for cell in section.cells:
            writer.writerow([*(getattr(cell, name) for name in COLUMNS), runs])
    return out.getvalue()
