"""The effect in minutes, on the model that ships with the package: it fails at length, and works again once calibrated.

A T5 trained on at most 512 tokens is calibrated at a few lengths, without fine-tuning, and asked to find a number in prose and
a line in a record: as it is, given the end of the input only, and with the temperature that was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.calibration.calibrate import calibrate
from lengthwise.evaluation.evaluate import evaluate
from lengthwise.methods.temperature.aligned import Alignment
from lengthwise.models.load import load
from lengthwise.records import Record
from lengthwise.report import write_page
from lengthwise.report.runs.group import read_run
from lengthwise.report.runs.section import run_sections

MODEL = "embedded"


@dataclass(frozen=True)
class Plan:
    """What a demo shows."""

    tasks: Sequence[str]
    lengths: Sequence[int]
    calibrated: Sequence[int]
    statistics: Sequence[str]  # an alignment each
    methods: Sequence[str]  # beside the alignments
    samples: int = 12


SHORT = Plan(("passkey", "line"), (512, 1024, 2048, 4096), (2048, 4096), ("pmax",), ("none", "truncate"))
FULL = Plan(
    ("passkey", "line", "topic"),
    (512, 1024, 2048, 4096, 8192, 15000),
    (2048, 4096, 8192, 15000),
    ("pmax", "entropy"),
    ("none", "truncate", "log"),
)


@dataclass(frozen=True)
class Shown:
    """What a demo found, and where its page is."""

    records: list[Record]
    report: Path


def demo(out: Path, full: bool = False, plan: Plan | None = None, device: str | None = None) -> Shown:
    """Under `out`: the alignments, the run directory, the page. Stopped and started again, it goes on where it was."""
    plan = plan or (FULL if full else SHORT)
    model, tokenizer = load(MODEL, device=device)
    methods: dict[str, Any] = {name: name for name in plan.methods}
    for statistic in plan.statistics:
        methods[f"{statistic} aligned"] = _alignment(model, tokenizer, plan, statistic, out / f"{statistic}.json")
    records: list[Record] = []
    for task in plan.tasks:
        # How sharp attention is hardly depends on the task: the first one tells
        sharpness = task == plan.tasks[0]
        records += evaluate(
            model, tokenizer, methods, [task], plan.lengths, plan.samples, out=out / "run", name=MODEL, sharpness=sharpness
        )
    return Shown(records, write_page(run_sections([read_run(out / "run")]), out / "report.html"))


def _alignment(model: Any, tokenizer: Any, plan: Plan, statistic: str, path: Path) -> Alignment:
    """What an earlier demo found, or a new calibration."""
    if path.exists():
        return Alignment.load(path)
    alignment = calibrate(model, tokenizer, list(plan.calibrated), statistic=statistic)
    alignment.save(path)
    return alignment
