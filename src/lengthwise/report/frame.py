"""The frame of a chart: where a length or a value stands in pixels, and what is drawn there.

Python places every element, the template draws it: the page shows its curves without a script, and all text is escaped in one
place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lengthwise.report.styles import Style


@dataclass(frozen=True)
class Tick:
    at: float  # pixels
    label: str


@dataclass(frozen=True)
class Axis:
    """A straight line from values to pixels; `log2` places values by their logarithm."""

    low: float  # axis units: the value, or its log2
    high: float
    start: float  # pixels of `low`
    end: float  # pixels of `high`
    ticks: tuple[Tick, ...] = ()
    log2: bool = False

    def at(self, value: float) -> float:
        unit = math.log2(value) if self.log2 else value
        return round(self.start + (unit - self.low) / (self.high - self.low) * (self.end - self.start), 2)


@dataclass(frozen=True)
class Point:
    """One measured value; `column` joins the points of all curves that one hover shows together."""

    x: float
    y: float
    column: float  # pixels where the reader looks for it: x before points were moved apart
    at: str  # what stands at that column: a length, or a file and its length
    say: str  # the value in words
    low: float | None = None  # pixels of the interval's ends
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    label: str
    points: tuple[Point, ...]
    path: str  # SVG path data
    method: str | None = None  # spec of the method it belongs to; None: always shown
    style: Style | None = None  # None: a law
    band: str = ""  # SVG path data of a filled range
    end_label: str = ""
    opacity: float = 1.0


@dataclass(frozen=True)
class Chart:
    title: str
    describe: str  # for readers who hear the page
    width: int
    height: int
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    train_x: float | None = None  # pixels of the training length, where x is a length
    level: float | None = None  # pixels of a horizontal line of reference
    small: bool = False
    unit: str = "length in tokens"  # of x


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
        return length_axis(lengths, self.left, self.width - self.right, most_ticks)

    def across(self, low: float, high: float, ticks: Sequence[tuple[float, str]]) -> Axis:
        """For x that is not a length."""
        bare = Axis(low, high, self.left, self.width - self.right)
        return Axis(low, high, bare.start, bare.end, tuple(Tick(bare.at(value), label) for value, label in ticks))

    def values(self, low: float, high: float, ticks: Sequence[tuple[float, str]]) -> Axis:
        bare = Axis(low, high, self.height - self.bottom, self.top)
        return Axis(low, high, bare.start, bare.end, tuple(Tick(bare.at(value), label) for value, label in ticks))


def length_axis(lengths: Iterable[int], start: float, end: float, most_ticks: int) -> Axis:
    """log2, with some air at both ends; ticks at powers of two, at least two of them."""
    exponents = [math.log2(n) for n in lengths]
    low, high = min(exponents), max(exponents)
    if math.floor(high) <= math.ceil(low):
        low, high = min(low, math.ceil(low) - 1), max(high, math.ceil(low))
    air = max(0.2, 0.04 * (high - low))
    bare = Axis(low - air, high + air, start, end, log2=True)
    powers = range(math.ceil(bare.low), math.floor(bare.high) + 1)
    powers = powers[:: math.ceil(len(powers) / most_ticks)]
    ticks = tuple(Tick(bare.at(2.0**p), length_label(round(2.0**p))) for p in powers)
    return Axis(bare.low, bare.high, start, end, ticks, log2=True)


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


def line(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points)


def band(columns: Sequence[tuple[float, float, float]]) -> str:
    """The range between two lines, given as (x, low, high)."""
    there = [(x, high) for x, _, high in columns]
    back = [(x, low) for x, low, _ in reversed(columns)]
    return line(there + back) + "Z"
