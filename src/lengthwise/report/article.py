"""The usual kind of section: findings, then blocks of caption, table and figures, then how it was obtained.

Whoever has tables and figures to show fills an `Article`; it becomes a part of a page and a Markdown file by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.report.charts import Figure
from lengthwise.report.formatting import markdown_row, plain
from lengthwise.report.page import Section, model_heading


@dataclass(frozen=True)
class Table:
    """A table of short texts whose first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def named(self) -> bool:
        """Whether rows have names, not numbers."""
        return self.head[0] in ("head", "method")

    def markdown(self) -> list[str]:
        """Lines of Markdown; numbers stand to the right, names to the left."""
        rule = ["---" if self.named else "--:", *["--:"] * (len(self.head) - 1)]
        return [markdown_row(self.head), markdown_row(rule), *map(markdown_row, self.rows), ""]


@dataclass(frozen=True)
class Block:
    """A heading and what stands under it; with `absent`, only that."""

    heading: str
    caption: str
    table: Table
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    absent: str = ""  # why there is nothing to show

    def markdown(self, figures: str | None) -> list[str]:
        lines = [f"## {self.heading}", ""]
        if self.absent:
            return [*lines, self.absent, ""]
        lines += [self.caption, "", *self.table.markdown()]
        lines += [line for note in self.notes for line in (plain(note), "")]
        for figure in self.figures if figures else ():
            lines += [f"![{plain(figure.title)}]({figures}/{figure.name}.svg)", "", plain(figure.caption), ""]
        return lines


@dataclass(frozen=True)
class Article:
    """The content of one section: findings on a model, blocks of tables and figures, and how they were obtained."""

    model: str
    question: str  # the heading on the page, {} for the model: "How does {} attend at length?"
    title: str  # the heading in Markdown, {} for the model
    lead: str  # a sentence under the heading
    findings: tuple[str, ...]
    no_findings: str  # said where there are none
    note: str
    blocks: tuple[Block, ...]
    facts: tuple[tuple[str, str], ...]  # how it was obtained: name and value
    command: str  # what obtains it again

    def markdown(self, figures: str | None = None) -> str:
        """`figures` is the folder of the figures' files, as seen from the Markdown file; without it there are none."""
        lines = [f"# {self.title.format(plain(self.model))}", "", *(f"- {plain(finding)}" for finding in self.findings)]
        lines += ["", self.note, "", *(line for block in self.blocks for line in block.markdown(figures))]
        lines += ["## How this was obtained", "", *(f"- {plain(name)}: {plain(value)}" for name, value in self.facts), ""]
        return "\n".join([*lines, f"    {self.command}", ""])

    def section(self, shows: str) -> Section:
        return Section(model_heading(self.model), shows, "article.html", {"article": self}, self.markdown())
