"""`lengthwise demo`: the shipped model fails at length, and works again once calibrated, in minutes.

A T5 trained on at most 512 tokens is calibrated at a few lengths, without fine-tuning, and asked to find a number in prose and
a line in a record: as it is, given the end of the input only, and with the temperature that was found. In the end `recommend`
says what to use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.evaluation import score_table
from lengthwise.cli.options import Device, Json, print_json, say
from lengthwise.cli.stopping import can_go_on
from lengthwise.common.files import check_writable

if TYPE_CHECKING:
    from lengthwise.methods.temperature.aligned import Alignment
    from lengthwise.records import Record

MODEL, PAGE = "embedded", "report.html"


@dataclass(frozen=True)
class DemoPlan:
    """The tasks, lengths and methods of a demo."""

    tasks: Sequence[str]
    lengths: Sequence[int]
    calibrated: Sequence[int]
    statistics: Sequence[str]  # an alignment each
    methods: Sequence[str]  # beside the alignments
    samples: int = 12
    recommended: int | None = 2048  # the length that a recommendation is made for
    minutes: float = 1.0  # for it


SHORT = DemoPlan(("passkey", "line"), (512, 1024, 2048, 4096), (2048, 4096), ("pmax",), ("none", "truncate"))
FULL = DemoPlan(
    ("passkey", "line", "topic"),
    (512, 1024, 2048, 4096, 8192, 15000),
    (2048, 4096, 8192, 15000),
    ("pmax", "entropy"),
    ("none", "truncate", "log"),
)


def demo(
    out: Annotated[Path, typer.Option(help="Directory for what the demo writes.")] = Path("demo"),
    full: Annotated[bool, typer.Option("--full", help="Also topic, the log law, the entropy, and lengths to 15,000.")] = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Show the shipped model failing at length and working again, in minutes."""
    from lengthwise.records import summarise

    # A full demo is another run than a short one
    out = out / "full" if full else out
    check_writable(out / PAGE)
    with can_go_on(out):
        records, says = run_demo(out, FULL if full else SHORT, device)
    cells = summarise(records)
    if as_json:
        results = {"cells": [asdict(cell) for cell in cells], "recommendation": says}
        print_json({"model": MODEL, "out": str(out), "report": str(out / PAGE), **results})
    else:
        print("\n".join([score_table(cells), *(["", *says] if says else [])]))
        say(f"the page: {out / PAGE}")


def run_demo(out: Path, plan: DemoPlan, device: str | None = None) -> tuple[list[Record], list[str]]:
    """Write alignments, a run directory, a recommendation and a page under `out`; started again, it goes on where it was.

    Gives the records, and what is recommended.
    """
    from lengthwise.evaluation.evaluate import evaluate
    from lengthwise.evaluation.recommendation.recommend import recommend
    from lengthwise.evaluation.recommendation.section import recommendation_section
    from lengthwise.models.load import load
    from lengthwise.report import write_page
    from lengthwise.report.runs.group import read_run
    from lengthwise.report.runs.section import run_sections

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
    sections, says = run_sections([read_run(out / "run")]), list[str]()
    if plan.recommended is not None:
        how: dict[str, Any] = {"tasks": plan.tasks, "minutes": plan.minutes, "name": MODEL}
        says += recommend(model, tokenizer, plan.recommended, out=out / "recommended", **how).says
        sections.append(recommendation_section(out / "recommended"))
    write_page(sections, out / PAGE)
    return records, says


def _alignment(model: Any, tokenizer: Any, plan: DemoPlan, statistic: str, path: Path) -> Alignment:
    """Read what an earlier demo calibrated, or calibrate."""
    from lengthwise.calibration.calibrate import calibrate
    from lengthwise.methods.temperature.aligned import Alignment

    if path.exists():
        return Alignment.load(path)
    alignment = calibrate(model, tokenizer, list(plan.calibrated), statistic=statistic)
    alignment.save(path)
    return alignment
