"""A figure as PNG, drawn by matplotlib at the places that the SVG has: the same picture twice."""

from __future__ import annotations

import importlib.util
import io
from typing import Any

from lengthwise.report.charts import Chart, Curve, Figure
from lengthwise.report.styles import CIRCLE, CROSS, DIAMOND, DOWN, PAPER_COLOURS, PAPER_GREYS, SQUARE, UP, Style

INSTALL = "PNG figures need the package matplotlib: pip install 'lengthwise[experiments]'; the SVG figures are there"
DOTS, SHARPER = 100, 1.6  # pixels an inch as placed, and how many more are drawn
POINT = 72 / DOTS  # matplotlib's unit of widths and letters
INK, SOFT, FAINT, LINE, PAPER = (PAPER_GREYS[name] for name in ("ink", "soft", "faint", "line", "paper"))
MARKERS = {CIRCLE: "o", SQUARE: "s", DIAMOND: "D", UP: "^", DOWN: "v", CROSS: "P"}


def available() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def png(figure: Figure) -> bytes:
    """The file's bytes; check `available` first."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas((figure.width / DOTS, figure.height / DOTS), facecolor=PAPER)
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, figure.width), ylim=(figure.height, 0))
    axes.axis("off")
    _text(axes, 18, 33, figure.title, 15, colour=INK, weight="bold")
    for x, y, chart in figure.places:
        _text(axes, x, y - 7, chart.title, 12, colour=INK)
        _chart(axes, x, y, chart)
    for x, y, style in figure.key_places:
        if style.lined:
            axes.plot([x, x + 28], [y, y], **_stroke(style, 2))
        _marks(axes, [x + 14], [y], style, 1.0, 8)
        _text(axes, x + 35, y + 4, style.name, 11.5)
    out = io.BytesIO()
    # Without a date and a version the same figure is the same file
    canvas.savefig(out, format="png", dpi=DOTS * SHARPER, metadata={"Software": None})
    return out.getvalue()


def _chart(axes: Any, left: float, top: float, chart: Chart) -> None:
    x0, x1, bottom, upper = left + chart.x.start, left + chart.x.end, top + chart.y.start, top + chart.y.end
    letters = 10 if chart.small else 11.5
    for tick in chart.y.ticks:
        axes.plot([x0, x1], [top + tick.at] * 2, color=FAINT, lw=POINT)
        _text(axes, x0 - 6, top + tick.at, tick.label, letters, ha="right", va="center")
    axes.plot([x0, x1], [bottom] * 2, color=LINE, lw=POINT)
    for tick in chart.x.ticks:
        axes.plot([left + tick.at] * 2, [bottom, bottom + 4], color=LINE, lw=POINT)
        _text(axes, left + tick.at, bottom + (14 if chart.small else 19), tick.label, letters, ha="center")
    if not chart.small:
        _text(axes, x1, bottom + 35, chart.unit, letters, ha="right")
    if chart.train_x is not None:
        axes.plot([left + chart.train_x] * 2, [upper - 6, bottom], color=SOFT, lw=POINT, ls=(0, (4, 4)))
        if not chart.small:
            _text(axes, left + chart.train_x, upper - 10, "training length", letters, ha="center")
    for curve in chart.curves:
        _curve(axes, left, top, curve, chart)


def _curve(axes: Any, left: float, top: float, curve: Curve, chart: Chart) -> None:
    if curve.line:
        width = 1.5 if curve.style is None else 1.6 if chart.small else 2
        stroke = _stroke(curve.style, width)
        axes.plot([left + x for x, _ in curve.line], [top + y for _, y in curve.line], alpha=curve.opacity, **stroke)
    if curve.style is not None:
        places = [left + point.x for point in curve.points], [top + point.y for point in curve.points]
        _marks(axes, *places, curve.style, curve.opacity, 5 if chart.small else 8)
    if curve.end_label:
        height = top + curve.points[-1].y
        _text(axes, left + chart.x.end + 5, height, curve.end_label, 10 if chart.small else 11.5, va="center")


def _stroke(style: Style | None, width: float) -> dict[str, Any]:
    dashed = style is None or style.dashed
    colour = SOFT if style is None else PAPER_COLOURS[style.colour]
    return {"color": colour, "lw": width * POINT, "ls": (0, (4.5, 3.5)) if dashed else "-", "solid_joinstyle": "round"}


def _marks(axes: Any, xs: list[float], ys: list[float], style: Style, opacity: float, size: float) -> None:
    if style.marker:
        look = {"color": PAPER_COLOURS[style.colour], "mec": PAPER, "mew": POINT * 0.8, "ms": size * POINT, "alpha": opacity}
        axes.plot(xs, ys, ls="", marker=MARKERS[style.marker], zorder=3, **look)


def _text(axes: Any, x: float, y: float, text: str, size: float, *, colour: str = SOFT, **how: Any) -> None:
    # Names of heads and models may hold a dollar, which would begin a formula
    axes.text(x, y, text, fontsize=size * POINT, color=colour, parse_math=False, **{"va": "baseline", **how})
