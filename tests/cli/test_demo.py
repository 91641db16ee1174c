"""The demo, on the shipped model, at lengths small enough to run often."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import lengthwise as lw
from lengthwise.cli.demo import FULL, SHORT, Plan, Shown, demo
from lengthwise.records import summarise

SMALL = Plan(("passkey", "line"), (256, 640), (640,), ("pmax",), ("none", "truncate"), samples=2)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Shown]:
    out = tmp_path_factory.mktemp("demo")
    return out, demo(out, plan=SMALL)


def test_every_method_is_scored_on_every_task_and_length(shown: tuple[Path, Shown]) -> None:
    cells = summarise(shown[1].records)
    methods = ("none", "truncate", "pmax aligned")
    wanted = {(method, task, length) for method in methods for task in SMALL.tasks for length in SMALL.lengths}
    assert {(cell.method, cell.task, cell.length) for cell in cells} == wanted
    assert {cell.n for cell in cells} == {2}


def test_within_its_training_length_the_shipped_model_answers_and_all_methods_agree(shown: tuple[Path, Shown]) -> None:
    short = [record for record in shown[1].records if record.length == 256]
    assert all(record.score == 1 for record in short)
    answers = {(record.task, record.index): set() for record in short}
    for record in short:
        answers[record.task, record.index].add(record.prediction)
    assert all(len(found) == 1 for found in answers.values())


def test_alignment_run_and_page_are_left_behind(shown: tuple[Path, Shown]) -> None:
    out, result = shown
    found = lw.Alignment.load(out / "pmax.json")
    assert [entry.length for entry in found.temperatures] == [640]
    assert found.temperatures[0].statistic == pytest.approx(found.target, rel=0.02)
    assert result.report == out / "report.html"
    page = result.report.read_text()
    assert "pmax aligned" in page
    assert "Sharpness of attention" in page
    config = json.loads((out / "run" / "config.json").read_text())
    assert config["methods"]["pmax aligned"] == found.to_json()


def test_a_demo_goes_on_where_it_was(shown: tuple[Path, Shown]) -> None:
    out, result = shown
    assert demo(out, plan=SMALL).records == result.records


def test_the_full_demo_runs_with_all_its_tasks_and_methods(tmp_path: Path) -> None:
    """At lengths of a test: 15,000 tokens take a GPU, or hours."""
    short = replace(FULL, lengths=(256, 640), calibrated=(640,), samples=1)
    cells = summarise(demo(tmp_path, plan=short).records)
    methods = ("none", "truncate", "log", "pmax aligned", "entropy aligned")
    assert {(cell.method, cell.task) for cell in cells} == {(m, t) for m in methods for t in ("passkey", "line", "topic")}
    assert all(cell.mean == 1 for cell in cells if cell.length == 256)


def test_the_plans_are_what_the_documents_promise() -> None:
    assert (SHORT.tasks, SHORT.lengths, SHORT.samples) == (("passkey", "line"), (512, 1024, 2048, 4096), 12)
    assert (SHORT.calibrated, SHORT.methods) == ((2048, 4096), ("none", "truncate"))
    assert "topic" in FULL.tasks
    assert {"log", *SHORT.methods} == set(FULL.methods)
    assert FULL.statistics == ("pmax", "entropy")
    assert FULL.lengths[-1] == FULL.calibrated[-1] == 15000
