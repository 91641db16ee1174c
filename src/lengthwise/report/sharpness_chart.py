"""How sharp attention is against length: P_max and entropy, a panel a layer, a curve a method, the mean over heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lengthwise.records import Sharpness
from lengthwise.report.frame import Axis, Box, Chart, Curve, Point, line, nice_ticks
from lengthwise.report.section import Section
from lengthwise.report.styles import Style
from lengthwise.report.words import tokens_at

BOX = Box(width=200, height=150, left=34, right=8, top=8, bottom=22)


@dataclass(frozen=True)
class Strip:
    """The panels of one statistic and one task, first layer first; all have the same axes."""

    title: str
    panels: tuple[Chart, ...]


def sharpness_strips(section: Section, looks: Mapping[str, Style]) -> list[Strip]:
    strips = []
    for task in dict.fromkeys(subject.task for subject in section.subjects):
        entries = [entry for entry in section.sharpness if entry.task == task and entry.method in section.methods]
        if entries:
            strips.append(_strip(f"{task}: P_max", entries, lambda entry: entry.p_max, section, looks))
            strips.append(_strip(f"{task}: entropy, in nats", entries, lambda entry: entry.entropy, section, looks))
    return strips


def _strip(
    title: str,
    entries: list[Sharpness],
    statistic: Callable[[Sharpness], list[list[float]]],
    section: Section,
    looks: Mapping[str, Style],
) -> Strip:
    x = BOX.lengths([section.train_length, *(entry.length for entry in entries)], most_ticks=4)
    means = {(entry.method, entry.length): [sum(heads) / len(heads) for heads in statistic(entry)] for entry in entries}
    values = [value for layers in means.values() for value in layers]
    ticks = nice_ticks(min(values), max(values), 5)
    y = BOX.values(ticks[0], ticks[-1], [(tick, f"{tick:g}") for tick in ticks])
    panels = [
        _panel(title, layer, {key: layers[layer] for key, layers in means.items()}, section, looks, x, y)
        for layer in range(len(next(iter(means.values()))))
    ]
    return Strip(title, tuple(panels))


def _panel(
    title: str,
    layer: int,
    values: dict[tuple[str, int], float],
    section: Section,
    looks: Mapping[str, Style],
    x: Axis,
    y: Axis,
) -> Chart:
    curves = []
    for spec in section.methods:
        found = sorted((length, value) for (method, length), value in values.items() if method == spec)
        points = tuple(Point(x.at(n), y.at(v), x.at(n), tokens_at(n), f"{v:.3g}") for n, v in found)
        if points:
            curves.append(Curve(looks[spec].name, points, line((p.x, p.y) for p in points), method=spec, style=looks[spec]))
    trained = values.get(("none", section.train_length))
    return Chart(
        title=f"layer {layer + 1}",
        describe=f"{title} of layer {layer + 1} against length",
        width=BOX.width,
        height=BOX.height,
        x=x,
        y=y,
        curves=tuple(curves),
        train_x=x.at(section.train_length),
        level=None if trained is None else y.at(trained),
        small=True,
    )
