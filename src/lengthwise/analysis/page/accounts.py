"""The temperature against length by five accounts (the paper's Figures 3, 4 and 6 to 9)."""

from __future__ import annotations

import math

from lengthwise.analysis.page.figure import LAW, Figure
from lengthwise.analysis.records import Analysis
from lengthwise.common.laws import log_law
from lengthwise.report.formatting import tokens_at
from lengthwise.report.frame import Axis, Box, Chart, Curve, Point, line, nice_ticks
from lengthwise.report.styles import CIRCLE, CROSS, Style

BOX = Box(width=620, height=340, left=46, right=24, top=26, bottom=40)
STEPS = 48  # straight pieces of the log law
# As in the paper: what is derived is a curve, what was measured a mark
ACCOUNTS = {
    "proposition_1": Style("Proposition 1 (P_max)", "c0", ""),
    "proposition_2": Style("Proposition 2 (entropy)", "c1", ""),
    "pmax": Style("Algorithm 1 (P_max)", "c0", CIRCLE, lined=False),
    "entropy": Style("Algorithm 1 (entropy)", "c1", CROSS, lined=False),
}


def accounts(analysis: Analysis) -> Figure:
    rows = analysis.temperatures
    x = BOX.lengths([row.length for row in rows], most_ticks=10)
    taus = [tau for row in rows for name in ACCOUNTS if (tau := getattr(row, name)) is not None]
    ticks = nice_ticks(min([*taus, *(row.log_law for row in rows)]), max([*taus, 1.0]), 6)
    y = BOX.values(ticks[0], ticks[-1], [(tick, f"{tick:g}") for tick in ticks])
    curves = (*(_curve(analysis, name, x, y) for name in ACCOUNTS), _law(analysis, x, y))
    chart = Chart(
        title="temperature tau",
        describe="The temperature against length by Propositions 1 and 2, by Algorithm 1 and by the log law",
        width=BOX.width,
        height=BOX.height,
        x=x,
        y=y,
        curves=tuple(curve for curve in curves if curve.points),
        train_x=x.at(analysis.train_length),
    )
    return Figure(
        name="temperatures",
        title="The temperature by length, by five accounts",
        caption="Curves: derived from the first layer's logits (Propositions 1 and 2) or from the length alone (log law). "
        "Marks: measured on the whole model (Algorithm 1).",
        panels=(chart,),
        columns=1,
        keys=(*ACCOUNTS.values(), LAW),
    )


def _curve(analysis: Analysis, name: str, x: Axis, y: Axis) -> Curve:
    found = [(row.length, getattr(row, name)) for row in analysis.temperatures]
    points = tuple(_point(n, tau, x, y) for n, tau in found if tau is not None)
    look = ACCOUNTS[name]
    path = line((point.x, point.y) for point in points) if points and look.lined else ""
    return Curve(look.name, points, path, style=look)


def _law(analysis: Analysis, x: Axis, y: Axis) -> Curve:
    first, last = math.log2(analysis.train_length), math.log2(analysis.temperatures[-1].length)
    lengths = [2 ** (first + (last - first) * step / STEPS) for step in range(STEPS + 1)]
    path = line((x.at(n), y.at(log_law(analysis.train_length, n))) for n in lengths)
    return Curve("log law", tuple(_point(row.length, row.log_law, x, y) for row in analysis.temperatures), path)


def _point(length: int, tau: float, x: Axis, y: Axis) -> Point:
    return Point(x.at(length), y.at(tau), x.at(length), tokens_at(length), f"tau = {tau:.3f}")
