"""Entropy Invariance's rows over seeds, by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from experiments.entropy_seeds import page


def document(seed: int, plain: float, scaled: float, share: float) -> dict[str, Any]:
    """Plain and scaled logarithms of perplexity; the paper says that the scale helps."""
    rows = [(None, "gau", plain, "20"), (128.0, "gau + CosScale 128", scaled, "10")]
    cells = [
        {"method": "gau", "cos": cos, "law": None, "length": 4096, "perplexity": math.exp(nll), "paper": paper, "label": label}
        for cos, label, nll, paper in rows
    ]
    layers = [[dict.fromkeys(page.SHARES, value)] for value in (0.2, share)]
    rotation = [{"scale": scale, "layers": own} for scale, own in zip((16.0, 128.0), layers, strict=True)]
    about = {"format": page.FORMAT, "seed": seed, "command": "as typed", "made_with": {}, "models": {"rope": {"steps": 6}}}
    return {**about, "cells": cells, "rotation": rotation}


def summary(folder: Path, documents: list[dict[str, Any]]) -> dict[str, Any]:
    for one in documents:
        (folder / f"seed-{one['seed']}.json").write_text(json.dumps(one))
    page.write_pages(folder, folder)
    assert "Theorem 3.5" in (folder / page.PAGE).read_text()
    return dict(json.loads((folder / page.SUMMARY).read_text()))


def test_ratios_and_shares_are_students_over_seeds(tmp_path: Path) -> None:
    """Differences of -1.1, -1.2 and -1.3 have a standard error of 0.1 / sqrt 3, and Student's factor is 4.3027."""
    found = summary(tmp_path, [document(seed, 4.0 + seed, 2.9 + 0.9 * seed, 0.5 + 0.1 * seed) for seed in range(3)])
    (one,) = found["compared"]
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert [one[key] for key in ("value", "low", "high")] == pytest.approx([math.exp(-1.2 + k * half) for k in (0, -1, 1)])
    assert (one["paper"], one["verdict"], one["seeds"]) == (0.5, "confirmed", 3)
    assert found["pairs"] == {"4096": {"confirmed": 1}}
    assert found["noise"]["4096"] == pytest.approx(math.sqrt((1 + 0.9**2) / 2))
    assert found["rotation"][1]["more"]["value"] == pytest.approx(0.4)


@pytest.mark.parametrize(("scaled", "verdict"), [((5.0, 5.1, 5.2), "refuted"), ((2.0, 4.1, 6.0), "undecided")])
def test_a_verdict_can_fail(scaled: tuple[float, ...], verdict: str, tmp_path: Path) -> None:
    found = summary(tmp_path, [document(seed, 4.0, nll, 0.5) for seed, nll in enumerate(scaled)])
    assert [one["verdict"] for one in found["compared"]] == [verdict]
