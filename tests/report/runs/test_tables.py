"""Markdown and CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.records import Cell
from lengthwise.report.runs.group import RunGroup, read_run
from lengthwise.report.runs.tables import Row, csv_rows, example, markdown
from lengthwise.report.styles import method_styles
from tests.report.conftest import config, record

MakeRun = Callable[..., Path]


def group_of(run: Path) -> RunGroup:
    return RunGroup((read_run(run),))


def test_markdown_has_a_table_a_task_with_lengths_as_rows(make_run: MakeRun):
    lines = [record("none", "line", n, k, score=float(k < 93)) for n in (512, 1024) for k in range(100)]
    lines += [record("log", "line", 1024, k, score=1.0) for k in range(100)]
    group = group_of(make_run(config(["none", "log"]), lines))
    text = markdown(group, method_styles(group.methods))
    assert text.splitlines() == [
        "## embedded, trained on 512 tokens",
        "",
        "### line",
        "",
        "| length | none | log |",
        "| --: | --: | --: |",
        "| 512 | 93 (86-97) |  |",
        "| 1,024 | 93 (86-97) | 100 (96-100) |",
    ]


def test_markdown_names_official_files_and_lets_no_markup_through(make_run: MakeRun):
    lines = [record("none", "line", 5210, 0, data="a|b<script>.jsonl", model="x\n# *y*")]
    group = group_of(make_run(config(["none"]), lines))
    text = markdown(group, method_styles(group.methods))
    assert "## x # \\*y\\*, trained" in text
    assert "| length | file | none |\n| --: | --- | --: |\n| 5,210 | a\\|b\\<script>.jsonl | " in text


def test_csv_has_all_cells_and_where_they_came_from(full_run: Path):
    group = group_of(full_run)
    rows = [{column: str(value) for column, value in row.items()} for row in csv_rows(group)]
    assert len(rows) == 5 * 2 * 7
    cell = next(row for row in rows if (row["method"], row["task"], row["length"]) == ("none", "passkey", "15000"))
    assert (cell["model"], cell["data"], cell["mean"], cell["low"], cell["n"]) == ("embedded", "", "0.0", "0.0", "24")
    assert float(cell["tokens"]) == 15000 - sum(k % 5 for k in range(24)) / 24
    assert cell["runs"] == str(full_run)


def test_nothing_is_best_among_zeros():
    zero = Cell("m", "none", "line", "", 512, 0.0, 0.0, 0.1, 10, 512.0)
    assert not Row(512, "", (zero, zero)).is_best(zero)


def test_the_example_is_the_first_at_the_longest_length_that_methods_differ_on(make_run: MakeRun):
    lines = [
        record(method, "line", length, k, score=score, prediction=f"{method} {k if score else 70 + k}", target=str(k))
        for method in ("none", "log")
        for length in (512, 1024)
        for k in range(4)
        for score in (float(method == "log" and k == 2),)
    ]
    group = RunGroup((read_run(make_run(config(["none", "log"]), lines)),))
    found = example(group, group.tasks[0])
    assert (found.length, found.target) == (1024, "2")
    assert [(answer.prediction, answer.score) for answer in found.answers] == [("none 72", 0.0), ("log 2", 1.0)]
