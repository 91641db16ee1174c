"""Standard output that cannot be written."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_letters_that_standard_output_does_not_have_are_shown_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    assert printing(lambda: sys.stdout.write("@é.json\n")) == 8
    assert written.getvalue() == b"@\\xe9.json\n"
