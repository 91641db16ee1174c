"""Score against length: one chart a task, one curve a method, 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping

from lengthwise.records import Cell
from lengthwise.report.frame import Axis, Box, Chart, Curve, Point, line
from lengthwise.report.section import Section, Subject
from lengthwise.report.styles import Style
from lengthwise.report.words import percent_of, tokens_at

BOX = Box(width=480, height=300, left=46, right=14, top=26, bottom=40)
PERCENT = [(value / 100, f"{value}") for value in (0, 25, 50, 75)] + [(1.0, "100 %")]
# Pixels between the points of two methods at one length, so that equal scores do not hide each other, and of all together
APART, ALL_APART = 3.0, 15.0


def score_chart(section: Section, subject: Subject, looks: Mapping[str, Style]) -> Chart:
    cells = [cell for cell in section.cells if subject.covers(cell)]
    x = BOX.lengths([section.train_length, *(cell.length for cell in cells)], most_ticks=10)
    y = BOX.values(0, 1, PERCENT)
    methods = [spec for spec in section.methods if section.cells_of(subject, spec)]
    apart = min(APART, ALL_APART / max(len(methods) - 1, 1))
    curves = tuple(
        _curve(section.cells_of(subject, spec), x, y, looks[spec], spec, (k - (len(methods) - 1) / 2) * apart)
        for k, spec in enumerate(methods)
    )
    return Chart(
        title=subject.name,
        describe=f"Score of {subject.name} against length, one curve for each of {len(curves)} methods",
        width=BOX.width,
        height=BOX.height,
        x=x,
        y=y,
        curves=curves,
        train_x=x.at(section.train_length),
    )


def _curve(cells: list[Cell], x: Axis, y: Axis, look: Style, spec: str, shift: float) -> Curve:
    points = tuple(
        Point(
            x=round(x.at(cell.length) + shift, 2),
            y=y.at(cell.mean),
            column=x.at(cell.length),
            at=tokens_at(cell.length, cell.data),
            say=percent_of(cell),
            low=y.at(cell.low),
            high=y.at(cell.high),
        )
        for cell in cells
    )
    return Curve(look.name, points, line((p.x, p.y) for p in points), method=spec, style=look)
