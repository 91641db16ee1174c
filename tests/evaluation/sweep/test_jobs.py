"""Jobs: what they are called, what they cost, what they lack, and how the bar follows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lengthwise.evaluation.sweep.jobs import Job, MissingWork, RemainingWork, missing_work
from lengthwise.evaluation.sweep.named_methods import NamedMethod
from lengthwise.records import CellKey, Record, RunDirectory, Sharpness
from lengthwise.records.config import FORMAT

NONE, END = NamedMethod("none"), NamedMethod("truncate", reads="end")
JOB = Job(NONE, "passkey", "", 512, samples=3)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    keys = ("settings", "methods", "reads", "tasks", "data", "given", "made_with")
    return RunDirectory(tmp_path / "run", {"format": FORMAT, "model": {"name": "m"}, **{key: {} for key in keys}})


def records(job: Job, indices: Sequence[int]) -> list[Record]:
    told: dict[str, Any] = {"model": "m", "seed": 0, "tokens": 500, "depth": 0.5, "prediction": "1", "target": "1"}
    cell = job.cell
    return [Record(**told, **cell._asdict(), index=index, score=1.0, seconds=0.1) for index in indices]


def test_a_job_has_a_cell_for_each_score_of_its_answers() -> None:
    job = Job(NONE, "code_completion", "", 512, 1)
    assert job.cells == [CellKey("none", name, "", 512) for name in ("code_completion", "code_completion_es")]
    assert JOB.cells == [JOB.cell]


def test_a_label_names_task_file_length_and_method() -> None:
    assert JOB.label == "passkey at 512 tokens, none"
    assert Job(END, "line", "200.jsonl", 4096, 1).label == "line (200.jsonl) at 4,096 tokens, truncate"


def test_truncation_reads_the_training_length_and_has_no_sharpness() -> None:
    long, short = Job(END, "passkey", "", 4096, 1), Job(END, "passkey", "", 100, 1)
    assert (long.read_tokens(512), short.read_tokens(512), JOB.read_tokens(128)) == (512, 100, 512)
    assert long.weight(512) == 512**1.3
    assert (long.wants_sharpness, JOB.wants_sharpness) == (False, True)


def test_what_a_cell_lacks_follows_from_the_directory_also_after_another_process_wrote(run: RunDirectory) -> None:
    assert missing_work(JOB, run) == MissingWork({}, samples=3, sharpness=True)
    # A record beyond the samples asked for counts for nothing
    RunDirectory(run.path, run.config).records.append(records(JOB, [1, 7]))
    missing = missing_work(JOB, run)
    assert (sorted(missing.recorded), missing.samples, missing.steps) == ([1, 7], 2, 3)
    run.sharpness.append([Sharpness("none", "passkey", 512, 500, [[0.5]], [[1.0]])])
    assert missing_work(JOB, run).steps == 2


def test_the_bar_moves_by_what_was_done_and_names_the_job(run: RunDirectory) -> None:
    remaining = RemainingWork([JOB], run, train_length=512)
    assert remaining.total == 4 * 512**1.3
    # Without a bar nothing is reported
    remaining.announce(JOB)
    reported: list[tuple[float, str | None]] = []
    remaining.on_progress = lambda done=1.0, label=None: reported.append((done, label))
    remaining.announce(JOB)
    remaining.update(JOB, 1)
    remaining.update(JOB, 0)
    assert reported == [(0, JOB.label), (3 * 512**1.3, None), (512**1.3, None)]
    assert remaining.total == 0
