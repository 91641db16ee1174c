"""What a page is made of: sections that callers fill, so that this package needs to know none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from lengthwise.report.styles import Style


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
