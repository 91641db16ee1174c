"""The command line as a whole: help, version, exit status, what goes to standard error."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

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
    "a misspelt option": (
        "calibrate {m}/t5 --lenght 64 --out {t}/a.json",
        "No such option: --lenght; did you mean '--length'?",
    ),
    "an option by its initials": ("train {m}/t5 --lr 1 --out {t}", "--lr; did you mean '--learning-rate' or '--lora-rank'?"),
    "an unknown command": ("calibrat {m}/t5", "No such command 'calibrat'"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_gets_status_2_and_one_line_and_writes_nothing(
    case: str, tmp_path: Path, refused: Callable[..., None]
) -> None:
    refused(*REFUSALS[case], tmp_path)


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


DEEP_INSIDE: dict[str, tuple[Exception, str]] = {
    "a file": (PermissionError(13, "Permission denied", "run/a"), "cannot use run/a: Permission denied; give another place"),
    "a device without a name": (OSError(5, "Input/output error"), "Input/output error"),
    "a full disk told by Rust": (
        RuntimeError("I/O error: No space left (os error 28)"),
        "I/O error: No space left (os error 28)",
    ),
    "a text": (UnicodeEncodeError("utf-8", "\udce9", 0, 1, "no text"), "a name or a text is not UTF-8: 'utf-8' codec can't"),
    "a number": (OverflowError("int too large\nto convert"), "a number is too large: int too large to convert"),
    "a nest": (RecursionError("maximum depth"), "lists or objects are too deep: maximum depth"),
    "memory": (MemoryError(), "there is not enough memory; give smaller batches"),
    "memory of a CPU": (
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        "there is not enough memory; give smaller batches, shorter lengths, a smaller model or another --device",
    ),
    "memory of a GPU": (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "there is not enough memory"),
    "memory of the system": (OSError(errno.ENOMEM, "Cannot allocate memory", "run/a"), "there is not enough memory; give"),
    "memory told by Rust": (
        RuntimeError("I/O error: Cannot allocate memory (os error 12)"),
        "there is not enough memory; give",
    ),
    "a name of two lines": (lw.BadInput("no directory a\nb\x1b[31m"), r"no directory a\nb\x1b[31m"),
}


@pytest.mark.parametrize("what", DEEP_INSIDE)
def test_what_a_library_meets_deep_inside_is_said_in_one_line(
    what: str, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    error, message = DEEP_INSIDE[what]

    def raising(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(importlib.import_module("lengthwise.cli.report"), "write_report", raising)
    said = lengthwise("report", "run", "--out", "page.html")
    assert (said.status, said.out, len(said.err)) == (2, "", 1)
    assert said.err[0].startswith(f"lengthwise: {message}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("misalignment", "n" * 300),
        ("misalignment", "/".join(["n" * 200] * 30)),
        ("report", "n" * 300, "--out", "page.html"),
        ("longbench", "n" * 300),
        ("train", "embedded", "--data", "n" * 5000, "--out", "run"),
        ("calibrate", "embedded", "--length", "1024", "--out", "n" * 300),
        ("misalignment", "caf\udce9"),
        ("evaluate", "embedded", "--task", "passkey", "--data", "caf\udce9.jsonl", "--out", "run"),
        ("evaluate", "embedded", "--task", "passkey", "--length", "64", "--method", "@a\udce9.json", "--out", "run"),
        ("misalignment", "two\nlines"),
        ("report", "two\nlines", "--out", "page.html"),
        ("--" + "o" * 5000,),
    ],
    ids=lambda arguments: " ".join(arguments).encode("ascii", "backslashreplace").decode()[:60],
)
def test_names_of_any_bytes_and_any_length_get_one_line(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = lengthwise(*arguments)
    assert (said.status, said.out, len(said.err)) == (2, "", 1)
    assert len(said.err[0]) <= 1200
    assert listing(tmp_path) == []


@pytest.mark.parametrize("option", ["--method @pipe --length 64", "--data pipe"])
def test_a_pipe_as_input_is_refused_at_once(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengthwise: Callable[..., Said]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    said = lengthwise("evaluate", "embedded", "--task", "passkey", *option.split(), "--out", "run")
    assert (said.status, len(said.err)) == (2, 1)
    assert "it is a pipe, not a file" in said.err[0]
    for name in ("--config", "--data"):
        said = lengthwise("train", "embedded", name, "pipe", "--out", "run")
        assert (said.status, len(said.err)) == (2, 1)
        assert "it is a pipe, not a file" in said.err[0]


@pytest.mark.filterwarnings("default")
def test_a_warning_becomes_one_line(models: Path, tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    said = lengthwise("bake", models / "t5", models / "model.json", "--length", 4 * LENGTH, "--out", tmp_path / "baked")
    assert said.status == 0
    assert len(said.err) == 1
    assert said.err[0].startswith("lengthwise: note: an input of 256 tokens is beyond the last calibrated length 64")
