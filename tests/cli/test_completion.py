"""What the shell offers after TAB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lengthwise.cli import completion
from lengthwise.methods.registry import METHODS
from lengthwise.tasks import GROUPS, TASKS


def test_models_are_the_one_that_ships_directories_and_gguf_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "t5").mkdir(parents=True)
    (tmp_path / "models" / "small.gguf").touch()
    (tmp_path / "models" / "letter.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert completion.models("") == ["embedded", "models/"]
    assert completion.models("emb") == ["embedded"]
    assert completion.models("models/") == ["models/small.gguf", "models/t5/"]
    assert completion.models("models/t") == ["models/t5/"]
    assert completion.models("google/flan") == []


def test_methods_are_those_of_the_catalogue_also_in_a_sum() -> None:
    assert completion.methods("") == ["none", "truncate", "hedge", *METHODS]
    assert completion.methods("log+yar") == ["log+yarn", "log+yarn_factor"]


def test_tasks_are_those_of_the_catalogue() -> None:
    assert completion.tasks("") == [*GROUPS, *TASKS]
    assert completion.tasks("passk") == ["passkey"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("lengthwise cal", ["calibrate"]),
        ("lengthwise evaluate emb", ["embedded"]),
        ("lengthwise reach m --task pas", ["passkey"]),
    ],
)
def test_the_shell_asks_the_command_itself(words: str, offered: list[str]) -> None:
    asking = {"_LENGTHWISE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    command = [sys.executable, "-m", "lengthwise"]
    done = subprocess.run(command, env={**os.environ, **asking}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered
