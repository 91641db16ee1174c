"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[object], rows: Iterable[Sequence[object]], numbers: bool = True) -> str:
    """The first column to the left, the others to the right where they are numbers."""
    others = "---:" if numbers else "---"
    lines = [_row(head), _row(["---", *[others] * (len(head) - 1)]), *map(_row, rows)]
    return "\n".join(lines)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
