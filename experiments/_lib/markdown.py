"""Markdown tables, and the texts that stand between them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MARKED = """† Student's interval: which samples differ was not kept, so that it could not be made again as the others were.
Where few do it is too narrow: fewer than six decide nothing."""


def table(head: Sequence[object], rows: Iterable[Sequence[object]], numbers: bool = True) -> str:
    """The first column to the left, the others to the right where they are numbers."""
    others = "---:" if numbers else "---"
    lines = [_row(head), _row(["---", *[others] * (len(head) - 1)]), *map(_row, rows)]
    return "\n".join(lines)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def marked(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the mark of an interval says, where some row has one."""
    return [MARKED] if any("mark" in row for row in rows) else []


def with_mark(told: str, row: Mapping[str, Any]) -> str:
    return f"{told} {row['mark']}" if "mark" in row else told


def words_beside(module: str) -> dict[str, Any]:
    """The texts of a page, from the file words.json in the folder of the module; a list holds the lines of one text."""
    words = json.loads(Path(module).with_name("words.json").read_text())
    return {name: "\n".join(text) if isinstance(text, list) else text for name, text in words.items()}
