"""Needle depth against length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.report.runs.depth_map import bin_of, depth_maps
from lengthwise.report.runs.group import RunGroup, read_run
from lengthwise.report.styles import method_styles
from tests.report.conftest import config, record

MakeRun = Callable[..., Path]


def maps_of(run: Path) -> list:
    group = RunGroup((read_run(run),))
    return depth_maps(group, group.tasks[0], method_styles(group.methods))


def test_depth_one_belongs_to_the_last_bin():
    assert [bin_of(depth, 5) for depth in (0.0, 0.19, 0.2, 0.99, 1.0)] == [0, 0, 1, 4, 4]


def test_a_cell_is_the_mean_of_its_samples_and_empty_cells_are_blank(make_run: MakeRun):
    lines = [
        record("none", "line", 512, 0, depth=0.0, score=1.0),
        record("none", "line", 512, 1, depth=0.1, score=0.0),
        record("none", "line", 1024, 0, depth=1.0, score=0.0),
    ]
    (found,) = maps_of(make_run(config(["none"]), lines))
    assert [(cell.label, cell.place, cell.text) for cell in found.cells] == [
        ("50", "512 tokens, depth 0 to 20 %", "50\u00a0% of 2 samples"),
        ("0", "1,024 tokens, depth 80 to 100 %", "0\u00a0% of 1 sample"),
    ]
    early, late = found.cells
    assert early.y < late.y, "the beginning of the input is on top"
    assert early.x < found.train_x <= late.x
    assert [tick.label for tick in found.columns] == ["512", "1k"]


def test_many_samples_are_cut_into_finer_bins(make_run: MakeRun):
    few = [record("none", "line", 512, k, depth=k / 49) for k in range(49)]
    many = [record("none", "line", 512, k, depth=k / 50) for k in range(50)]
    assert len(maps_of(make_run(config(["none"]), few))[0].cells) == 5
    assert len(maps_of(make_run(config(["none"]), many))[0].cells) == 10


def test_all_methods_have_the_same_columns(make_run: MakeRun):
    lines = [record("none", "line", n, 0) for n in (512, 1024)] + [record("log", "line", 2048, 0)]
    plain, log = maps_of(make_run(config(["none", "log"]), lines))
    assert plain.columns == log.columns
    assert (len(plain.cells), len(log.cells)) == (2, 1)


def test_samples_without_a_depth_are_left_out(make_run: MakeRun):
    lines = [record("none", "line", 5210, k, data="200.jsonl", depth=None) for k in range(3)]
    assert maps_of(make_run(config(["none"]), lines)) == []
