"""What question answering has shown so far, as a JSON document, a page and a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments._lib.draw import save
from experiments.attention_alignment.by_place import gain, numbers, tokens
from experiments.attention_alignment.contenders import temperatures
from experiments.attention_alignment.curve import curve
from experiments.attention_alignment.facts import short_name
from experiments.attention_alignment.paper_questions import POSITIONS
from experiments.attention_alignment.questions_page import PLAIN, page
from experiments.attention_alignment.results import Results
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.questions/1"


def write_outcome(folder: Path, name: str, results: Results, facts: Mapping[str, Any]) -> str:
    """Writes NAME.json, NAME.md and figures/NAME.svg and .png; returns the page."""
    taus = temperatures(sorted({tokens(results, n) for n in numbers(results)}), results.train_length, folder)
    document = {
        "format": FORMAT,
        **facts,
        "cells": [asdict(cell) for cell in results.cells.values()],
        "gains": _gains(results),
        "temperatures": taus,
    }
    for ending in ("svg", "png"):
        save(curve(results, _title(facts)), folder / "figures" / f"{name}.{ending}")
    text = page(results, facts, taus, f"figures/{name}.svg")
    write_whole(folder / f"{name}.json", json.dumps(document, indent=1) + "\n")
    write_whole(folder / f"{name}.md", text)
    return text


def _title(facts: Mapping[str, Any]) -> str:
    return f"Lost in the middle: {short_name(facts['model']['name'])}, {next(iter(facts['materials'].values()))}"


def _gains(results: Results) -> list[dict[str, Any]]:
    """Of every method over the plain model: at every place, and (position None) over all."""
    found = []
    for method in (name for name in results.methods if name != PLAIN):
        for documents in numbers(results):
            for position in (*POSITIONS[documents], None):
                pair = gain(results, method, PLAIN, documents, None if position is None else [position])
                if pair is not None:
                    found.append({"method": method, "documents": documents, "position": position, **asdict(pair)})
    return found
