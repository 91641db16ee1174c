"""The learned bias of every head against distance (the paper's Figure 1), near-sighted heads first.

Distances are placed by sign(d) log2(1 + |d|): the buckets of a T5 bias grow with the distance, and all it knows of its
neighbours would fall on one point of a plain axis.
"""

from __future__ import annotations

import math

from lengthwise.analysis.page.figure import Figure
from lengthwise.analysis.records import Analysis, Sight
from lengthwise.report.frame import Axis, Box, Chart, Curve, Point, line, nice_ticks
from lengthwise.report.styles import Style

BOX = Box(width=220, height=170, left=36, right=12, top=10, bottom=24)
LOOK = Style("bias", "c0", "")


def bias(analysis: Analysis) -> list[Figure]:
    """One figure for each layer that owns a bias; of most models that is the first."""
    owners = sorted({one.layer for one in analysis.sights})
    return [_figure([one for one in analysis.sights if one.layer == layer], len(owners) > 1) for layer in owners]


def _figure(heads: list[Sight], several: bool) -> Figure:
    radius = heads[0].radius
    marks = [d for d in (-512, -64, -8, 0, 8, 64, 512) if abs(d) <= radius]
    x = BOX.across(place(-radius), place(radius), [(place(d), f"{d:+d}" if d else "0") for d in marks])
    flat = [value for one in heads for value in one.bias]
    ticks = nice_ticks(min(*flat, 0.0), max(*flat, 0.0), 5)
    y = BOX.values(ticks[0], ticks[-1], [(tick, f"{tick:g}") for tick in ticks])
    layer = heads[0].layer
    return Figure(
        name=f"bias_layer_{layer}" if several else "bias",
        title=f"Learned bias by distance, layer {layer}" if several else "Learned bias by distance",
        caption="Across: distance of the key in tokens, keys before the row on the left. From near-sighted to far-sighted "
        "heads: in brackets the mean distance a head would look at by its bias alone, at the training length.",
        panels=tuple(_panel(one, x, y) for one in heads),
        columns=4,
    )


def place(distance: float) -> float:
    return math.copysign(math.log2(1 + abs(distance)), distance)


def _panel(one: Sight, x: Axis, y: Axis) -> Chart:
    values = dict(zip(range(-one.radius, one.radius + 1), one.bias, strict=True))
    told = sorted({sign * 2**power for power in range(one.radius.bit_length()) for sign in (-1, 1)} | {0})
    points = tuple(
        Point(x.at(place(d)), y.at(values[d]), x.at(place(d)), f"{d:+d} tokens" if d else "the row itself", f"{values[d]:.3f}")
        for d in told
        if abs(d) <= one.radius
    )
    path = line((x.at(place(d)), y.at(value)) for d, value in values.items())
    return Chart(
        title=f"head {one.head} ({one.sight_train:.0f} tokens)",
        describe=f"Learned bias of head {one.head} of layer {one.layer} against the distance of the key",
        width=BOX.width,
        height=BOX.height,
        x=x,
        y=y,
        curves=(Curve(f"head {one.head}", points, path, style=LOOK),),
        small=True,
        unit="distance in tokens",
    )
