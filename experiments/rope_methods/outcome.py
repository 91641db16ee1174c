"""What the comparison has shown so far: a JSON document, a page and its pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.rope_methods import findings
from experiments.rope_methods.charts import charts
from experiments.rope_methods.page import page
from experiments.rope_methods.refused import read_refused
from experiments.rope_methods.results import Results
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.rope_methods/1"


def write_outcome(folder: Path, results: Results, facts: Mapping[str, Any]) -> str:
    """Writes rope_methods.json, rope_methods.md and the pictures; returns the page."""
    refused = read_refused(folder)
    # Where most curves are one and the same there is nothing to see
    lengths = [length for length in results.lengths if findings.unchanged(results, length) is None]
    pictures = {name: svg for length in lengths for name, svg in charts(results, length).items()}
    text = page(results, facts, refused, list(pictures), _passkey(folder))
    document = {
        "format": FORMAT,
        **facts,
        "refused": refused,
        "rows": [asdict(row) for length in results.lengths for row in results.rows(length)],
        "unchanged": [_unchanged(results, length) for length in results.lengths if length not in lengths],
        "best": [_best(one) for length in results.lengths if (one := findings.best(results, length)) is not None],
        "combinations": [_against(one) for length in results.lengths for one in findings.combinations(results, length)],
        "temperatures": [
            {**_against(one), "temperature": law}
            for length in results.lengths
            for row in findings.temperatures(results, length).values()
            for law, one in row.items()
        ],
        "calibrated": [_against(one) for length in results.lengths for one in findings.calibrated(results, length)],
    }
    for name, svg in pictures.items():
        write_whole(folder / name, svg)
    write_whole(folder / "rope_methods.json", json.dumps(document, indent=1) + "\n")
    write_whole(folder / "rope_methods.md", text)
    return text


def _passkey(folder: Path) -> str | None:
    """The page of `passkey` in the same folder, without its title."""
    file = folder / "passkey" / "passkey.md"
    return file.read_text().partition("\n")[2].strip() if file.exists() else None


def _unchanged(results: Results, length: int) -> dict[str, Any]:
    same = findings.unchanged(results, length) or []
    return {"length": length, "methods": same, "of": len(results.methods(length)) - 1}


def _best(one: findings.Best) -> dict[str, Any]:
    return {
        "length": one.length,
        "method": one.row.method,
        "spec": one.row.spec,
        "target": findings.TARGET,
        "reached": one.reached,
    }


def _against(one: findings.Against) -> dict[str, Any]:
    return {**asdict(one), "verdict": one.verdict}
