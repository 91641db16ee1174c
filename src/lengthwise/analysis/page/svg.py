"""A figure as one SVG file that needs nothing else; it is drawn by the page's own macros."""

from __future__ import annotations

from lengthwise.analysis.page import figure as looks
from lengthwise.analysis.page.figure import Figure
from lengthwise.report.environment import environment


def svg(figure: Figure) -> str:
    colours = {name: value for name, value in vars(looks).items() if name in ("INK", "SOFT", "FAINT", "LINE", "PAPER")}
    return environment().get_template("figure.svg").render(figure=figure, colours=looks.COLOURS, **colours) + "\n"
