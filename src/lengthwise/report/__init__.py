"""One self-contained page of tables and figures, made from run directories alone.

The figures are SVG that Python places and a template draws, with a short script for hovering and for switching curves: the page
is a few hundred kilobytes where a plotting library inlined would add five megabytes, prints, and reads without a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.records.directory import CONFIG
from lengthwise.report.page import page
from lengthwise.report.read import read_run
from lengthwise.report.section import sections
from lengthwise.report.styles import styles
from lengthwise.report.tables import csv_text, markdown

__all__ = ["report"]


def report(run_dirs: Sequence[Path], out: Path) -> Path:
    """Write the page to `out` (.html), and its tables beside it as .md and, of scores, .csv; returns `out`.

    Run directories of the same model and settings become one section, others one each: see `lengthwise.report.section`. A
    directory that `lengthwise analyse` wrote has a section of its own.
    """
    from lengthwise.analysis.page import markdown as analysis_markdown
    from lengthwise.analysis.records import ANALYSIS, read_analysis

    require(len(run_dirs) > 0, "no directory given; name at least one that `lengthwise evaluate` or `lengthwise analyse` wrote")
    require(out.suffix.lower() in (".html", ".htm"), f"the report is a page: give --out a name that ends in .html, not {out}")
    paths = [Path(path) for path in run_dirs]
    analyses = [read_analysis(path) for path in paths if (path / ANALYSIS).is_file()]
    found = sections(read_run(path) for path in paths if (path / CONFIG).exists() or not (path / ANALYSIS).is_file())
    looks = styles(list(dict.fromkeys(spec for section in found for spec in section.methods)))
    scores = [markdown(found, looks)] if found else []
    texts = {
        out: page(found, looks, analyses),
        out.with_suffix(".md"): "\n".join([*scores, *(analysis_markdown.markdown(analysis) for analysis in analyses)]),
    }
    if found:
        texts[out.with_suffix(".csv")] = csv_text(found)
    try:
        for path, text in texts.items():
            write_whole(path, text)
    except OSError as error:
        raise BadInput(f"cannot write {out}: {error.strerror}; give --out a path in a directory you may write to") from None
    return out
