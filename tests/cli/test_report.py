"""`lengthwise report`: one page of what `evaluate` and `analyse` wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.analysis.records import ANALYSIS, Analysis
from lengthwise.cli.report import write_report
from lengthwise.errors import BadInput
from tests.conftest import Said
from tests.helpers.analysed import analysis, at, taus
from tests.report.conftest import config, records, sharpness, write_run
from tests.report.test_page import NASTY, Tags


@pytest.fixture
def full_run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", config(), records(), sharpness())


def written(folder: Path, of: Analysis) -> Path:
    folder.mkdir(parents=True)
    (folder / ANALYSIS).write_text(json.dumps(of.to_json()))
    return folder


def test_a_page_is_made_of_an_analysis_alone(tmp_path: Path) -> None:
    out = write_report([written(tmp_path / "analysis", analysis())], tmp_path / "page.html")
    page = Tags(out.read_text())
    assert "How does made-up attend at length?" in page.text
    assert page.count("article") == 1
    assert page.count("header") == 0
    assert {path.name for path in tmp_path.iterdir()} == {"analysis", "page.html", "page.md"}
    assert "Attention of made-up by length" in (tmp_path / "page.md").read_text()


def test_a_run_and_an_analysis_share_a_page(full_run: Path, tmp_path: Path) -> None:
    out = write_report([full_run, written(tmp_path / "analysis", analysis())], tmp_path / "out" / "page.html")
    page = Tags(out.read_text())
    assert page.count("article") == 2
    assert "How far does embedded reach?" in page.text
    assert "How does made-up attend at length?" in page.text
    links = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert links == ["data:,"]
    assert {path.name for path in out.parent.iterdir()} == {"page.html", "page.md", "page.csv"}


def test_a_run_directory_that_holds_an_analysis_shows_both(full_run: Path, tmp_path: Path) -> None:
    (full_run / ANALYSIS).write_text(json.dumps(analysis().to_json()))
    assert Tags(write_report([full_run], tmp_path / "page.html").read_text()).count("article") == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"score": 1.0}, "has 3 lines with another score .* the first is line 1, which says 1 and not 0"),
        ({"seed": 1}, "line 1 of .* is damaged: its 'seed'"),
    ],
)
def test_records_that_were_edited_are_refused(
    changes: dict[str, float], told: str, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    lines = [{**line, "prediction": "7", **changes} for line in records(["none"], ["line"], [512], 3)]
    said = lengthwise("report", write_run(tmp_path / "run", config(["none"]), lines), "--out", tmp_path / "page.html")
    assert (said.status, len(said.err)) == (2, 1)
    assert re.search(told, said.err[0])
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 0),
        ({"temperatures": []}, 2),
        ({"scope": "all"}, 2),
        ({"train_length": "512"}, 2),
        ({"temperatures": [{"tau": 1}]}, 2),
    ],
)
def test_what_a_method_was_run_with_is_shown_or_damaged(
    changes: dict[str, object], status: int, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    found = {"length": 1024, "tau": 0.7, "statistic": 0.5, "forwards": 3}
    alignment = {"statistic": "pmax", "scope": "model", "train_length": 512, "target": 0.5, "temperatures": [found]}
    lines = [{**line, "prediction": "7", "score": 0.0} for line in records(["log", "none"], ["line"], [512], 3)]
    run = config(["log", "none"])
    # An object that is no alignment is a rule of somebody's own
    run["methods"] = {"log": [{**alignment, **changes}], "none": {"a": 1}}
    said = lengthwise("report", write_run(tmp_path / "run", run, lines), "--out", tmp_path / "page.html")
    assert (said.status, len(said.err)) == (status, 1)
    assert ("is damaged: the 'log' in its 'methods'" in said.err[0]) == (status == 2)


def test_what_a_rotary_model_lacks_is_said(tmp_path: Path) -> None:
    page = Tags(write_report([written(tmp_path / "a", analysis(sights=()))], tmp_path / "page.html").read_text())
    assert "This model has no learned bias over distances" in page.text


def test_an_unfinished_analysis_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    of = analysis(lengths=(at(256),), temperatures=(), heads=())
    page = Tags(write_report([written(tmp_path / "a", of)], tmp_path / "page.html").read_text())
    assert "has not come beyond the training length yet" in page.text
    assert "Left out: the training length has not been measured yet" in page.text


def test_text_from_an_analysis_stays_text(tmp_path: Path) -> None:
    of = analysis(
        model={**analysis().model, "name": NASTY},
        settings={**analysis().settings, "text": NASTY},
        temperatures=(taus(512, why={"pmax": NASTY}),),
    )
    page = Tags(write_report([written(tmp_path / "a", of)], tmp_path / "page.html").read_text())
    assert page.count("script") == 1
    assert page.count("img") == 0
    assert page.text.count("<script>window.taken = 1</script>") >= 3


def test_a_damaged_analysis_makes_no_page(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", analysis())
    (folder / ANALYSIS).write_text('{"format": 3}')
    with pytest.raises(BadInput, match="is not an analysis"):
        write_report([folder], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_training_is_not_taken_for_a_run_of_another_version(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    (tmp_path / "config.json").write_text('{"format": "lengthwise.training/1"}')
    said = lengthwise("report", tmp_path, "--out", tmp_path / "page.html")
    assert (said.status, len(said.err)) == (2, 1)
    assert "is not the config of a run directory: its format is 'lengthwise.training/1'" in said.err[0]
    assert "lengthwise evaluate" in said.err[0]


def test_a_report_is_made_from_run_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    options = ("--task", "passkey", "--length", "128", "--samples", "1", "--out", tmp_path / "run")
    assert lengthwise("evaluate", "embedded", *options).status == 0
    said = lengthwise("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert said == Said(0, "", [f"lengthwise: written: {tmp_path / 'page.html'}"])
    assert "<svg" in (tmp_path / "page.html").read_text()
    refused = lengthwise("report", tmp_path / "nothing", "--out", tmp_path / "page.html")
    assert (refused.status, len(refused.err)) == (2, 1)
