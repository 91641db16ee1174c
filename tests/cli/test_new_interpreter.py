"""What only a new interpreter shows: the console script's streams, what is imported when, that importing changes nothing.

One interpreter serves all tests, see tests/helpers/new_interpreter.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lengthwise as lw
from tests.cli.conftest import SCRIPT, listing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("new_interpreter")


@pytest.fixture(scope="module")
def done(models: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.helpers.new_interpreter", SCRIPT, models / "t5", models / "layer.json", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])


@pytest.fixture(scope="module")
def seen(done: subprocess.CompletedProcess[str], folder: Path) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "seen.json").read_text())


def test_the_console_script_keeps_results_and_progress_apart(
    done: subprocess.CompletedProcess[str], seen: Any, folder: Path
) -> None:
    assert seen["status"] == 0
    assert json.loads(done.stdout) == json.loads((folder / "a.json").read_text())
    lines = done.stderr.splitlines()
    assert lines[0] == "training length 32: measuring"
    assert len(lines) > 1
    assert all(line.startswith("length 64: forward ") for line in lines[1:])


def test_the_console_script_refuses_with_status_2_and_one_line(seen: Any, folder: Path) -> None:
    """After a checkpoint was loaded, which transformers likes to tell of."""
    status, out, err = seen["refusal"]
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("lengthwise: the layers of T5Stack share one bias table")
    assert listing(folder) == ["a.json", "seen.json"]


def test_no_bar_of_a_library_is_drawn_into_a_log(seen: Any) -> None:
    """transformers draws one while it reads a GGUF file, whatever it was told."""
    assert seen["bars in a log"] is False


def test_what_needs_no_model_needs_no_torch(seen: Any) -> None:
    assert seen["imported without a model"] == []


def test_who_does_not_train_imports_nothing_of_it(seen: Any) -> None:
    assert seen["imported without training"] == []


def test_public_names_are_there_and_not_hidden_by_modules(seen: Any) -> None:
    assert {*lw.__all__} <= {*dir(lw)}
    assert [name for name, called in seen["callable"].items() if not called] == ["__version__"]
    assert {*seen["callable"]} == {*lw.__all__}
    assert seen["calibrate is the function"]


def test_importing_lengthwise_changes_nothing(seen: Any) -> None:
    """Nor does a calibration that has ended, nor a refusal."""
    assert (seen["unchanged"], seen["looks"]) == (True, 2)


def test_importing_lengthwise_tells_transformers_nothing(seen: Any) -> None:
    assert seen["families"] == []
