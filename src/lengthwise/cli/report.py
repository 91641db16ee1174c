"""`lengthwise report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli.options import say
from lengthwise.errors import require


def report(
    run_dirs: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR ...", help="Directories that `evaluate`, `analyse` or `recommend` wrote.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write; tables lie beside it as .md and .csv.")],
) -> None:
    """Make one page of curves and tables from runs, analyses and recommendations."""
    say(f"written: {write_report(run_dirs, out)}")


def write_report(directories: Sequence[Path], out: Path) -> Path:
    """Write one page of recommendations, run directories and analyses; a directory that is several has a section of each."""
    from lengthwise.analysis.records import ANALYSIS, read_analysis
    from lengthwise.analysis.section import analysis_section
    from lengthwise.evaluation.recommendation.section import RECIPE, recommendation_section
    from lengthwise.records.directory import CONFIG
    from lengthwise.report import write_page
    from lengthwise.report.runs.group import read_run
    from lengthwise.report.runs.section import run_sections

    require(
        len(directories) > 0, "no directory given; name at least one that `lengthwise evaluate`, `analyse` or `recommend` wrote"
    )
    analyses = [read_analysis(path) for path in directories if (path / ANALYSIS).is_file()]
    recommended = [recommendation_section(path) for path in directories if (path / RECIPE).is_file()]
    others = {path for path in directories if (path / ANALYSIS).is_file() or (path / RECIPE).is_file()}
    runs = [read_run(path) for path in directories if (path / CONFIG).exists() or path not in others]
    return write_page([*recommended, *run_sections(runs), *map(analysis_section, analyses)], out)
