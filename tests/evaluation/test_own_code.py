"""Methods and tasks out of a user's own file: evaluated, recorded with a digest, never mixed, never run unasked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.common import plugins
from lengthwise.errors import BadInput
from lengthwise.methods.recipe import Recipe
from tests.conftest import Said
from tests.helpers.answering import answering_briefly, saved
from tests.helpers.own_code import METHOD, TASK, installed


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file whose path holds all that divides a spec, with a method and a task."""
    folder = tmp_path / "c++ and: more"
    folder.mkdir()
    (folder / "mine.py").write_text(METHOD + TASK)
    return folder / "mine.py"


def evaluate(own: Path, out: Path, **options: Any) -> list[lw.Record]:
    methods = ["none", f"{own}:Sharper:power=2+log"]
    asked = {"methods": methods, "tasks": [f"{own}:DIGITS"], "lengths": [300], "samples": 2}
    return lw.evaluate(answering_briefly("t5"), ByT5Tokenizer(), out=out, **{**asked, "show_progress": False, **options})


def test_a_file_serves_as_the_package_does_and_is_recorded(own: Path, tmp_path: Path) -> None:
    records = evaluate(own, tmp_path / "run")
    assert {record.method for record in records} == {"none", f"{own}:Sharper:power=2+log"}
    assert {record.task for record in records} == {f"{own}:DIGITS", f"{own}:DIGITS_long"}
    assert {record.score for record in records} <= {0.0, 0.5, 1.0}
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    digest = config["methods"][f"{own}:Sharper:power=2+log"]["digest"]
    assert config["code"] == {f"{own}:DIGITS": f"mine.py {digest}"}


def test_a_file_that_has_changed_is_not_mixed_with_what_it_was(own: Path, tmp_path: Path) -> None:
    evaluate(own, tmp_path / "run")
    own.write_text(own.read_text() + "# another version\n")
    with pytest.raises(BadInput, match=r"the method .*Sharper.* has changed since .* was begun: its digest was"):
        evaluate(own, tmp_path / "run", tasks=["passkey"], samples=3)
    with pytest.raises(BadInput, match=r"the task .*DIGITS' has changed since .* was begun; give another --out"):
        evaluate(own, tmp_path / "run", methods=["none"], samples=3)


def test_an_analysis_is_not_mixed_with_another_version_of_a_task(own: Path, tmp_path: Path) -> None:
    def analyse() -> None:
        asked = {"tasks": f"{own}:DIGITS", "train_length": 32, "show_progress": False}
        lw.analyse(answering_briefly("t5"), ByT5Tokenizer(), [300], tmp_path / "analysis", **asked)

    analyse()
    analyse()
    own.write_text(own.read_text() + "# another version\n")
    with pytest.raises(BadInput, match=r"the task .*DIGITS' has changed since .* was begun; give another --out"):
        analyse()


def test_a_report_shows_the_run_and_runs_nothing(
    own: Path, tmp_path: Path, lengthwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(own, tmp_path / "run")

    def run(*_: Any) -> Any:
        raise AssertionError("code was run")

    monkeypatch.setattr(plugins, "_module", run)
    said = lengthwise("report", tmp_path / "run", "--out", tmp_path / "report.html")
    assert said.status == 0
    page = (tmp_path / "report.html").read_text()
    assert "mine.py:Sharper:power=2+log" in page
    assert f"code of {own}:DIGITS" in page


def test_a_recipe_may_not_name_code(own: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    path = tmp_path / "recipe.json"
    Recipe("none", (f"log+{own}:Sharper",), 512, 64, ()).save(path)
    model = saved(answering_briefly("t5"), tmp_path / "t5")
    for command in (
        f"evaluate {model} --task passkey --length 300 --out {tmp_path}/run --method @{path}",
        f"bake {model} {path} --length 300 --out {tmp_path}/baked",
    ):
        said = lengthwise(*command.split(" "))
        assert (said.status, len(said.err)) == (2, 1)
        told = f"asks for code in {own}, and no file may do that; type it yourself: log+{own}:Sharper"
        assert told in said.err[0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [1 / 0]", "mine.py, line 3, in samples: ZeroDivisionError: division by zero"),
        ("return ['a prompt']", "must make a list of one Sample, not ['a prompt']"),
        ("return passkey.samples(*a)[:0]", "must make a list of one Sample, not []"),
        ("return passkey.samples(*a)", "a score is a number from 0 to 1, not 'right'"),
    ],
)
def test_a_task_that_does_not_work_is_refused_in_one_line(
    body: str, message: str, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    own = tmp_path / "mine.py"
    task = "Task(samples, lambda *a: 'right', 4, passkey.read)"
    own.write_text(f"from lengthwise.tasks import Task, passkey\ndef samples(*a):\n    {body}\nMINE = {task}\n")
    model = saved(answering_briefly("t5"), tmp_path / "t5")
    said = lengthwise("evaluate", model, "--task", f"{own}:MINE", "--length", 300, "--samples", 1, "--out", tmp_path / "run")
    assert said.status == 2
    assert message in said.err[-1]


def test_samples_that_are_none_are_refused_by_every_command(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    own, model = tmp_path / "mine.py", saved(answering_briefly("t5"), tmp_path / "t5")
    own.write_text("from lengthwise.tasks import Task, passkey\nMINE = Task(lambda *a: [7], passkey.score, 4, passkey.read)\n")
    asked = ("--length", 300, "--task", f"{own}:MINE", "--train-length", 240, "--out", tmp_path / "out")
    for command in (("analyse",), ("calibrate",), ("calibrate", "--statistic", "answers")):
        said = lengthwise(command[0], model, *command[1:], *asked)
        assert said.status == 2
        assert "must make a list of " in said.err[-1]
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("read", ["[7]", "[]", "[replace(s, depth=7) for s in passkey.samples(a[0], 300, 2, 0)]"])
def test_cases_that_are_none_are_refused(read: str, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    own, model = tmp_path / "mine.py", saved(answering_briefly("t5"), tmp_path / "t5")
    imported = "from dataclasses import replace\nfrom lengthwise.tasks import Task, passkey\n"
    own.write_text(f"{imported}MINE = Task(passkey.samples, passkey.score, 4, lambda *a: {read})\n")
    asked = ("--task", f"{own}:MINE", "--data", own, "--samples", 1, "--out", tmp_path / "run")
    said = lengthwise("evaluate", model, *asked)
    assert (said.status, len(said.err)) == (2, 1)
    assert "must make a list of Samples, not" in said.err[0] or "has made a Sample that is none" in said.err[0]


def test_a_method_that_fails_at_length_is_told_with_its_line(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    own = tmp_path / "mine.py"
    own.write_text(METHOD.replace("return visible", "assert visible.max() < 100, 'too long'\n        return visible"))
    model = saved(answering_briefly("t5"), tmp_path / "t5")
    given = ("--method", f"{own}:Sharper", "--task", "passkey", "--length", 300, "--samples", 1)
    said = lengthwise("evaluate", model, *given, "--out", tmp_path / "run")
    assert (said.status, said.err[-1]) == (
        2,
        "lengthwise: mine.py, line 21, in inverse_temperature: AssertionError: too long",
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{own}:DIGITZ", "has no 'DIGITZ'; did you mean 'DIGITS'?"),
        ("{own}:score", "score is a function; a task is a lengthwise.tasks.Task"),
        ("{own}x.py:DIGITS", "No such file or directory"),
        ("passky", "no task 'passky'; did you mean 'passkey'?"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "calibrate", "analyse", "recommend", "reach"])
def test_every_command_reads_tasks_of_ones_own(
    command: str, name: str, message: str, own: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    lengths = () if command == "reach" else ("--length", 300)
    out = ("--out", tmp_path / ("a.json" if command == "calibrate" else "run"))
    said = lengthwise(command, "embedded", "--task", name.format(own=own), *lengths, *out)
    assert (said.status, len(said.err)) == (2, 1)
    assert message in said.err[0]


def test_an_installed_package_is_listed_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    groups = "[lengthwise.methods]\nsharper = sharp_package:Sharper\n[lengthwise.tasks]\ndigits = sharp_package:DIGITS\n"
    installed(monkeypatch, tmp_path / "site", groups, sharp_package=METHOD + TASK)
    try:
        listed = [line.split(maxsplit=1) for command in ("methods", "tasks") for line in lengthwise(command).out.splitlines()]
        assert ["sharper", "sharp_package:Sharper of sharp 1.0"] in listed
        assert ["digits", "sharp_package:DIGITS of sharp 1.0"] in listed
        records = lw.evaluate(
            answering_briefly("t5"), ByT5Tokenizer(), ["sharper:power=2"], ["digits"], [300], 1, show_progress=False
        )
        assert {(record.method, record.task) for record in records} == {
            ("sharper:power=2", "digits"),
            ("sharper:power=2", "digits_long"),
        }
        said = lengthwise(
            "evaluate", "embedded", "--method", "sharpr", "--task", "passkey", "--length", 300, "--out", tmp_path / "run"
        )
        assert "did you mean 'sharper'?" in said.err[0]
    finally:
        plugins.announced.cache_clear()
