"""Sections of run directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.report.runs.group import read_run
from lengthwise.report.runs.section import run_sections
from tests.report.conftest import MODEL, config, records

MakeRun = Callable[..., Path]


def test_a_section_has_a_part_for_everything_that_was_run(full_run: Path):
    (section,) = run_sections([read_run(full_run)])
    assert (section.heading, section.shows, section.template) == ("embedded", "score by length", "runs.html")
    content = section.content
    assert [chart.title for chart in content["scores"]] == ["passkey", "line"]
    assert [len(content[part]) for part in ("findings", "depths", "tables", "examples")] == [2, 2, 2, 2]
    assert (len(content["temperatures"]), len(content["sharpness"])) == (2, 4)
    assert len(section.rows) == 5 * 2 * 7
    assert section.markdown.startswith("# Scores by task and length\n")


def test_a_method_looks_the_same_in_all_sections_and_only_the_first_has_a_title(make_run: MakeRun):
    first = make_run(config(["none", "log"]), records(["none", "log"], ["line"], [512], samples=1))
    other = {**config(["infoscale", "log"]), "model": {**MODEL, "weights": "other"}}
    second = make_run(other, records(["infoscale", "log"], ["line"], [512], samples=1))
    one, two = run_sections(map(read_run, (first, second)))
    assert one.styles["log"] == two.styles["log"] != two.styles["infoscale"]
    assert (list(one.styles), list(two.styles)) == (["none", "log"], ["infoscale", "log"])
    assert two.markdown.startswith("## embedded, trained on 512 tokens\n")
    assert run_sections([]) == []
