"""The calibrated temperature against length, beside the log law tau = ln(n_train) / ln(n).

One chart an alignment, all on the same axes. Scope `layer` draws a line a layer; scope `head` a line a layer for the mean of
its heads, and the range of all heads behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from lengthwise.common.laws import log_law
from lengthwise.report.charts import Axis, Box, Chart, ChartPoint, Curve, band, end_labels, layer_opacity
from lengthwise.report.formatting import SCOPES, STATISTICS
from lengthwise.report.runs.group import RunGroup
from lengthwise.report.styles import Style

BOX = Box(width=480, height=300, left=46, right=24, top=26, bottom=40)
TAU = "tau = {:.3f}"
STEPS = 24  # straight pieces between two calibrated lengths


@dataclass(frozen=True)
class AlignmentTable:
    """An alignment document as rows of numbers, the training length first."""

    lengths: list[int]
    taus: list[list[list[float]]]  # [lengths][layers][heads]; scope `model` has one of each

    @classmethod
    def read(cls, document: dict[str, Any]) -> AlignmentTable:
        entries = document["temperatures"]
        tables = [_layers(entry["tau"]) for entry in entries]
        ones = [[1.0] * len(heads) for heads in tables[0]]
        return cls([document["train_length"], *(entry["length"] for entry in entries)], [ones, *tables])

    def of_layer(self, layer: int) -> list[float]:
        """The mean of a layer's heads at every length."""
        return [sum(table[layer]) / len(table[layer]) for table in self.taus]

    def extremes(self) -> list[tuple[float, float]]:
        """The lowest and highest tau at every length."""
        return [(min(chain(*table)), max(chain(*table))) for table in self.taus]


def temperature_charts(group: RunGroup, styles: Mapping[str, Style]) -> list[Chart]:
    tables = [AlignmentTable.read(document) for _, document in group.alignments]
    lengths = {group.train_length, *(cell.length for cell in group.cells), *chain(*(table.lengths for table in tables))}
    x = BOX.lengths(lengths, most_ticks=10)
    taus = [tau for table in tables for tau in chain(*table.extremes())]
    y = BOX.values(min(*taus, log_law(group.train_length, 2**x.high)), max(*taus, 1.0), 5)
    charts = []
    for (spec, document), table in zip(group.alignments, tables, strict=True):
        style = styles[spec]
        charts.append(
            Chart(
                title=f"{style.name}: {SCOPES[document['scope']]}, {STATISTICS[document['statistic']]}",
                description=f"Calibrated temperature of {style.name} against length, beside the log law",
                box=BOX,
                x=x,
                y=y,
                curves=(*_curves(spec, document["scope"], table, x, y, style), _law_curve(table, x, y)),
                train_x=x.at(group.train_length),
            )
        )
    return charts


def _law_curve(table: AlignmentTable, x: Axis, y: Axis) -> Curve:
    train_length = table.lengths[0]
    lengths = [train_length * (2**x.high / train_length) ** (k / STEPS) for k in range(STEPS + 1)]
    line = [(x.at(n), y.at(log_law(train_length, n))) for n in lengths]
    laws = ((n, log_law(train_length, n)) for n in table.lengths[1:])
    return Curve("log law", ChartPoint.by_length(laws, x, y, TAU), line)


def _curves(spec: str, scope: str, table: AlignmentTable, x: Axis, y: Axis, style: Style) -> list[Curve]:
    curves = []
    if scope == "head":
        low, high = (applied(table.lengths, list(edge), x) for edge in zip(*table.extremes(), strict=True))
        area = band([(x.at(n), y.at(a), y.at(b)) for (n, a), (_, b) in zip(low, high, strict=True)])
        curves.append(Curve("all heads", (), method=spec, style=style, band=area))
    layers = len(table.taus[0])
    labels = end_labels([y.at(table.of_layer(layer)[-1]) for layer in range(layers)])
    for layer, end_label in enumerate(labels):
        taus = table.of_layer(layer)
        points = ChartPoint.by_length(zip(table.lengths[1:], taus[1:], strict=True), x, y, TAU)
        line = [(x.at(n), y.at(tau)) for n, tau in applied(table.lengths, taus, x)]
        name = style.name if scope == "model" else f"layer {layer + 1}"
        opacity = layer_opacity(layer, layers)
        curves.append(Curve(name, points, line, method=spec, style=style, end_label=end_label, opacity=opacity))
    return curves


def applied(lengths: list[int], taus: list[float], x: Axis) -> list[tuple[float, float]]:
    """Points (length, tau) of the curve that `extend` applies: 1 up to the training length, 1/tau linear in ln n, then held."""
    corners = [(2**x.low, 1.0)]
    for (n0, tau0), (n1, tau1) in pairwise(zip(lengths, taus, strict=True)):
        for part in (k / STEPS for k in range(STEPS)):
            corners.append((n0 * (n1 / n0) ** part, 1 / ((1 - part) / tau0 + part / tau1)))
    return [*corners, (lengths[-1], taus[-1]), (2**x.high, taus[-1])]


def _layers(tau: Any) -> list[list[float]]:
    """Turn a number, one a layer, or one a layer and head into [layers][heads]."""
    if not isinstance(tau, list):
        return [[float(tau)]]
    return [row if isinstance(row, list) else [row] for row in tau]
