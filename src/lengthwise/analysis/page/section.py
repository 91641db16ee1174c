"""An analysis as a section of a page."""

from __future__ import annotations

from typing import Any

from lengthwise.analysis.page import tables
from lengthwise.analysis.page.figures import figures
from lengthwise.analysis.page.findings import findings
from lengthwise.analysis.page.markdown import CAPTIONS, NO_BIAS, markdown
from lengthwise.analysis.page.provenance import command, facts
from lengthwise.analysis.records import Analysis
from lengthwise.report.section import Section, model_heading


def analysis_section(analysis: Analysis) -> Section:
    return Section(
        heading=model_heading(str(analysis.model["name"])),
        shows="attention by length",
        template="analysis.html",
        content=_content(analysis),
        markdown=markdown(analysis),
    )


def _content(analysis: Analysis) -> dict[str, Any]:
    by_name = {figure.name: figure for figure in figures(analysis)}
    return {
        "train_length": analysis.train_length,
        "lengths": [one.length for one in analysis.lengths],
        "findings": findings(analysis),
        "captions": CAPTIONS,
        "no_bias": NO_BIAS,
        "sharpness": (by_name["sharpness"], tables.by_length(analysis)),
        "heads": (by_name["heads"], tables.dispersing(analysis)),
        "temperatures": (by_name.get("temperatures"), tables.temperatures(analysis), tables.notes(analysis)),
        "qq": (by_name["qq"], tables.first_layer(analysis)),
        "bias": ([figure for name, figure in by_name.items() if name.startswith("bias")], tables.sights(analysis)),
        "counted": tables.LAYERS_AND_HEADS,
        "facts": facts(analysis),
        "command": command(analysis),
    }
