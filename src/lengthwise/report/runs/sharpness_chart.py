"""How sharp attention is against length: P_max and entropy, a panel a layer, a curve a method, the mean over heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lengthwise.records import Sharpness
from lengthwise.report.charts import Axis, Box, Chart, ChartPoint, Curve
from lengthwise.report.runs.group import RunGroup
from lengthwise.report.styles import Style

BOX = Box(width=200, height=150, left=34, right=8, top=8, bottom=22)
STATISTICS = {"p_max": "P_max", "entropy": "entropy, in nats"}


class Strip(NamedTuple):
    """Panels side by side, first layer first; all have the same axes."""

    title: str
    panels: list[Chart]


def sharpness_strips(group: RunGroup, styles: Mapping[str, Style]) -> list[Strip]:
    """One strip a statistic and task that was measured."""
    strips = []
    for task in dict.fromkeys(reported.task for reported in group.tasks):
        entries = [entry for entry in group.sharpness if entry.task == task and entry.method in group.methods]
        if entries:
            strips += [_strip(f"{task}: {title}", entries, name, group, styles) for name, title in STATISTICS.items()]
    return strips


def _strip(title: str, entries: list[Sharpness], statistic: str, group: RunGroup, styles: Mapping[str, Style]) -> Strip:
    x = BOX.lengths([group.train_length, *(entry.length for entry in entries)], most_ticks=4)
    means = {
        (entry.method, entry.length): [sum(heads) / len(heads) for heads in getattr(entry, statistic)] for entry in entries
    }
    values = [value for layers in means.values() for value in layers]
    y = BOX.values(min(values), max(values), 5)
    panels = [
        _panel(title, layer, {key: layers[layer] for key, layers in means.items()}, group, styles, x, y)
        for layer in range(len(next(iter(means.values()))))
    ]
    return Strip(title, panels)


def _panel(
    title: str, layer: int, values: dict[tuple[str, int], float], group: RunGroup, styles: Mapping[str, Style], x: Axis, y: Axis
) -> Chart:
    curves = []
    for spec in group.methods:
        measured = sorted((length, value) for (method, length), value in values.items() if method == spec)
        points = ChartPoint.by_length(measured, x, y, "{:.3g}")
        if points:
            curves.append(Curve.through(points, styles[spec], method=spec))
    trained = values.get(("none", group.train_length))
    return Chart(
        title=f"layer {layer + 1}",
        description=f"{title} of layer {layer + 1} against length",
        box=BOX,
        x=x,
        y=y,
        curves=tuple(curves),
        train_x=x.at(group.train_length),
        level=None if trained is None else y.at(trained),
        small=True,
    )
