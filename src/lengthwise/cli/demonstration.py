"""`lengthwise demo`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli.evaluation import score_table
from lengthwise.cli.options import Device, Json, check_writable, print_json, say


def demo(
    out: Annotated[Path, typer.Option(help="Directory for what the demo writes.")] = Path("demo"),
    full: Annotated[bool, typer.Option("--full", help="Also topic, the log law, the entropy, and lengths to 15,000.")] = False,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Show the shipped model failing at length and working again, in minutes."""
    from lengthwise.cli.demo import demo as verb
    from lengthwise.records import summarise

    # A full demo is another run than a short one
    out = out / "full" if full else out
    check_writable(out / "report.html")
    shown = verb(out, full=full, device=device)
    cells = summarise(shown.records)
    if as_json:
        print_json({"model": "embedded", "out": str(out), "report": str(shown.report), "cells": [asdict(c) for c in cells]})
    else:
        print(score_table(cells))
        say(f"the page: {shown.report}")
