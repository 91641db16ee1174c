"""docs/serving.md: its table against what `export` does, without running an engine."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import lengthwise as lw
from lengthwise.calibration.export.export import TARGETS
from lengthwise.calibration.export.plan import Plan, make_plan
from tests.conftest import TRAIN_LENGTH, shared

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
LONG = 4 * TRAIN_LENGTH


def rows() -> list[Any]:
    lines = [line.strip("| \n").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    # The first table; what was measured stands in another
    lines = [cells for cells in lines if len(cells) == 2 + len(TARGETS)]
    header, _, *cells = [[cell.strip() for cell in line] for line in lines]
    assert header == ["method", "model", *TARGETS]
    return [pytest.param(dict(zip(header, row, strict=True)), id=f"{row[0]} {row[1]}") for row in cells]


def what_happens(plan: Plan, to: str) -> str:
    config = "keys" if to == "gguf" else "config"
    return ", ".join([*[config] * (plan.rope is not None), *["weights"] * plan.folds])


@pytest.mark.parametrize("row", rows())
def test_the_table_says_what_export_does(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = re.findall(r"`([^`]+)`", row["method"])[0]
    model = shared(row["model"])
    try:
        plan = make_plan(model, spec, LONG, TRAIN_LENGTH)
    except lw.BadInput:
        plan = None
    for to, home in TARGETS.items():
        target = import_module(home)
        # The engines themselves are for tests/engines
        if hasattr(target, "needed"):
            monkeypatch.setattr(target, "needed", lambda *_: None)
        told = "refused"
        if plan is not None:
            try:
                target.check(plan)
                told = what_happens(plan, to)
            except lw.BadInput:
                pass
        assert row[to] == told, to
