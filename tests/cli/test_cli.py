"""The command line as a whole: help, version, exit status, what goes to standard error."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lengthwise as lw
from tests.cli.conftest import LENGTH, SCRIPT, listing
from tests.conftest import Said


def test_version(lengthwise: Callable[..., Said]) -> None:
    assert lengthwise("--version") == Said(0, f"{lw.__version__}\n", [])


def test_help_comes_with_and_without_asking(lengthwise: Callable[..., Said]) -> None:
    asked = lengthwise("--help")
    assert asked == lengthwise()
    assert (asked.status, asked.err) == (0, [])
    for command in ("calibrate", "bake", "methods", "tasks", "demo"):
        assert command in asked.out


# Arguments, with {m} for the folder of models and {t} for an empty one, and what the line must say
REFUSALS: dict[str, tuple[str, str]] = {
    "an unknown option": ("calibrate {m}/t5 --length 64 --out {t}/a.json --loud", "No such option: --loud"),
    "an unknown command": ("calibrat {m}/t5", "No such command 'calibrat'"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_gets_status_2_and_one_line_and_writes_nothing(
    case: str, models: Path, tmp_path: Path, lengthwise: Callable[..., Said]
) -> None:
    arguments, message = REFUSALS[case]
    before = listing(models)
    said = lengthwise(*arguments.format(m=models, t=tmp_path).split())
    assert (said.status, said.out) == (2, "")
    assert len(said.err) == 1
    assert said.err[0].startswith("lengthwise: ")
    assert message in said.err[0]
    assert listing(tmp_path) == []
    assert listing(models) == before


def test_the_console_script_ends_with_status_2_and_one_line() -> None:
    done = subprocess.run([SCRIPT, "calibrat"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("lengthwise: No such command 'calibrat'")


def test_a_mistake_of_ours_is_not_passed_off_as_bad_input(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    def mistake(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(importlib.import_module("lengthwise.calibration.at_length"), "run_stack", mistake)
    with pytest.raises(ZeroDivisionError):
        lengthwise("calibrate", models / "t5", "--length", LENGTH, "--out", tmp_path / "a.json")
    assert listing(tmp_path) == []


@pytest.mark.filterwarnings("default")
def test_a_warning_becomes_one_line(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise("bake", models / "t5", models / "model.json", "--length", 4 * LENGTH, "--out", tmp_path / "baked")
    assert said.status == 0
    assert len(said.err) == 1
    assert said.err[0].startswith("lengthwise: note: an input of 256 tokens is beyond the last calibrated length 64")
