"""Which runs make one part of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.report.runs.group import ReportedTask, RunGroup, group_runs, read_run
from tests.report.conftest import MODEL, alignment, config, record, records

MakeRun = Callable[..., Path]


def read(*paths: Path) -> list[RunGroup]:
    return group_runs(read_run(path) for path in paths)


def test_runs_of_one_model_and_settings_are_merged(make_run: MakeRun):
    plain = make_run(config(["none"]), records(["none"], samples=3))
    log = make_run(config(["log"]), records(["log"], samples=3))
    (group,) = read(plain, log)
    assert group.methods == ["none", "log"]
    assert len(group.records) == 2 * 2 * 7 * 3


def test_a_sample_in_two_runs_counts_once(make_run: MakeRun):
    first = make_run(config(["none"]), records(["none"], ["line"], [512], samples=4))
    second = make_run(config(["none"]), records(["none"], ["line"], [512], samples=6))
    (group,) = read(first, second, first)
    assert [cell.n for cell in group.cells] == [6]


def test_of_a_sample_in_two_runs_the_first_counts(make_run: MakeRun):
    wrong, right = (make_run(config(["none"]), [record("none", "line", 512, 0, score=score)]) for score in (0.0, 1.0))
    (group,) = read(wrong, right)
    assert [one.score for one in group.records] == [0.0]


def test_other_weights_settings_or_alignments_get_a_section_of_their_own(make_run: MakeRun):
    spec = "@out/pmax.json"
    lines = records([spec], ["line"], [512], samples=1)
    other = {**config([spec]), "methods": {spec: alignment("model", "entropy")}}
    runs = [
        make_run(config([spec]), lines),
        make_run({**config([spec]), "model": {**MODEL, "weights": "other"}}, lines),
        make_run(config([spec], dtype="float32"), lines),
        make_run(other, lines),
        make_run({**config([spec]), "model": {**MODEL, "name": "moved"}}, lines),
    ]
    assert [len(group.runs) for group in read(*runs)] == [2, 1, 1, 1]


def test_methods_are_shown_plain_first_then_as_they_were_run(make_run: MakeRun):
    methods = ["log", "truncate", "infoscale", "none", "never run"]
    (group,) = read(make_run(config(methods), records(methods[:4], ["line"], [512], samples=1)))
    assert group.methods == ["none", "truncate", "log", "infoscale"]


def test_official_files_are_a_subject_of_their_own(make_run: MakeRun):
    official = [record("none", "line", 5210, k, data="200.jsonl") for k in range(2)]
    (group,) = read(make_run(config(["none"]), official + records(["none"], ["line", "passkey"], [512], samples=1)))
    assert group.tasks == [ReportedTask("line", False), ReportedTask("passkey", False), ReportedTask("line", True)]
    assert [(cell.data, cell.n) for cell in group.cells_of(ReportedTask("line", True), "none")] == [("200.jsonl", 2)]


def test_an_alignment_inside_a_sum_is_found(make_run: MakeRun):
    spec = "yarn_factor:factor=8+@a.json+@b.json"
    documents = {spec: [alignment("model"), alignment("layer")], "none": None}
    lines = records([spec, "none"], ["line"], [512], samples=1)
    (group,) = read(make_run({**config(["none"]), "methods": documents}, lines))
    assert [(of, document["scope"]) for of, document in group.alignments] == [(spec, "model"), (spec, "layer")]
