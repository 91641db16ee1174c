"""Tables as CSV text, in which no spreadsheet program takes a cell for a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

# How a formula begins; a number below 0 and @alignment.json, the name of a method, call nothing and stay as they are
FORMULA = re.compile(r"[=+\t]|-(?![\d.e+-]+\Z)|@(?![\w./-]+\Z)")


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """The text of a CSV file; a cell that a spreadsheet program would compute has a ' before it, which such programs hide."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_shown(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue()


def _shown(cell: str) -> str:
    # Python's writer does not quote a lone \r, at which readers end a line
    return ("'" * bool(FORMULA.match(cell)) + cell).replace("\r", "\\r")
