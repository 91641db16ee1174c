"""Evaluations that are killed, and that share their directory with others."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.evaluation.sweep import in_process
from lengthwise.records import Record, read_lines
from tests.helpers.answering import answering_briefly
from tests.helpers.forking import finished, forked

METHODS, LENGTHS, SAMPLES = ["none", "truncate", "constant:tau=0.5"], [240, 280, 300], 3
KILLS = 10
PROCESSES = 4


def evaluate(model: Any, **options: Any) -> None:
    options = {"lengths": LENGTHS, "samples": SAMPLES, "batch_tokens": 640, "show_progress": False, **options}
    lw.evaluate(model, ByT5Tokenizer(), METHODS, ["passkey"], **options)


def started(model: Any, out: Path, **options: Any) -> int:
    """A process that evaluates, and leaves beside `out` how many cells it answered."""

    def work() -> None:
        answered: list[Any] = []
        real = in_process.answer_cell

        def counted(*arguments: Any) -> None:
            answered.append(arguments[1])
            # For another process to take a cell meanwhile
            time.sleep(0.02)
            real(*arguments)

        in_process.answer_cell = counted
        evaluate(model, out=out, **options)
        out.with_name(f"{out.name}-{os.getpid()}").write_text(str(len(answered)))

    return forked(work)


def kill_at_random(model: Any, out: Path, duration: float) -> int:
    """How often it was really killed, before it was left to finish."""
    randomness, kills = random.Random(0), 0
    while kills < KILLS:
        pid = started(model, out)
        time.sleep(randomness.uniform(0.0, duration / 6))
        os.kill(pid, signal.SIGKILL)
        if finished(pid):
            break
        kills += 1
    assert finished(started(model, out))
    return kills


def killed_among_others(model: Any, out: Path, samples: int, kills: int, pause: float) -> int:
    """Kill one of four processes again and again, start another in its place, and let the last four finish.

    Returns how many records there were after the last kill.
    """
    randomness = random.Random(0)
    working = [started(model, out, samples=samples) for _ in range(PROCESSES)]
    while kills:
        time.sleep(randomness.uniform(0.0, pause))
        victim = working.pop(randomness.randrange(PROCESSES))
        os.kill(victim, signal.SIGKILL)
        kills -= not finished(victim)
        working.append(started(model, out, samples=samples))
    records = len(records_in(out))
    assert [finished(pid) for pid in working] == [True] * PROCESSES
    return records


def records_in(out: Path) -> list[Record]:
    records = read_lines(out / "records.jsonl", Record)
    return sorted((replace(record, seconds=0.0) for record in records), key=lambda record: record.key)


def assert_same(out: Path, whole: Path) -> None:
    """The same files, of the same content but for times and the order of lines, and no line twice."""
    records = records_in(out)
    assert records == records_in(whole)
    assert len(records) == len({record.key for record in records})
    assert sorted((out / "sharpness.jsonl").read_text().splitlines()) == sorted(
        (whole / "sharpness.jsonl").read_text().splitlines()
    )
    for name in ("summary.csv", "config.json"):
        assert (out / name).read_text() == (whole / name).read_text()


def test_kills_and_company_change_nothing(tmp_path: Path) -> None:
    """Ten kills at random moments; two processes at once; two of which one is killed."""
    model = answering_briefly("t5")
    # What is imported late is imported before the forks, and once
    evaluate(model, lengths=LENGTHS[:1], samples=1)
    start = time.monotonic()
    assert finished(started(model, tmp_path / "whole"))
    duration = time.monotonic() - start
    assert kill_at_random(model, tmp_path / "killed", duration) == KILLS
    both = [started(model, tmp_path / "shared") for _ in range(2)]
    assert [finished(pid) for pid in both] == [True, True]
    shares = [int((tmp_path / f"shared-{pid}").read_text()) for pid in both]
    assert min(shares) > 0
    victim, heir = (started(model, tmp_path / "orphaned") for _ in range(2))
    time.sleep(duration / 4)
    os.kill(victim, signal.SIGKILL)
    assert not finished(victim)
    assert finished(heir)
    assert len(records_in(tmp_path / "whole")) == len(METHODS) * len(LENGTHS) * SAMPLES
    assert len((tmp_path / "whole" / "sharpness.jsonl").read_text().splitlines()) == 2 * 3
    for name in ("killed", "shared", "orphaned"):
        assert_same(tmp_path / name, tmp_path / "whole")


@pytest.mark.sweep
def test_four_processes_of_which_twenty_are_killed_leave_the_records_of_one(tmp_path: Path) -> None:
    model, samples = answering_briefly("t5"), 32
    evaluate(model, lengths=LENGTHS[:1], samples=1)
    start = time.monotonic()
    assert finished(started(model, tmp_path / "whole", samples=samples))
    pause = (time.monotonic() - start) / 20
    total = len(METHODS) * len(LENGTHS) * samples
    assert len(records_in(tmp_path / "whole")) == total
    assert 0 < killed_among_others(model, tmp_path / "killed", samples, 20, pause) < total
    assert_same(tmp_path / "killed", tmp_path / "whole")
