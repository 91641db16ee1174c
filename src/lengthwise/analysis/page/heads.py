"""P_max of every head against length, a panel a layer; the heads that disperse most stand out."""

from __future__ import annotations

from lengthwise.analysis.page.figure import Figure
from lengthwise.analysis.records import Analysis
from lengthwise.report.formatting import tokens_at
from lengthwise.report.frame import Axis, Box, Chart, Curve, Point, line, nice_ticks
from lengthwise.report.styles import CIRCLE, Style

BOX = Box(width=220, height=170, left=36, right=20, top=10, bottom=24)
MOST = 6  # heads that stand out


def heads(analysis: Analysis) -> Figure:
    most = {(one.layer, one.head) for one in analysis.heads[:MOST]}
    x = BOX.lengths([analysis.train_length, *(one.length for one in analysis.lengths)], most_ticks=4)
    ticks = nice_ticks(0.0, max(value for one in analysis.lengths for layer in one.p_max for value in layer), 4)
    y = BOX.values(ticks[0], ticks[-1], [(tick, f"{tick:g}") for tick in ticks])
    layers = range(len(analysis.lengths[0].p_max))
    stand_out = f" In colour, with their numbers: the {len(most)} heads whose P_max falls most." if most else ""
    return Figure(
        name="heads",
        title="P_max of every head by length",
        caption=f"A panel a layer, a line a head.{stand_out}",
        panels=tuple(_panel(analysis, layer, most, x, y) for layer in layers),
        columns=4,
    )


def _panel(analysis: Analysis, layer: int, most: set[tuple[int, int]], x: Axis, y: Axis) -> Chart:
    curves = []
    for head in range(len(analysis.lengths[0].p_max[layer])):
        found = [(one.length, one.p_max[layer][head]) for one in analysis.lengths]
        points = tuple(Point(x.at(n), y.at(value), x.at(n), tokens_at(n), f"{value:.3f}") for n, value in found)
        stands_out = (layer + 1, head + 1) in most
        look = Style(f"head {head + 1}", "c1" if stands_out else "none", CIRCLE)
        path = line((point.x, point.y) for point in points)
        curves.append(Curve(look.name, points, path, style=look, end_label=str(head + 1) if stands_out else ""))
    return Chart(
        title=f"layer {layer + 1}",
        describe=f"P_max of every head of layer {layer + 1} against length",
        width=BOX.width,
        height=BOX.height,
        x=x,
        y=y,
        # Those that stand out are drawn last, over the others
        curves=tuple(sorted(curves, key=lambda curve: curve.end_label != "")),
        train_x=x.at(analysis.train_length),
        small=True,
    )
