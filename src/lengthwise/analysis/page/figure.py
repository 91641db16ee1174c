"""A figure: panels that Python placed, drawn by the page, as a file of SVG, or as PNG; all from the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lengthwise.report.frame import Chart
from lengthwise.report.styles import Style

# On white paper; the page has its own, for light and dark screens
COLOURS = {
    "none": "#7d848c",
    "law": "#5d656e",
    "c0": "#0072b2",
    "c1": "#d55e00",
    "c2": "#009e73",
    "c3": "#b8569a",
    "c4": "#c58a00",
    "c5": "#3fa0dd",
}
INK, SOFT, FAINT, LINE, PAPER = "#1d2126", "#5d656e", "#e4e4de", "#c9cac4", "#ffffff"
MARGIN, GAP, HEADING, CAPTION, KEYS = 18, 26, 34, 22, 26  # pixels

# The law of a chart, in its key
LAW = Style("log law", "law", "", dashed=True)


@dataclass(frozen=True)
class Figure:
    name: str  # of its files
    title: str
    caption: str
    panels: tuple[Chart, ...]  # all of one size
    columns: int  # panels beside each other
    keys: tuple[Style, ...] = ()  # what the curves of all panels are

    @property
    def width(self) -> int:
        columns = min(self.columns, len(self.panels))
        return max(2 * MARGIN + columns * (self.panels[0].width + GAP) - GAP, 480)

    @property
    def height(self) -> int:
        rows = -(-len(self.panels) // self.columns)
        panels = rows * (CAPTION + self.panels[0].height + GAP) - GAP
        return MARGIN + HEADING + panels + len(self._key_rows) * KEYS + MARGIN

    @property
    def places(self) -> Iterator[tuple[float, float, Chart]]:
        """Left and upper edge of every panel; its caption stands above."""
        for index, panel in enumerate(self.panels):
            row, column = divmod(index, self.columns)
            yield (
                MARGIN + column * (panel.width + GAP),
                MARGIN + HEADING + row * (CAPTION + panel.height + GAP) + CAPTION,
                panel,
            )

    @property
    def key_places(self) -> Iterator[tuple[float, float, Style]]:
        """Where each key begins, beside and below each other under the panels."""
        top = self.height - MARGIN - len(self._key_rows) * KEYS
        for number, row in enumerate(self._key_rows):
            x = float(MARGIN)
            for style in row:
                yield x, top + KEYS * (number + 0.75), style
                x += _key_width(style)

    @property
    def _key_rows(self) -> list[list[Style]]:
        """As many beside each other as there is room for."""
        rows: list[list[Style]] = []
        for style in self.keys:
            if rows and sum(map(_key_width, [*rows[-1], style])) <= self.width - 2 * MARGIN:
                rows[-1].append(style)
            else:
                rows.append([style])
        return rows


def _key_width(style: Style) -> float:
    return 56 + 6.6 * len(style.name)
