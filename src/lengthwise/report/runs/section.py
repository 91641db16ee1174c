"""A page's sections of run directories, one a group of runs that belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lengthwise.records.directory import SHARPNESS
from lengthwise.report.formatting import percent
from lengthwise.report.page import Section, model_heading
from lengthwise.report.runs import provenance
from lengthwise.report.runs.depth_map import depth_maps
from lengthwise.report.runs.group import ReadRun, RunGroup, group_runs
from lengthwise.report.runs.score_chart import score_chart
from lengthwise.report.runs.sharpness_chart import sharpness_strips
from lengthwise.report.runs.summary import WORKS, findings
from lengthwise.report.runs.tables import MARKDOWN_HEAD, csv_rows, example, markdown, table
from lengthwise.report.runs.temperature_chart import temperature_charts
from lengthwise.report.styles import Style, method_styles
from lengthwise.tasks import ruler


def run_sections(runs: Iterable[ReadRun]) -> list[Section]:
    """Runs of the same model and settings become one section, others one each; a method looks the same in all of them."""
    groups = group_runs(runs)
    styles = method_styles(list(dict.fromkeys(spec for group in groups for spec in group.methods)))
    return [
        Section(
            heading=model_heading(group.model),
            shows="score by length",
            template="runs.html",
            content=_content(group, styles),
            markdown=("" if number else MARKDOWN_HEAD) + markdown(group, styles),
            rows=csv_rows(group),
            styles={spec: styles[spec] for spec in group.methods},
        )
        for number, group in enumerate(groups)
    ]


def _content(group: RunGroup, styles: Mapping[str, Style]) -> dict[str, Any]:
    return {
        "train_length": group.train_length,
        "lengths": sorted({cell.length for cell in group.cells}),
        "styles": styles,
        "works": percent(WORKS),
        "findings": findings(group, styles),
        "scores": [score_chart(group, reported, styles) for reported in group.tasks],
        "depths": [(reported.title, maps) for reported in group.tasks if (maps := depth_maps(group, reported, styles))],
        "temperatures": temperature_charts(group, styles) if group.alignments else [],
        "sharpness": sharpness_strips(group, styles),
        "sharpness_is_empty": any((run.path / SHARPNESS).exists() for run in group.runs) and not group.sharpness,
        "tables": [table(group, reported) for reported in group.tasks],
        "examples": [example(group, reported) for reported in group.tasks if reported.task != ruler.NAME],
        "methods": [(spec, provenance.describe(spec, group)) for spec in group.methods],
        "facts": provenance.facts(group),
        "commands": provenance.commands(group),
        "named_in_python": provenance.named_in_python(group),
    }
