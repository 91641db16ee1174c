"""Reach: the search, its intervals, and that its lengths are cells of an evaluation."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

import lengthwise as lw
from lengthwise.errors import NoRoom
from lengthwise.evaluation.reach import PRECISION, STEP, search
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.records import Record, read_lines
from lengthwise.records.intervals import wilson
from lengthwise.tasks import TASKS
from tests.conftest import make
from tests.helpers.answering import TRAIN_LENGTH, answering

MODULE = importlib.import_module("lengthwise.evaluation.reach")
FOREIGN = lw.Alignment("pmax", "model", 256, 0.5, (Calibrated(300, 0.3, 0.5, 3),), {"weights": "abc"})
# A decoder of 100 tokens of which an answer takes 64
TIGHT = {"model": answering("llama"), "tasks": ["code_completion"], "train_length": 100}


@given(limit=st.integers(0, 40000), start=st.sampled_from([256, 300, 512, 2048]), longest=st.integers(2048, 20000))
def test_the_search_closes_in_on_the_limit(limit: int, start: int, longest: int) -> None:
    tried: list[int] = []

    def works(length: int) -> bool:
        tried.append(length)
        return length <= limit

    good, bad = search(works, start, longest)
    assert len(tried) == len(set(tried)) < 16
    assert max(tried) <= longest
    if limit >= longest:
        assert (good, bad) == (longest, None)
    elif limit < STEP:
        assert (good, bad) == (None, min(tried))
        assert min(tried) < 2 * STEP
    elif good is not None:
        assert bad is not None
        assert good <= limit < bad
        assert bad - good <= max(2 * STEP, PRECISION * good + STEP)


def test_the_lengths_tried_double_then_halve_the_gap() -> None:
    tried: list[int] = []

    def works(length: int) -> bool:
        tried.append(length)
        return length <= 1900

    assert search(works, 512, 16384) == (1856, 1920)
    assert tried == [512, 1024, 2048, 1536, 1792, 1920, 1856]


def test_below_the_room_for_a_question_the_search_ends() -> None:
    def works(length: int) -> bool:
        if length < 200:
            raise NoRoom("no room")
        return False

    assert search(works, 512, 16384) == (None, 256)


def test_other_refusals_on_the_way_down_are_not_taken_for_a_short_reach() -> None:
    def works(length: int) -> bool:
        if length < 200:
            raise lw.BadInput("sample 3 is another one now")
        return False

    with pytest.raises(lw.BadInput, match="sample 3 is another one now"):
        search(works, 512, 16384)


@pytest.mark.parametrize("name", [name for name in TASKS if name != "answer"])
def test_every_task_says_where_it_has_no_room(name: str) -> None:
    with pytest.raises(NoRoom, match="a prompt of 20 tokens has no room for the question"):
        TASKS[name].samples(ByT5Tokenizer(), 20, 1, 0)


def a_model_that_works_up_to(limits: dict[str, int]) -> Callable[..., list[Record]]:
    """Stands for `evaluate`: always right up to the limit, half right above it."""

    def evaluate(model: Any, tokenizer: Any, methods: Any, tasks: Any, lengths: Any, samples: int, *_: Any, **__: Any) -> Any:
        ((name, _),), (task,), (length,) = methods.items(), tasks, lengths
        if length < 100:
            raise NoRoom(f"a prompt of {length} tokens has no room for the question")
        right = 1.0 if length <= limits[name] else 0.5
        scores = [1.0 if index < right * samples else 0.0 for index in range(samples)]
        return [Record("m", name, task, "", length, i, 0, length, None, "", "", score, 0.1) for i, score in enumerate(scores)]

    return evaluate


def reach(monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], **options: Any) -> dict[str, lw.Reach]:
    monkeypatch.setattr(MODULE, "evaluate", a_model_that_works_up_to(limits))
    found = lw.reach(answering("t5"), ByT5Tokenizer(), [name for name in limits if name != "none"], **options)
    return {one.method: one for one in found}


def test_reach_is_told_for_none_and_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reach(monkeypatch, {"none": 1000, "infoscale": 10**6, "log": 140, "ssmax": 0}, longest=4096)
    assert list(found) == ["none", "infoscale", "log", "ssmax"]
    none = found["none"]
    assert (none.length, none.next_length, none.score, none.next_score) == (992, 1024, 1.0, 0.5)
    assert (none.low, none.high, none.says) == (992, 992, "992")
    assert (found["infoscale"].length, found["infoscale"].next_length) == (4096, None)
    assert found["infoscale"].says == ">= 4,096"
    assert found["log"].says == "128 (not even at 256)"
    assert (found["ssmax"].length, found["ssmax"].score, found["ssmax"].low) == (None, None, None)
    assert found["ssmax"].says == "not even at 128"


def test_the_interval_is_wide_where_samples_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    # 4 of 4 right has the interval 51 to 100, 2 of 4 has 15 to 85: neither end can be told from 0.8
    few = reach(monkeypatch, {"none": 1000}, samples=4, threshold=0.8)["none"]
    assert (few.low, few.length, few.high) == (None, 992, 1024)
    many = reach(monkeypatch, {"none": 1000}, samples=100, threshold=0.8)["none"]
    assert (many.low, many.high) == (992, 992)


def test_an_interval_that_begins_at_the_threshold_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    low, _ = wilson(1.0, 24)
    assert reach(monkeypatch, {"none": 1000}, samples=24, threshold=low)["none"].low == 992


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 85}, "threshold is a mean score above 0 and at most 1, not 85"),
        ({"threshold": 0.0}, "threshold is a mean score"),
        ({"longest": 100}, r"longest \(100\) is below the training length 256"),
        ({"tasks": ["chess"]}, "no task 'chess'"),
        ({"methods": ["warp"]}, "no method 'warp'"),
        ({"methods": {"none": "infoscale", "x": "truncate+log"}}, "truncate is a baseline of its own"),
        ({"train_length": 16}, "a prompt of 16 tokens has no room for the question"),
        ({"train_length": 0}, "train_length must be above 1 token, not 0"),
        ({"methods": [FOREIGN]}, "this alignment was made for another model"),
        ({"methods": ["rerope"]}, "ReRoPE changes rotary positions, and T5Stack has none"),
        ({"model": make("t5 encoder")}, "T5EncoderModel"),
        ({"methods": ["truncate"], **TIGHT}, "truncate keeps the last 36 tokens"),
        ({"methods": ["hedge+log"], **TIGHT}, "truncate keeps the last 36 tokens"),
    ],
)
def test_bad_input_is_refused_before_the_search(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "evaluate", None)
    with pytest.raises(lw.BadInput, match=message):
        lw.reach(**{"model": answering("t5"), "tokenizer": ByT5Tokenizer(), "show_progress": False, **options})


def test_the_lengths_are_cells_of_a_run_directory_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real evaluation; the tiny model knows nothing, so it fails everywhere."""
    options: dict[str, Any] = {"samples": 2, "out": tmp_path, "longest": 512, "show_progress": False, "name": "tiny"}
    found = lw.reach(answering("t5"), ByT5Tokenizer(), ["infoscale"], ["passkey"], **options)
    assert [(one.method, one.length, one.next_score) for one in found] == [("none", None, 0.0), ("infoscale", None, 0.0)]
    assert found[0].train_length == TRAIN_LENGTH
    records = read_lines(tmp_path / "records.jsonl", Record)
    assert {record.length for record in records} == {one.shortest for one in found} | {TRAIN_LENGTH}
    assert json.loads((tmp_path / "config.json").read_text())["methods"].keys() == {"none", "infoscale"}
    monkeypatch.setattr(importlib.import_module("lengthwise.evaluation.sweep.in_process"), "answer_cell", None)
    assert lw.reach(answering("t5"), ByT5Tokenizer(), ["infoscale"], ["passkey"], **options) == found


def test_other_material_reaches_the_evaluation(tmp_path: Path) -> None:
    samples = partial(TASKS["passkey"].samples, filler=["The tulip is red.", "The rose is not."])
    tasks = {"passkey": replace(TASKS["passkey"], samples=samples, material="sentences on flowers")}
    options: dict[str, Any] = {"samples": 1, "out": tmp_path, "longest": 256, "show_progress": False}
    lw.reach(answering("t5"), ByT5Tokenizer(), (), tasks, **options)
    assert json.loads((tmp_path / "config.json").read_text())["tasks"] == {"passkey": "sentences on flowers"}
