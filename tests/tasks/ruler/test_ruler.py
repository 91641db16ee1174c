"""RULER's mean over tasks and its effective length, from records to the command line and the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.evaluation.sweep.questions import tasks_by_name
from lengthwise.records import Record, RunDirectory, summarise
from lengthwise.tasks import GROUPS, TASKS
from lengthwise.tasks.ruler import NAMES, effective_length, mean_records
from tests.conftest import Said
from tests.records.samples import CONFIG, RECORD


def answered(score: float = 1.0, samples: int = 2, **changes: Any) -> list[Record]:
    """Of every task but the last, which is always right, one of two answers has the score."""
    records = [replace(RECORD, task=name, index=index, depth=None, **changes) for name in NAMES for index in range(samples)]
    return [
        record
        if record.index or record.task == NAMES[-1]
        else replace(record, score=score, prediction="a 6" if score == 0 else "a 5")
        for record in records
    ]


def test_the_thirteen_tasks_have_one_name() -> None:
    assert len(NAMES) == 13
    assert GROUPS == {"ruler": NAMES}
    assert set(NAMES) == {name for name in TASKS if name.startswith("ruler_")}
    assert list(tasks_by_name(["passkey", "ruler", "ruler_vt"])) == ["passkey", *NAMES]
    with pytest.raises(BadInput, match="no task 'rular'; did you mean 'ruler'"):
        tasks_by_name(["rular"])


def test_the_mean_counts_every_task_once_and_has_an_interval() -> None:
    records = answered(0.0)
    means = mean_records(records)
    assert [(record.task, record.index) for record in means] == [("ruler", 0), ("ruler", 1)]
    assert [record.score for record in means] == pytest.approx([1 / 13, 1.0])
    assert {(record.depth, record.prediction, record.target, record.seconds) for record in means} == {(None, "", "", 0.0)}
    (cell,) = summarise(means)
    assert (cell.mean, cell.n) == (pytest.approx(7 / 13), 2)
    assert mean_records(records[1:]) == means[1:]
    assert mean_records([replace(record, data="mine.jsonl") for record in records]) == []


def test_the_effective_length_is_the_longest_that_reaches_the_threshold() -> None:
    means = {4096: 0.95, 8192: 0.856, 16384: 0.7}
    assert effective_length(means) == 8192
    assert effective_length(means, 0.9) == 4096
    assert effective_length(means, 0.99) is None


def test_the_command_line_tells_the_mean_and_the_effective_length(
    tmp_path: Path, lengthwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def evaluated(model: Any, tokenizer: Any, methods: Any, tasks: Any, *others: Any, **options: Any) -> list[Record]:
        given.append(tasks)
        return answered() + answered(0.0, length=4096)

    monkeypatch.setattr("lengthwise.evaluation.evaluate.evaluate", evaluated)
    command = ("evaluate", "embedded", "--task", "ruler", "--length", 512, "--out", tmp_path / "run")
    said = lengthwise(*command)
    assert said.status == 0, said.err
    assert "RULER's effective length, none: 512 tokens (mean of 85.6 or more)" in said.out
    assert [line.split()[:2] for line in said.out.splitlines() if line.startswith("ruler ")] == [
        ["ruler", "512"],
        ["ruler", "4,096"],
    ]
    told = json.loads(lengthwise(*command, "--threshold", 0.5, "--json").out)
    assert told["ruler"] == {"threshold": 0.5, "effective_length": {"none": 4096}}
    assert given == [["ruler"]] * 2
    refused = lengthwise(*command, "--threshold", 85.6)
    assert (refused.status, len(refused.err)) == (2, 1)
    assert "--threshold is a mean score above 0 and at most 1, not 85.6" in refused.err[0]


def test_the_page_shows_the_mean_as_a_task(tmp_path: Path, lengthwise: Callable[..., Said]) -> None:
    run = RunDirectory(tmp_path / "run", {**CONFIG, "tasks": dict.fromkeys(NAMES)})
    run.records.append(answered(0.0))
    said = lengthwise("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert said.status == 0, said.err
    assert ">ruler<" in (tmp_path / "page.html").read_text()
