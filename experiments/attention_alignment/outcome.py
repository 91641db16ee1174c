"""What the retrieval experiment has shown so far, as a JSON document and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.attention_alignment.must_show import must_show
from experiments.attention_alignment.page import page
from experiments.attention_alignment.results import Results
from experiments.attention_alignment.scopes import comparisons, verdict
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.retrieval/1"


def write_outcome(
    folder: Path, results: Results, facts: Mapping[str, Any], temperatures: Mapping[str, Mapping[int, list[float]]]
) -> str:
    """Writes retrieval.json and retrieval.md; returns the page."""
    compared, shown = comparisons(results), must_show(results)
    document = {
        "format": FORMAT,
        **facts,
        "cells": [asdict(cell) for cell in results.cells.values()],
        "temperatures": temperatures,
        "scopes": [{**asdict(one), "best": one.best} for one in compared],
        "which_scope": verdict(compared),
        "must_show": [asdict(one) for one in shown],
    }
    text = page(results, facts, temperatures, compared, shown)
    write_whole(folder / "retrieval.json", json.dumps(document, indent=1) + "\n")
    write_whole(folder / "retrieval.md", text)
    return text
