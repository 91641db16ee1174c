"""A bounded part of the campaign, and proof that it sees what it looks for."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from scripts.fuzz import forked
from scripts.fuzz.__main__ import Case, campaign, count
from scripts.fuzz.command_lines import command_line
from scripts.fuzz.damage import damage
from scripts.fuzz.forked import Ended, run_alone
from scripts.fuzz.outcome import DONE, GOOD, HANG, HARMED, INTERRUPTED, LINES, REFUSED, STATUS, TRACEBACK, classify, snapshot

COMMANDS, FILES, SEED = 18, 12, 11


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.sweep)])
def test_hostile_commands_and_damaged_files_end_as_promised(part: int, tmp_path: Path) -> None:
    names = [f"{kind}{n + part * most}" for kind, most in (("c", COMMANDS), ("f", FILES)) for n in range(most)]
    cases = [Case(name, SEED) for name in names]
    results = list(campaign(cases, tmp_path, seconds=300))
    assert [result.line() for result in results if result.outcome.kind not in GOOD] == []
    counts = count(results)
    assert [sum(row.values()) for row in counts.values()] == [COMMANDS, FILES]
    # Not everything is refused at the door
    assert all(row[DONE] > 2 and row[REFUSED] > 2 for row in counts.values())


def say(*lines: str, status: int = 2) -> None:
    sys.stderr.write("\n".join(lines) + "\n")
    sys.exit(status)


def wait() -> None:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        say("lengthwise: interrupted", status=130)


def work() -> None:
    try:
        while True:
            pass
    except KeyboardInterrupt:
        say("lengthwise: interrupted", status=130)


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pass


def replace_pipe() -> None:
    Path("pipe").unlink()
    Path("pipe").write_text("{}")


def broken() -> None:
    raise KeyError("planted")


@pytest.mark.parametrize(("words", "kind"), [(["methods", "--check", "mine.py:Mine"], DONE), (["tasks"], STATUS)])
def test_a_method_that_fails_a_check_is_no_failure_of_the_command(words: list[str], kind: str, tmp_path: Path) -> None:
    assert classify(words, Ended(1, "a table", "", 1.0, 1.0, False), tmp_path, {}).kind == kind


@pytest.mark.parametrize(
    ("planted", "kind", "why"),
    [
        (lambda: sys.stdout.write("{}"), DONE, ""),
        (lambda: say("t5, passkey at 280", "lengthwise: note: slow", "lengthwise: no such file"), REFUSED, ""),
        (work, INTERRUPTED, ""),
        (broken, TRACEBACK, "KeyError: 'planted'"),
        (wait, HANG, "waited for something"),
        (ignore_interrupts, HANG, "did not end on Ctrl-C"),
        (lambda: Path("new.json").write_text('{"tau": 0.'), HARMED, "new.json is half-written"),
        (lambda: Path("records.jsonl").write_text("{}\n{}"), HARMED, "its last line has no end"),
        (lambda: Path("input.json").write_text("{}"), HARMED, "input.json was changed, and is none of the outputs"),
        (lambda: Path("input.json").unlink(), HARMED, "input.json was changed"),
        (lambda: (Path("old.json").write_text("[]"), say("lengthwise: no")), HARMED, "by a command that was refused"),
        (lambda: Path("old.json").chmod(0o644), HARMED, "another mode"),
        (replace_pipe, HARMED, "pipe is no longer what it was"),
        (lambda: Path(".part-1").touch(), HARMED, ".part-1 was left behind"),
        (lambda: say("lengthwise: " + "x" * 1200), LINES, "a line of 1,212 letters"),
        (lambda: say("lengthwise: one", "lengthwise: two"), LINES, "2 lines"),
        (lambda: say("Error!"), LINES, "the last line is none of ours"),
        (lambda: sys.stdout.write("NaN"), LINES, "--json printed what is no JSON: NaN is no number"),
        (lambda: say("lengthwise: no", status=3), STATUS, "3; lengthwise: no"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), STATUS, "-11"),
    ],
)
def test_the_campaign_sees(
    planted: Callable[[], None], kind: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "GRACE", 0.3)
    folder, words = tmp_path / "case", ["calibrate", "--json", "--out", "old.json"]
    folder.mkdir()
    (folder / "input.json").write_text('{"a": 1}')
    (folder / "old.json").touch(0o600)
    os.mkfifo(folder / "pipe")
    before = snapshot(folder)
    # Only what does not end by itself needs a short cap; a busy machine takes a second to begin a command
    cap = 3.0 if planted in (work, wait, ignore_interrupts) else 60.0
    ended = run_alone(folder, words, tmp_path / "printed", cap, planted)
    outcome = classify(words, ended, folder, before)
    assert (outcome.kind, why in outcome.why) == (kind, True), outcome


def test_a_case_is_the_same_whenever_it_is_drawn() -> None:
    assert [command_line(Random(f"3 c{n}")) for n in range(50)] == [command_line(Random(f"3 c{n}")) for n in range(50)]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".yaml", ".txt"])
def test_a_file_is_damaged_the_same_way_for_the_same_seed(suffix: str, tmp_path: Path) -> None:
    told = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        for n in range(60):
            file = folder / f"{n}{suffix}"
            file.write_text('{"a": [1, 2.5], "b": {"c": "d"}}\n')
            told.append((n, damage(file, Random(n)), file.read_bytes() if file.is_file() else b""))
    assert told[:60] == told[60:]
    assert sum(content != b'{"a": [1, 2.5], "b": {"c": "d"}}\n' for _, _, content in told) > 110
