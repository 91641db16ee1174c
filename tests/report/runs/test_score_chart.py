"""Score against length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.report.charts import Chart
from lengthwise.report.runs.group import RunGroup, read_run
from lengthwise.report.runs.score_chart import ALL_APART, APART, score_chart
from lengthwise.report.styles import method_styles
from tests.report.conftest import config, record

MakeRun = Callable[..., Path]


def chart_of(make_run: MakeRun, methods: list[str], scores: tuple[float, ...] = (1.0, 0.0)) -> Chart:
    lines = [record(spec, "line", n, k, score=score) for spec in methods for n in (512, 2048) for k, score in enumerate(scores)]
    group = RunGroup((read_run(make_run(config(methods), lines)),))
    return score_chart(group, group.tasks[0], method_styles(group.methods))


def test_a_point_stands_at_its_mean_and_tells_its_interval(make_run: MakeRun):
    chart = chart_of(make_run, ["none"])
    (curve,) = chart.curves
    assert [point.column_label for point in curve.points] == ["512 tokens", "2,048 tokens"]
    for point in curve.points:
        assert (point.x, point.y) == (point.column, chart.y.at(0.5))
        assert point.high < point.y < point.low, "pixels count from the top"
        assert point.text == "50\u00a0% (9 to 91), n = 2"
    assert list(curve.line) == [(point.x, point.y) for point in curve.points]
    assert chart.train_x == chart.x.at(512)


def test_methods_of_one_length_stand_side_by_side_around_it(make_run: MakeRun):
    none, log = chart_of(make_run, ["none", "log"]).curves
    for left, right in zip(none.points, log.points, strict=True):
        assert round(right.x - left.x, 2) == APART
        assert round((left.x + right.x) / 2, 2) == left.column == right.column
    many = chart_of(make_run, ["none", *(f"constant:tau=0.{k}" for k in range(1, 10))]).curves
    assert round(many[-1].points[0].x - many[0].points[0].x, 1) == ALL_APART


def test_a_method_that_was_not_run_has_no_curve(make_run: MakeRun):
    group = RunGroup((read_run(make_run(config(["none", "log"]), [record("none", "line", 512, 0)])),))
    assert [curve.method for curve in score_chart(group, group.tasks[0], method_styles(group.methods)).curves] == ["none"]
