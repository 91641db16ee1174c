"""Perplexity against position as an SVG picture: both axes logarithmic, a line a method, its name at the line's end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from itertools import pairwise

import numpy as np

from experiments._lib.likelihood_cells import Array
from lengthwise.report.charts import Axis, AxisTick, Box, length_label, svg_path

BOX = Box(width=960, height=460, left=52, right=300, top=44, bottom=46)
# Okabe and Ito's, which colour-blind readers can tell apart; the second time round the lines are dashed
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8569a", "#c58a00", "#3fa0dd")
REFERENCES = ("#1d2126", "#7d848c")  # of the lines that every chart has
LABEL_ROOM = 15  # pixels between two names
LETTER = 6.8  # pixels of a wide one
STEPS = 4  # points a doubling of the position
FIRST = 16  # tokens of the first point, which has the fewest


def chart(title: str, lines: Mapping[str, Array], references: int, train_length: int) -> str:
    """`lines` are [streams, tokens] by name; the first `references` of them are drawn as what the others stand beside."""
    points = {name: positions(nll) for name, nll in lines.items()}
    x = _positions_axis(max(at for curve in points.values() for at, _ in curve))
    y = _perplexities_axis([value for curve in points.values() for _, value in curve])
    looks = [(colour, False) for colour in REFERENCES[:references]]
    looks += [(COLOURS[k % len(COLOURS)], k >= len(COLOURS)) for k in range(len(lines) - references)]
    ends = _apart([y.at(curve[-1][1]) for curve in points.values()])
    drawn, labels = [], [f"{name}  {_number(curve[-1][1])}" for name, curve in points.items()]
    for curve, label, (colour, dashed), end in zip(points.values(), labels, looks, ends, strict=True):
        path = svg_path((x.at(at), y.at(value)) for at, value in curve)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        drawn.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        drawn.append(_text(x.end + 8, end, label, "start", colour))
    width = max(BOX.width, math.ceil(x.end + 16 + LETTER * max(map(len, labels))))
    return _picture(title, x, width, [*_frame(x, y, train_length), *drawn])


def positions(nll: Array) -> list[tuple[float, float]]:
    """(position, perplexity) of stretches of the streams, each a quarter of a doubling longer than the one before."""
    tokens = nll.shape[1]
    steps = math.ceil(STEPS * math.log2(max(tokens / FIRST, 1)))
    edges = sorted({0, *(round(FIRST * 2 ** (k / STEPS)) for k in range(steps)), tokens})
    edges = [edge for edge in edges if edge <= tokens]
    means = [float(np.exp(nll[:, first:last].mean(dtype=np.float64))) for first, last in pairwise(edges)]
    return [(math.sqrt(max(first, 1) * last), mean) for (first, last), mean in zip(pairwise(edges), means, strict=True)]


def _positions_axis(last: float) -> Axis:
    bare = Axis(2.0, math.log2(last), BOX.left, BOX.width - BOX.right, log2=True)
    powers = [2**k for k in range(2, math.floor(bare.high) + 1)]
    ticks = tuple(AxisTick(bare.at(p), length_label(p)) for p in powers)
    return Axis(bare.low, bare.high, bare.start, bare.end, ticks, log2=True)


def _perplexities_axis(values: list[float]) -> Axis:
    low, high = math.log2(min(values)) - 0.1, math.log2(max(values)) + 0.1
    bare = Axis(low, high, BOX.height - BOX.bottom, BOX.top, log2=True)
    round_ = [step * 10**k for k in range(8) for step in (1, 2, 5)]
    ticks = tuple(AxisTick(bare.at(value), f"{value:,}") for value in round_ if low <= math.log2(value) <= high)
    return Axis(low, high, bare.start, bare.end, ticks, log2=True)


def _frame(x: Axis, y: Axis, train_length: int) -> list[str]:
    parts = [_line(x.start, tick.at, x.end, tick.at, "#e4e4de") for tick in y.ticks]
    parts += [_text(x.start - 6, tick.at, tick.label, "end") for tick in y.ticks]
    parts += [_text(tick.at, y.start + 16, tick.label, "middle") for tick in x.ticks]
    parts.append(_line(x.start, y.start, x.end, y.start, "#c9cac4"))
    parts.append(_text(x.end, y.start + 34, "position in tokens", "end"))
    if math.log2(train_length) <= x.high:
        at = x.at(train_length)
        parts.append(_line(at, y.end - 6, at, y.start, "#5d656e", ' stroke-dasharray="4 4"'))
        parts.append(_text(at, y.end - 12, "training length", "middle"))
    return parts


def _apart(heights: list[float]) -> list[float]:
    """The same order, with room for a name each."""
    order = sorted(range(len(heights)), key=lambda k: heights[k])
    found, least = list(heights), float(BOX.top)
    for k in order:
        found[k] = max(heights[k], least)
        least = found[k] + LABEL_ROOM
    most = float(BOX.height - BOX.bottom)
    for k in reversed(order):
        found[k] = min(found[k], most)
        most = found[k] - LABEL_ROOM
    return found


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}"{more}/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#5d656e") -> str:
    return f'<text x="{x:g}" y="{y + 4:g}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _picture(title: str, x: Axis, width: int, inside: list[str]) -> str:
    size = f'width="{width}" height="{BOX.height}" viewBox="0 0 {width} {BOX.height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="system-ui, sans-serif" font-size="12">'
    background = f'<rect width="{width}" height="{BOX.height}" fill="#fdfdfb"/>'
    words = f'<text x="{x.start:g}" y="18" font-size="14" fill="#1d2126">{escape(title)}</text>'
    return "\n".join([head, f"<title>{escape(title)}</title>", background, words, *inside, "</svg>"]) + "\n"
