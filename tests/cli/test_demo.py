"""The demo, on the shipped model, at lengths small enough to run often."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lengthwise as lw
from lengthwise.cli.demo import FULL, SHORT, run_demo
from lengthwise.records import Record, summarise
from tests.conftest import Said

# All its tasks and methods, at lengths of a test: 15,000 tokens take a GPU, or hours
SMALL = replace(FULL, lengths=(256, 640), calibrated=(640,), samples=1, recommended=None)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    out = tmp_path_factory.mktemp("demo")
    return out, run_demo(out, SMALL)[0]


def test_every_method_is_scored_on_every_task_and_length(shown: tuple[Path, list[Record]]) -> None:
    cells = summarise(shown[1])
    methods = ("none", "truncate", "log", "pmax aligned", "entropy aligned")
    wanted = {(method, task, length) for method in methods for task in ("passkey", "line", "topic") for length in SMALL.lengths}
    assert {(cell.method, cell.task, cell.length) for cell in cells} == wanted
    assert {cell.n for cell in cells} == {1}


def test_within_its_training_length_the_shipped_model_answers_and_all_methods_agree(shown: tuple[Path, list[Record]]) -> None:
    short = [record for record in shown[1] if record.length == 256]
    assert all(record.score == 1 for record in short)
    answers = {(record.task, record.index): set() for record in short}
    for record in short:
        answers[record.task, record.index].add(record.prediction)
    assert all(len(found) == 1 for found in answers.values())


def test_alignment_run_and_page_are_left_behind(shown: tuple[Path, list[Record]]) -> None:
    out, _ = shown
    found = lw.Alignment.load(out / "pmax.json")
    assert [entry.length for entry in found.temperatures] == [640]
    assert found.temperatures[0].statistic == pytest.approx(found.target, rel=0.02)
    page = (out / "report.html").read_text()
    assert "pmax aligned" in page
    assert "Sharpness of attention" in page
    config = json.loads((out / "run" / "config.json").read_text())
    assert config["methods"]["pmax aligned"] == found.to_json()


def test_a_demo_goes_on_where_it_was(shown: tuple[Path, list[Record]]) -> None:
    out, records = shown
    assert run_demo(out, SMALL) == (records, [])


def test_the_plans_are_what_the_documents_promise() -> None:
    assert (SHORT.tasks, SHORT.lengths, SHORT.samples) == (("passkey", "line"), (512, 1024, 2048, 4096), 12)
    assert (SHORT.calibrated, SHORT.methods) == ((2048, 4096), ("none", "truncate"))
    assert "topic" in FULL.tasks
    assert {"log", *SHORT.methods} == set(FULL.methods)
    assert FULL.statistics == ("pmax", "entropy")
    assert FULL.lengths[-1] == FULL.calibrated[-1] == 15000


def test_the_demo_prints_its_table_and_names_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    module = importlib.import_module("lengthwise.cli.demo")
    plan = module.DemoPlan(("passkey",), (128,), (600,), ("pmax",), ("none",), samples=1, recommended=600, minutes=0.01)
    monkeypatch.setattr(module, "SHORT", plan)
    for few in (("ROUNDS", (1,)), ("FRESH", (1,)), ("calibrations", lambda *_: [])):
        monkeypatch.setattr(f"lengthwise.evaluation.recommendation.steps.{few[0]}", few[1])
    said = lengthwise("demo", "--out", tmp_path / "demo")
    assert said.status == 0
    assert said.out.split()[:6] == ["task", "tokens", "none", "pmax", "aligned", "passkey"]
    assert said.err[-1] == f"lengthwise: the page: {tmp_path / 'demo' / 'report.html'}"
    assert " of questions at 600 tokens right" in said.out
    first, last = "first answers of the model as it is", "fresh questions, which alone are reported"
    assert said.err.index(first) < said.err.index(last)
    assert "use at 600 tokens?" in (tmp_path / "demo" / "report.html").read_text()
    assert {"run", "recommended", "pmax.json", "report.html", "report.md", "report.csv"} == {
        f.name for f in (tmp_path / "demo").iterdir()
    }
    again = json.loads(lengthwise("demo", "--out", tmp_path / "demo", "--json").out)
    assert again["recommendation"][0] in said.out
    cells = again["cells"]
    assert [(cell["method"], cell["length"], cell["n"]) for cell in cells] == [("none", 128, 1), ("pmax aligned", 128, 1)]


# Arguments, with {m} for the folder of models and {t} for an empty one, and what the line must say
REFUSALS: dict[str, tuple[str, str]] = {
    "a file as the folder of the demo": ("demo --out {m}/model.json/d", "cannot write"),
    "a device of the demo that is not there": ("demo --out {t}/d --device foo", "cannot load embedded onto foo: "),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_gets_status_2_and_one_line_and_writes_nothing(
    case: str, tmp_path: Path, refused: Callable[..., None]
) -> None:
    refused(*REFUSALS[case], tmp_path)
