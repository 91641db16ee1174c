"""One sample, as every method answered it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.report.runs.examples import example
from lengthwise.report.runs.group import RunGroup, read_run
from tests.report.conftest import config, record

MakeRun = Callable[..., Path]


def test_it_is_the_first_at_the_longest_length_that_methods_differ_on(make_run: MakeRun):
    lines = [
        record(method, "line", length, k, score=float(method == "log" and k == 2), prediction=f"{method} {k}", target=f"t{k}")
        for method in ("none", "log")
        for length in (512, 1024)
        for k in range(4)
    ]
    group = RunGroup((read_run(make_run(config(["none", "log"]), lines)),))
    found = example(group, group.tasks[0])
    assert (found.length, found.target) == (1024, "t2")
    assert [(answer.prediction, answer.score) for answer in found.answers] == [("none 2", 0.0), ("log 2", 1.0)]
