"""Score against length: one chart a task, one curve a method, 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping

from lengthwise.records import Cell
from lengthwise.report.charts import Axis, Box, Chart, ChartPoint, Curve
from lengthwise.report.formatting import percent_of, tokens_at
from lengthwise.report.runs.group import ReportedTask, RunGroup
from lengthwise.report.styles import Style

BOX = Box(width=480, height=300, left=46, right=14, top=26, bottom=40)
PERCENT = [(value / 100, f"{value}") for value in (0, 25, 50, 75)] + [(1.0, "100 %")]
# Pixels between the points of two methods at one length, so that equal scores do not hide each other, and of all together
APART, ALL_APART = 3.0, 15.0


def score_chart(group: RunGroup, reported: ReportedTask, styles: Mapping[str, Style]) -> Chart:
    cells = [cell for cell in group.cells if reported.covers(cell)]
    x = BOX.lengths([group.train_length, *(cell.length for cell in cells)], most_ticks=10)
    y = BOX.up(0, 1, PERCENT)
    methods = [spec for spec in group.methods if group.cells_of(reported, spec)]
    apart = min(APART, ALL_APART / max(len(methods) - 1, 1))
    curves = tuple(
        _curve(group.cells_of(reported, spec), x, y, styles[spec], spec, (k - (len(methods) - 1) / 2) * apart)
        for k, spec in enumerate(methods)
    )
    return Chart(
        title=reported.title,
        description=f"Score of {reported.title} against length, one curve for each of {len(curves)} methods",
        box=BOX,
        x=x,
        y=y,
        curves=curves,
        train_x=x.at(group.train_length),
    )


def _curve(cells: list[Cell], x: Axis, y: Axis, style: Style, spec: str, shift: float) -> Curve:
    points = tuple(
        ChartPoint(
            x=round(x.at(cell.length) + shift, 2),
            y=y.at(cell.mean),
            column=x.at(cell.length),
            column_label=tokens_at(cell.length, cell.data),
            text=percent_of(cell),
            low=y.at(cell.low),
            high=y.at(cell.high),
        )
        for cell in cells
    )
    return Curve.through(points, style, method=spec)
