"""Cells that other processes hold are tried again; kills and company are tested with `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lengthwise.evaluation.sweep import in_process
from lengthwise.evaluation.sweep.jobs import Job
from lengthwise.evaluation.sweep.named_methods import NamedMethod

JOBS = [Job(NamedMethod("none"), "passkey", "", length, 1) for length in (100, 200, 300)]


def test_only_held_jobs_are_tried_again_and_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(in_process.time, "sleep", pauses.append)
    held = iter([JOBS[1:], JOBS[2:], []])
    tried: list[Sequence[Job]] = []

    def attempt(jobs: Sequence[Job]) -> list[Job]:
        tried.append(jobs)
        return next(held)

    in_process.repeat_while_held(JOBS, attempt)
    assert tried == [JOBS, JOBS[1:], JOBS[2:]]
    assert pauses == [in_process.PAUSE] * 2
