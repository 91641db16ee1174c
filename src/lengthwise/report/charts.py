"""Charts: where lengths and values stand in pixels, and the curves, panels and figures that are drawn there.

Python places every element and template/charts.html draws it as SVG: the page shows its curves without a script, all text is
escaped in one place, and `png` draws the same places with matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lengthwise.report.formatting import tokens_at
from lengthwise.report.styles import PAPER_COLOURS, PAPER_GREYS, Style

TEMPLATE = Path(__file__).parent / "template"
MARGIN, GAP, HEADING, CAPTION, KEYS, LABEL = 18, 26, 34, 22, 26, 11  # pixels of a figure


@dataclass(frozen=True)
class AxisTick:
    at: float  # pixels
    label: str


@dataclass(frozen=True)
class Axis:
    """A straight line from values to pixels; `log2` places values by their logarithm."""

    low: float  # axis units: the value, or its log2
    high: float
    start: float  # pixels of `low`
    end: float  # pixels of `high`
    ticks: tuple[AxisTick, ...] = ()
    log2: bool = False

    def at(self, value: float) -> float:
        unit = math.log2(value) if self.log2 else value
        return round(self.start + (unit - self.low) / (self.high - self.low) * (self.end - self.start), 2)


@dataclass(frozen=True)
class ChartPoint:
    """One measured value; `column` joins the points of all curves that one hover shows together."""

    x: float
    y: float
    column: float  # pixels where the reader looks for it: x before points were moved apart
    column_label: str  # what stands at that column: a length, or a file and its length
    text: str  # the value, as the hover shows it
    low: float | None = None  # pixels of the interval's ends
    high: float | None = None

    @classmethod
    def placed(cls, x: Axis, y: Axis, across: float, up: float, column_label: str, text: str) -> ChartPoint:
        return cls(x.at(across), y.at(up), x.at(across), column_label, text)

    @classmethod
    def by_length(cls, values: Iterable[tuple[int, float]], x: Axis, y: Axis, text: str) -> tuple[ChartPoint, ...]:
        """Points of (length, value); `text` formats the value."""
        return tuple(cls.placed(x, y, length, value, tokens_at(length), text.format(value)) for length, value in values)


@dataclass(frozen=True)
class Curve:
    label: str
    points: tuple[ChartPoint, ...]
    line: Sequence[tuple[float, float]] = ()  # corners of the line, in pixels; empty: points alone
    method: str | None = None  # spec of the method it belongs to; None: always shown
    style: Style | None = None  # None: a law
    band: Sequence[tuple[float, float]] = ()  # corners of a filled range
    end_label: str = ""
    opacity: float = 1.0

    @classmethod
    def through(cls, points: tuple[ChartPoint, ...], style: Style, **how: Any) -> Curve:
        """The curve that joins points, named after its style."""
        return cls(style.name, points, [(point.x, point.y) for point in points] if style.lined else (), style=style, **how)


@dataclass(frozen=True)
class Box:
    """The size of a drawing and the margins that its labels need."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    def lengths(self, lengths: Iterable[int], most_ticks: int) -> Axis:
        """A log2 axis from left to right with some air at both ends; ticks at powers of two, at least two of them."""
        exponents = [math.log2(n) for n in lengths]
        low, high = min(exponents), max(exponents)
        if math.floor(high) <= math.ceil(low):
            low, high = min(low, math.ceil(low) - 1), max(high, math.ceil(low))
        air = max(0.2, 0.04 * (high - low))
        powers = range(math.ceil(low - air), math.floor(high + air) + 1)
        powers = powers[:: math.ceil(len(powers) / most_ticks)]
        ticks = [(2.0**p, length_label(round(2.0**p))) for p in powers]
        return _axis(low - air, high + air, self.left, self.width - self.right, ticks, log2=True)

    def across(self, low: float, high: float, ticks: Sequence[tuple[float, str]]) -> Axis:
        """An axis of values that are not lengths, from left to right."""
        return _axis(low, high, self.left, self.width - self.right, ticks)

    def up(self, low: float, high: float, ticks: Sequence[tuple[float, str]]) -> Axis:
        """An axis of values, high ones on top."""
        return _axis(low, high, self.height - self.bottom, self.top, ticks)

    def values(self, low: float, high: float, most_ticks: int) -> Axis:
        """An axis of values with round ticks that cover `low` to `high`."""
        ticks = nice_ticks(low, high, most_ticks)
        return self.up(ticks[0], ticks[-1], [(tick, f"{tick:g}") for tick in ticks])


@dataclass(frozen=True)
class Chart:
    title: str
    description: str  # for readers who hear the page
    box: Box
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    train_x: float | None = None  # pixels of the training length, where x is a length
    level: float | None = None  # pixels of a horizontal line of reference
    small: bool = False
    unit: str = "length in tokens"  # of x


@dataclass(frozen=True)
class Figure:
    """Panels under one title, as a part of a page or as a file of its own."""

    name: str  # of its files
    title: str
    caption: str
    panels: tuple[Chart, ...]  # all of one size
    columns: int  # panels beside each other
    keys: tuple[Style, ...] = ()  # what the curves of all panels are

    @property
    def width(self) -> int:
        columns = min(self.columns, len(self.panels))
        return max(2 * MARGIN + columns * (self.panels[0].box.width + GAP) - GAP, 480)

    @property
    def _below_panels(self) -> int:
        rows = -(-len(self.panels) // self.columns)
        return MARGIN + HEADING + rows * (CAPTION + self.panels[0].box.height + GAP) - GAP

    @property
    def height(self) -> int:
        keys = self.key_places
        return MARGIN + (round(keys[-1][1] + KEYS / 4) if keys else self._below_panels)

    @property
    def places(self) -> Iterator[tuple[float, float, Chart]]:
        """Left and upper edge of every panel; its caption stands above."""
        for index, panel in enumerate(self.panels):
            row, column = divmod(index, self.columns)
            top = MARGIN + HEADING + row * (CAPTION + panel.box.height + GAP) + CAPTION
            yield MARGIN + column * (panel.box.width + GAP), top, panel

    @property
    def key_places(self) -> list[tuple[float, float, Style]]:
        """Where each key begins, under the panels: as many beside each other as there is room for."""
        places: list[tuple[float, float, Style]] = []
        x, y = float(MARGIN), self._below_panels + 0.75 * KEYS
        for style in self.keys:
            width = 56 + 6.6 * len(style.name)
            if x > MARGIN and x + width > self.width - MARGIN:
                x, y = float(MARGIN), y + KEYS
            places.append((x, y, style))
            x += width
        return places


def templates() -> Environment:
    """The templates, which escape everything."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["svg_path"] = svg_path
    return environment


def svg(figure: Figure) -> str:
    """A figure as one SVG file that needs nothing else."""
    return templates().get_template("figure.svg").render(figure=figure, colours=PAPER_COLOURS, grey=PAPER_GREYS) + "\n"


def length_label(length: int) -> str:
    """512, 1k, 2k, ... for powers of two; 15,000 for others."""
    return f"{length // 1024}k" if length >= 1024 and length % 1024 == 0 else f"{length:,}"


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values from at or below `low` to at or above `high`, at most `most` steps apart."""
    rough = max(high - low, 1e-9) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 10) for k in range(first, max(last, first + 1) + 1)]


def end_labels(heights: list[float]) -> list[str]:
    """The number of a layer at the end of its line, where there is room for it; first and last come first."""
    last = len(heights) - 1
    labels = [""] * len(heights)
    taken: list[float] = []
    for layer in sorted(range(len(heights)), key=lambda k: k not in (0, last)):
        if last and all(abs(heights[layer] - other) >= LABEL for other in taken):
            taken.append(heights[layer])
            labels[layer] = str(layer + 1)
    return labels


def layer_opacity(layer: int, layers: int) -> float:
    """Later layers are drawn darker."""
    return round(1 - 0.6 * (layers - 1 - layer) / max(layers - 1, 1), 2)


def svg_path(corners: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in corners)


def band(columns: Sequence[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """Corners of the range between two lines, given as (x, low, high)."""
    return [(x, high) for x, _, high in columns] + [(x, low) for x, low, _ in reversed(columns)]


def _axis(low: float, high: float, start: float, end: float, ticks: Sequence[tuple[float, str]], log2: bool = False) -> Axis:
    bare = Axis(low, high, start, end, log2=log2)
    return replace(bare, ticks=tuple(AxisTick(bare.at(value), label) for value, label in ticks))
