"""The first words of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lengthwise.report.runs.group import RunGroup, read_run
from lengthwise.report.runs.summary import Finding, findings
from lengthwise.report.styles import method_styles
from tests.report.conftest import config, record

MakeRun = Callable[..., Path]
# Of ten samples a cell, by length
Scores = dict[str, dict[int, int]]


def finding(make_run: MakeRun, scores: Scores, **changes: Any) -> Finding:
    lines = [
        record(method, "line", length, k, score=float(k < right), **changes)
        for method, by_length in scores.items()
        for length, right in by_length.items()
        for k in range(10)
    ]
    return found_in(make_run, list(scores), lines)


def found_in(make_run: MakeRun, methods: list[str], lines: list[dict[str, Any]]) -> Finding:
    group = RunGroup((read_run(make_run(config(methods), lines)),))
    (found,) = findings(group, method_styles(group.methods))
    return found


def test_reach_is_the_longest_length_before_the_first_failure(make_run: MakeRun):
    scores = {"none": {512: 10, 1024: 5, 2048: 0}, "log": {512: 10, 1024: 8, 2048: 10}, "ssmax": {512: 9, 1024: 9, 2048: 9}}
    found = finding(make_run, scores)
    assert [(reach.method, reach.length, reach.says) for reach in found.reaches] == [
        ("none", 512, "512"),
        ("log", 512, "512"),
        ("ssmax", 2048, "\u2265 2,048"),
    ]
    assert (found.figure, found.headline) == ("2,048 tokens", "4 times the training length, with ssmax")
    assert found.gain == "Biggest gain over none: from 0\u00a0% to 100\u00a0% with log at 2,048 tokens."


def test_a_score_of_exactly_the_threshold_works(make_run: MakeRun):
    lines = [record("none", "line", 512, k, score=float(k < 17)) for k in range(20)]
    assert found_in(make_run, ["none"], lines).reaches[0].length == 512


def test_a_length_is_reached_by_all_its_files(make_run: MakeRun):
    files = {"a.jsonl": (1000, 10), "b.jsonl": (1000, 2), "c.jsonl": (500, 9), "d.jsonl": (2000, 10)}
    lines = {
        file: [record("none", "line", length, k, score=float(k < right), data=file) for k in range(10)]
        for file, (length, right) in files.items()
    }
    both = lines["a.jsonl"] + lines["b.jsonl"]
    assert found_in(make_run, ["none"], both).reaches[0].length is None
    (reach,) = found_in(make_run, ["none"], both + lines["c.jsonl"] + lines["d.jsonl"]).reaches
    assert (reach.length, reach.says) == (500, "500")


def test_a_bar_grows_by_doublings(make_run: MakeRun):
    found = finding(make_run, {"none": {512: 10, 1024: 0, 2048: 0}, "log": {512: 10, 1024: 10, 2048: 10}})
    assert [reach.share for reach in found.reaches] == [0.3333, 1.0]


def test_a_task_nobody_does_is_said_to_be_out_of_reach(make_run: MakeRun):
    found = finding(make_run, {"none": {512: 8, 1024: 8}, "log": {512: 2, 1024: 8}})
    assert found.figure == "not reached"
    assert found.headline == "no method scores 85\u00a0%, not even at 512 tokens"
    assert [(reach.length, reach.share, reach.says) for reach in found.reaches] == [(None, 0, "< 512")] * 2
    assert found.gain == "No method scores above none at any length."


def test_a_task_done_at_a_greater_length_alone_is_said_to_fail_at_the_shortest(make_run: MakeRun):
    found = finding(make_run, {"none": {512: 8, 1024: 9}})
    assert found.headline == "no method scores 85\u00a0% at its shortest length"


def test_a_gain_inside_the_intervals_is_doubted(make_run: MakeRun):
    found = finding(make_run, {"none": {1024: 5}, "log": {1024: 6}})
    assert found.gain.endswith("at 1,024 tokens; their intervals overlap.")


def test_no_gain_without_something_to_compare(make_run: MakeRun):
    assert finding(make_run, {"none": {512: 10}}).gain == "No gain can be told: only none was run."
    assert finding(make_run, {"log": {512: 10}}).gain == "No gain can be told: none was not run at the same lengths."


def test_files_of_ones_own_are_named(make_run: MakeRun):
    found = finding(make_run, {"none": {5210: 0}, "log": {5210: 9}}, data="200.jsonl")
    assert found.name == "line (your own files)"
    assert "with log at 200.jsonl, 5,210 tokens" in found.gain
