"""Write a page from sections that callers fill: HTML that needs nothing else, and its tables beside it.

Figures are SVG that Python places and a template draws, with a short script for hovering and for switching curves: the page is
a few hundred kilobytes where a plotting library inlined would add five megabytes, prints, and reads without a script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from markupsafe import Markup

from lengthwise.common.csv_text import csv_text
from lengthwise.common.files import check_writable, read_file, write_whole
from lengthwise.errors import require
from lengthwise.report.charts import TEMPLATE, templates
from lengthwise.report.formatting import listed, percent, shortened, tokens_at
from lengthwise.report.styles import Style

MADE_HERE = b'<meta name="generator" content="lengthwise">'


@dataclass(frozen=True)
class Section:
    """One part of a page, and the same for people who read Markdown and for programs that read CSV."""

    heading: str  # whom it is about, a model as a rule; named in the page's title
    shows: str  # what it shows, "score by length"; the first section's ends the page's title
    template: str  # file under template/ that draws `content`
    content: Mapping[str, Any]  # what the template draws; all text in it is escaped
    markdown: str
    rows: Sequence[Mapping[str, object]] = ()  # of the CSV file, by column; sections may have different columns
    styles: Mapping[str, Style] = field(default_factory=dict)  # of methods a reader may hide and show, by spec


def model_heading(model: str) -> str:
    """A model as a heading names it: a hub name as it is, a directory by its last part."""
    path = PurePath(model)
    return path.name if path.is_absolute() or len(path.parts) > 2 else model


def write_page(sections: Sequence[Section], out: Path) -> Path:
    """Write the page to `out` (.html), and beside it .md and, where a section has rows, .csv; returns `out`."""
    require(out.suffix.lower() in (".html", ".htm"), f"the report is a page: give --out a name that ends in .html, not {out}")
    texts = {out: html(sections), out.with_suffix(".md"): "\n".join(section.markdown for section in sections)}
    if any(section.rows for section in sections):
        texts[out.with_suffix(".csv")] = rows_csv(sections)
    made_here = _made_here(out)
    for path in texts:
        check_writable(path)
        whose = "is no page of lengthwise's" if path == out else f"belongs to no page {out}"
        free = made_here or not path.exists() or path.stat().st_size == 0
        require(free, f"{path} is there and {whose}, and would be replaced; give --out another name")
    for path, text in texts.items():
        write_whole(path, text)
    return out


def _made_here(page: Path) -> bool:
    """Whether a file is a page of ours, so that the tables beside it are ours, too."""
    return page.is_file() and MADE_HERE in read_file(page)


def html(sections: Sequence[Section]) -> str:
    environment = templates()
    environment.filters.update(listed=listed, percent=percent, shortened=shortened)
    environment.globals["tokens_at"] = tokens_at
    script = (TEMPLATE / "page.js").read_text(encoding="utf-8")
    styles: dict[str, Style] = {spec: style for section in sections for spec, style in section.styles.items()}
    return environment.get_template("page.html").render(
        sections=sections,
        styles=styles,
        style_sheet=Markup((TEMPLATE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def rows_csv(sections: Sequence[Section]) -> str:
    """All rows under the columns of all sections; empty where a section has no such column."""
    rows = [row for section in sections for row in section.rows]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return csv_text(columns, ([row.get(column) for column in columns] for row in rows))
