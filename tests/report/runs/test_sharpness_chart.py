"""Sharpness against length, a panel a layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.report.runs.group import RunGroup, read_run
from lengthwise.report.runs.sharpness_chart import sharpness_strips
from lengthwise.report.styles import method_styles
from tests.report.conftest import config, records

MakeRun = Callable[..., Path]


def entry(method: str, length: int, p_max: list[list[float]]) -> dict:
    return {"method": method, "task": "line", "length": length, "tokens": length, "p_max": p_max, "entropy": [[2.0, 4.0]] * 2}


def test_a_point_is_the_mean_over_heads_of_one_layer(make_run: MakeRun):
    lines = [entry("none", 512, [[0.1, 0.3], [0.5, 0.7]]), entry("none", 1024, [[0.1, 0.1], [0.2, 0.4]])]
    run = make_run(config(["none"]), records(["none"], ["line"], [512], samples=1), lines)
    group = RunGroup((read_run(run),))
    p_max, entropy = sharpness_strips(group, method_styles(group.methods))
    assert (p_max.title, entropy.title) == ("line: P_max", "line: entropy, in nats")
    assert [[point.text for point in panel.curves[0].points] for panel in p_max.panels] == [["0.2", "0.1"], ["0.6", "0.3"]]
    assert entropy.panels[1].curves[0].points[0].text == "3"


def test_the_level_is_the_plain_model_at_its_training_length(make_run: MakeRun):
    lines = [entry("none", 512, [[0.2, 0.2]] * 2), entry("log", 1024, [[0.1, 0.1]] * 2)]
    run = make_run(config(["none", "log"]), records(["none", "log"], ["line"], [512], samples=1), lines)
    group = RunGroup((read_run(run),))
    panel = sharpness_strips(group, method_styles(group.methods))[0].panels[0]
    assert panel.level == panel.y.at(0.2)
    assert len(panel.curves) == 2
