"""Standard output that cannot be written."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lengthwise.cli import run
from lengthwise.cli.standard_output import printing
from tests.cli.conftest import SCRIPT
from tests.helpers.sweep import crossed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("arguments", "buffered"), crossed([["methods"], ["tasks", "--json"], ["--help"], ["--version"]], [True, False], every=2)
)
def test_a_full_disk_below_standard_output_is_told_in_one_line(arguments: list[str], buffered: bool) -> None:
    surroundings = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([SCRIPT, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=surroundings)
    assert (done.returncode, done.stderr) == (1, "lengthwise: cannot write standard output: No space left on device\n")


@pytest.mark.parametrize("buffered", [True, False])
def test_a_reader_that_has_read_enough_is_told_nothing(buffered: bool) -> None:
    surroundings = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([SCRIPT, "methods"], stdout=writing, stderr=subprocess.PIPE, text=True, env=surroundings)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_standard_error_that_is_closed_changes_no_exit_status() -> None:
    done = subprocess.run(["sh", "-c", 'exec "$0" methods --nothing 2>&-', SCRIPT], stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_thread_of_a_library_that_fails_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError("no space\nat all")

    monkeypatch.setattr("threading.excepthook", threading.excepthook)
    assert run(["--version"]) == 0
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert capsys.readouterr().err == "lengthwise: note: no space at all\n"


def test_a_mistake_in_a_thread_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("threading.excepthook", threading.excepthook)
    assert run(["--version"]) == 0
    for mistake in (lambda: {}["missing"], sys.exit):
        thread = threading.Thread(target=mistake)
        thread.start()
        thread.join()
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("KeyError: 'missing'\n")


def test_letters_that_standard_output_does_not_have_are_shown_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    monkeypatch.setattr("sys.stderr", sys.stderr)
    assert printing(lambda: sys.stdout.write("@é.json\n")) == 8
    assert written.getvalue() == b"@\\xe9.json\n"


def test_standard_error_that_is_full_stops_no_work(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sys.stdout", sys.stdout)
    monkeypatch.setattr("sys.stderr", Full())
    options = ["--length", "240", "--samples", "1", "--out", str(tmp_path / "run")]
    assert printing(lambda: run(["evaluate", str(models / "t5"), "--task", "passkey", *options])) == 0
    assert len((tmp_path / "run" / "records.jsonl").read_text().splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_standard_error_that_is_full_changes_no_exit_status() -> None:
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([SCRIPT, "methods", "--nothing"], stderr=full).returncode == 2
