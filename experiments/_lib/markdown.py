"""Markdown tables, and the texts that stand between them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def table(head: Sequence[object], rows: Iterable[Sequence[object]], numbers: bool = True) -> str:
    """The first column to the left, the others to the right where they are numbers."""
    others = "---:" if numbers else "---"
    lines = [_row(head), _row(["---", *[others] * (len(head) - 1)]), *map(_row, rows)]
    return "\n".join(lines)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def words_beside(module: str) -> dict[str, Any]:
    """The texts of a page, from the file words.json in the folder of the module; a list holds the lines of one text."""
    words = json.loads(Path(module).with_name("words.json").read_text())
    return {name: "\n".join(text) if isinstance(text, list) else text for name, text in words.items()}
