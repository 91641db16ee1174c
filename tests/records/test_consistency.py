"""Records that do not add up are refused by their lines, and many are checked in no time."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from lengthwise.errors import BadInput
from lengthwise.records import Record, check_consistent
from lengthwise.tasks import scores_of_records
from tests.records.samples import CONFIG, RECORD, records

FILE = Path("run/records.jsonl")


def check(lines: list[Record]) -> None:
    check_consistent(lines, FILE, CONFIG, scores_of_records())


def test_a_seed_that_is_not_the_runs_is_named() -> None:
    with pytest.raises(
        BadInput, match=r"^line 2 of run/records\.jsonl is damaged: its 'seed' is 5, and the run's is 0; take the"
    ):
        check([RECORD, replace(RECORD, seed=5)])


def test_scores_that_are_not_their_predictions_are_counted_and_the_first_is_named() -> None:
    wrong = r"^run/records\.jsonl has 2 lines with another score .*; the first is line 3, which says 1 and not 0; take"
    with pytest.raises(BadInput, match=wrong):
        check([RECORD, replace(RECORD, prediction="7", score=0.0), *records(2, prediction="7")])


@pytest.mark.parametrize("task", ["babilong_qa1", "multi_document_qa", "somebody's own"])
def test_a_score_that_no_record_tells_is_believed(task: str) -> None:
    check([replace(RECORD, task=task, score=0.5)])


def test_further_scores_of_an_answer_are_checked_too() -> None:
    line = replace(RECORD, task="code_completion_es", prediction="return x", target="return x")
    check([line])
    with pytest.raises(BadInput, match=r"says 0\.5 and not 1;"):
        check([replace(line, score=0.5)])


def test_a_hundred_thousand_records_take_less_than_reading_them() -> None:
    lines = records(1000) * 100
    start = time.process_time()
    check(lines)
    assert time.process_time() - start < 1.6
