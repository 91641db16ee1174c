"""Progress: nothing, a line a step, or a bar, and always on standard error."""

from __future__ import annotations

import io
import sys

import pytest

from lengthwise.common.progress import TimeIsUp, progress, time_limit


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_that_is_not_shown_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", 2, shown=False) as report:
        report(1, "first")
    assert capsys.readouterr() == ("", "")


def test_outside_a_terminal_every_label_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", 2) as report:
        report(1, "first")
        report(0.5)
        report(label="second")
    assert capsys.readouterr() == ("", "first\nsecond\n")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with progress("work", 4) as report:
        report(1, "first")
        report(2)
    assert "first" in terminal.getvalue()
    assert "75 %" in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_work_ends_where_it_reports_once_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("lengthwise.common.progress.time.monotonic", lambda: now)
    with time_limit(10), progress("work", 4, shown=False) as report:
        report()
        # A longer limit within does not put it off
        with time_limit(20):
            now = 111.0
            with pytest.raises(TimeIsUp):
                report()
        with pytest.raises(TimeIsUp):
            report()
    with progress("work", 1, shown=False) as report:
        report()
