"""Calibrated temperatures, drawn as the method applies them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lengthwise.common.laws import log_law
from lengthwise.methods.temperature.aligned import interpolate
from lengthwise.report.charts import Box, Chart
from lengthwise.report.runs.group import RunGroup, read_run
from lengthwise.report.runs.temperature_chart import applied, temperature_charts
from lengthwise.report.styles import method_styles
from tests.report.conftest import HEADS, LAYERS, alignment, config, records

MakeRun = Callable[..., Path]
BOX = Box(width=100, height=10, left=0, right=0, top=0, bottom=0)


def chart_of(make_run: MakeRun, scope: str) -> Chart:
    document = {**config(), "methods": {"@a.json": alignment(scope)}}
    group = RunGroup((read_run(make_run(document, records(["@a.json"], ["line"], [256, 15000], samples=1))),))
    (chart,) = temperature_charts(group, method_styles(group.methods))
    return chart


def test_the_line_is_what_the_method_applies():
    lengths, taus = [2048, 15000], [0.7, 0.55]
    drawn = applied([512, *lengths], [1.0, *taus], BOX.lengths([256, 15000], most_ticks=10))
    at = torch.tensor([length for length, _ in drawn], dtype=torch.float64)
    assert at.min() < 512
    assert at.max() > 15000
    g = interpolate(at, 512, lengths, 1 / torch.tensor(taus, dtype=torch.float64))
    assert [tau for _, tau in drawn] == pytest.approx((1 / g).tolist())


def test_the_log_law():
    assert log_law(512, 512) == log_law(512, 100) == 1
    assert log_law(512, 2048) == pytest.approx(math.log(512) / math.log(2048))


def test_scope_model_is_one_line_beside_the_law(make_run: MakeRun):
    chart = chart_of(make_run, "model")
    line, law = chart.curves
    assert chart.title == "@a.json: one temperature for the model, P_max kept"
    assert [point.column_label for point in line.points] == ["2,048 tokens", "4,096 tokens", "15,000 tokens"]
    assert line.points[0].text == f"tau = {alignment('model')['temperatures'][0]['tau']:.3f}"
    assert (law.label, law.method) == ("log law", None)
    assert law.points[0].text == f"tau = {log_law(512, 2048):.3f}"


def test_the_law_stays_within_the_drawing_where_it_is_the_lowest(make_run: MakeRun):
    entry = {"length": 1024, "tau": 0.99, "statistic": 0.15, "forwards": 3, "target": 0.15}
    document = {**config(), "methods": {"@a.json": {**alignment("model"), "temperatures": [entry]}}}
    group = RunGroup((read_run(make_run(document, records(["@a.json"], ["line"], [512, 1024], samples=1))),))
    (chart,) = temperature_charts(group, method_styles(group.methods))
    assert max(y for _, y in chart.curves[-1].line) <= chart.y.start


def test_scope_layer_is_a_line_a_layer_with_its_number_at_the_end(make_run: MakeRun):
    *lines, _ = chart_of(make_run, "layer").curves
    assert [line.label for line in lines] == [f"layer {k + 1}" for k in range(LAYERS)]
    assert lines[0].end_label == "1"
    assert lines[-1].end_label == str(LAYERS)


def test_scope_head_adds_the_range_of_all_heads(make_run: MakeRun):
    heads, *lines, _ = chart_of(make_run, "head").curves
    assert heads.band
    assert not heads.points
    assert len(lines) == LAYERS
    first = alignment("head")["temperatures"][0]["tau"][0]
    assert lines[0].points[0].text == f"tau = {sum(first) / HEADS:.3f}"
