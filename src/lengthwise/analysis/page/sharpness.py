"""P_max, entropy and largest logit against length, a curve a layer, the mean over its heads (the paper's Table 1, by layer)."""

from __future__ import annotations

from lengthwise.analysis.page.figure import Figure
from lengthwise.analysis.records import Analysis
from lengthwise.report.formatting import tokens_at
from lengthwise.report.frame import Box, Chart, Curve, Point, line, nice_ticks
from lengthwise.report.runs.temperature_chart import end_labels
from lengthwise.report.styles import CIRCLE, Style

BOX = Box(width=360, height=270, left=46, right=24, top=26, bottom=40)
STATISTICS = {
    "p_max": "P_max, the largest probability of a row",
    "entropy": "entropy of a row, in nats",
    "l_max": "largest logit of a row",
}


def sharpness(analysis: Analysis) -> Figure:
    return Figure(
        name="sharpness",
        title="Attention by length and layer",
        caption="Means over rows and heads, a line a layer; numbers at the end of lines are layers.",
        panels=tuple(_panel(analysis, statistic) for statistic in STATISTICS),
        columns=3,
    )


def _panel(analysis: Analysis, statistic: str) -> Chart:
    lengths = [one.length for one in analysis.lengths]
    by_length = [[sum(heads) / len(heads) for heads in getattr(one, statistic)] for one in analysis.lengths]
    layers = list(zip(*by_length, strict=True))  # [layers][lengths]
    x = BOX.lengths([*lengths, analysis.train_length], most_ticks=8)
    flat = [value for layer in layers for value in layer]
    ticks = nice_ticks(min(0.0, *flat), max(flat), 5)
    y = BOX.values(ticks[0], ticks[-1], [(tick, f"{tick:g}") for tick in ticks])
    curves = []
    labels = end_labels([y.at(layer[-1]) for layer in layers])
    for index, values in enumerate(layers):
        points = tuple(
            Point(x.at(n), y.at(value), x.at(n), tokens_at(n), f"{value:.3g}") for n, value in zip(lengths, values, strict=True)
        )
        opacity = round(1 - 0.6 * (len(layers) - 1 - index) / max(len(layers) - 1, 1), 2)
        look = Style(f"layer {index + 1}", "c0", CIRCLE)
        path = line((point.x, point.y) for point in points)
        curves.append(Curve(look.name, points, path, style=look, end_label=labels[index], opacity=opacity))
    return Chart(
        title=STATISTICS[statistic],
        describe=f"{STATISTICS[statistic]}, against length, a line for each of {len(layers)} layers",
        width=BOX.width,
        height=BOX.height,
        x=x,
        y=y,
        curves=tuple(curves),
        train_x=x.at(analysis.train_length),
    )
