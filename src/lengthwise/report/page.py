"""The page: everything a section has to show, handed to the template, which escapes all text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from markupsafe import Markup

from lengthwise.report import provenance
from lengthwise.report.depth_map import depth_maps
from lengthwise.report.environment import TEMPLATE, environment
from lengthwise.report.examples import example, shortened
from lengthwise.report.score_chart import score_chart
from lengthwise.report.section import Section
from lengthwise.report.sharpness_chart import sharpness_strips
from lengthwise.report.styles import Style
from lengthwise.report.summary import WORKS, findings
from lengthwise.report.tables import table
from lengthwise.report.temperature_chart import temperature_charts
from lengthwise.report.words import listed, percent, tokens_at


def page(sections: Sequence[Section], looks: Mapping[str, Style], analyses: Sequence[Any] = ()) -> str:
    from lengthwise.analysis.page.view import view

    templates = environment()
    templates.filters.update(listed=listed, percent=percent, shortened=shortened)
    templates.globals["tokens_at"] = tokens_at
    script = (TEMPLATE / "page.js").read_text(encoding="utf-8")
    return templates.get_template("page.html").render(
        sections=[_view(section, looks) for section in sections],
        analyses=[{"heading": _heading(analysis.model["name"]), **view(analysis)} for analysis in analyses],
        looks=looks,
        works=percent(WORKS),
        style=Markup((TEMPLATE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _view(section: Section, looks: Mapping[str, Style]) -> dict[str, Any]:
    """What the template draws of one section."""
    return {
        "heading": _heading(section.model),
        "train_length": section.train_length,
        "lengths": sorted({cell.length for cell in section.cells}),
        "findings": findings(section, looks),
        "scores": [score_chart(section, subject, looks) for subject in section.subjects],
        "depths": [(subject.name, maps) for subject in section.subjects if (maps := depth_maps(section, subject, looks))],
        "temperatures": temperature_charts(section, looks) if section.alignments else [],
        "sharpness": sharpness_strips(section, looks),
        "tables": [table(section, subject) for subject in section.subjects],
        "examples": [example(section, subject) for subject in section.subjects],
        "methods": [(spec, provenance.describe(spec, section)) for spec in section.methods],
        "facts": provenance.facts(section),
        "commands": provenance.commands(section),
        "named_in_python": provenance.named_in_python(section),
    }


def _heading(model: str) -> str:
    """A hub name as it is; a directory by its last part."""
    path = PurePath(model)
    return path.name if path.is_absolute() or len(path.parts) > 2 else model
