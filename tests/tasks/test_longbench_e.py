"""LongBench-E's scores put together, against means worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import BadInput
from lengthwise.tasks.longbench_e import TASKS, ScoredAnswer, bucket, read_scored, summarise


def test_there_are_thirteen_tasks_and_three_lengths_in_words() -> None:
    assert len(set(TASKS)) == 13
    assert [bucket(words) for words in (0, 3999, 4000, 7999, 8000, 99999)] == ["0-4k", "0-4k", "4-8k", "4-8k", "8k+", "8k+"]


def test_every_task_counts_once_whatever_its_samples() -> None:
    lcc = [
        ScoredAnswer("lcc", 100, 1.0),
        ScoredAnswer("lcc", 200, 0.5),
        ScoredAnswer("lcc", 300, 0.0),
        ScoredAnswer("lcc", 9000, 0.1),
    ]
    summary = summarise([*lcc, ScoredAnswer("trec", 100, 0.2)])
    assert summary.tasks == {
        "trec": pytest.approx({"0-4k": 20.0, "all": 20.0}),
        "lcc": pytest.approx({"0-4k": 50.0, "8k+": 10.0, "all": 40.0}),
    }
    assert summary.overall == pytest.approx({"0-4k": 35.0, "8k+": 10.0, "all": 30.0})
    assert len(summary.missing) == 11
    assert {"lcc", "trec"}.isdisjoint(summary.missing)


def test_another_benchmarks_task_is_refused() -> None:
    with pytest.raises(BadInput, match="'musique' is no task of LongBench-E"):
        summarise([ScoredAnswer("musique", 100, 1.0)])


def left(folder: Path, task: str, stamp: str, *lines: Any, method: str = "none") -> None:
    """What the harness writes."""
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / f"samples_longbench_{task}_e_{stamp}.jsonl").write_text(text, encoding="utf-8")
    config = {"model": "lengthwise", "model_args": {"pretrained": "x", "method": method}}
    (folder / f"results_{stamp}.json").write_text(json.dumps({"config": config}), encoding="utf-8")


def line(words: int, score: float) -> dict[str, Any]:
    return {"doc_id": 0, "doc": {"length": words}, "score": score}


def test_the_newest_run_of_each_task_is_read(tmp_path: Path) -> None:
    left(tmp_path / "x", "lcc", "2026-01-01T10-00-00.5", line(100, 0.9))
    left(tmp_path / "x", "lcc", "2026-01-02T10-00-00.5", line(100, 0.25), line(5000, 1))
    left(tmp_path / "x", "repobench-p", "2026-01-01T11-00-00.5", line(9000, 0.5))
    assert read_scored(tmp_path) == [
        ScoredAnswer("lcc", 100, 0.25),
        ScoredAnswer("lcc", 5000, 1.0),
        ScoredAnswer("repobench-p", 9000, 0.5),
    ]


def test_answers_of_two_methods_are_not_mixed(tmp_path: Path) -> None:
    left(tmp_path, "lcc", "2026-01-01T10-00-00.5", line(100, 0.9))
    left(tmp_path, "trec", "2026-01-02T10-00-00.5", line(100, 0.9), method="log")
    with pytest.raises(BadInput, match=r"holds answers of several models or methods .*; give each its own --output_path"):
        read_scored(tmp_path)
    (tmp_path / "results_2026-01-02T10-00-00.5.json").unlink()
    with pytest.raises(BadInput, match=r"results_2026-01-02T10-00-00\.5\.json should tell with which model"):
        read_scored(tmp_path)


def test_what_the_harness_did_not_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="run the harness with --output_path and --log_samples"):
        read_scored(tmp_path)
    left(tmp_path, "lcc", "2026-01-01T10-00-00.5", {"doc": {"length": 100}})
    with pytest.raises(BadInput, match=r"line 1 of .* has no key 'score'"):
        read_scored(tmp_path)
    left(tmp_path, "lcc", "2026-01-01T10-00-00.5", line(100, 0.5), line(100, float("nan")))
    with pytest.raises(BadInput, match=r"line 2 of .* is not JSON \(NaN is no number\)"):
        read_scored(tmp_path)
