"""`lengthwise analyse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli.evaluation import columns
from lengthwise.cli.options import Device, Dtype, Json, Model, Texts, TrainLength, print_json, say


def analyse(
    model: Model,
    length: Annotated[list[int], typer.Option(help="Length in tokens; repeat for several.")],
    out: Annotated[Path, typer.Option(help="Directory for tables and figures: made, or gone on with.")],
    text: Texts = None,
    train_length: TrainLength = None,
    sequences: Annotated[int, typer.Option(help="Long sequences to average over.")] = 1,
    seed: int = 0,
    dtype: Dtype = "auto",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Show how attention spreads at length, which heads lose it, and what a temperature will do."""
    from lengthwise.analysis import tables
    from lengthwise.analysis.analyse import analyse as verb
    from lengthwise.analysis.section import findings
    from lengthwise.models.load import load

    loaded, tokenizer = load(model, dtype, device)
    try:
        analysis = verb(
            loaded,
            tokenizer,
            length,
            out,
            files=text or (),
            train_length=train_length,
            sequences=sequences,
            seed=seed,
            name=model,
        )
    except KeyboardInterrupt:
        say(f"what was finished is in {out}; the same command goes on from there")
        raise
    if as_json:
        print_json(analysis.to_json())
        return
    for table in (tables.by_length(analysis), tables.temperatures(analysis)):
        print(columns([list(table.head), *map(list, table.rows)]), end="\n\n")
    for line in (*findings(analysis), *tables.notes(analysis)):
        print(line)
    say(f"tables, figures and analysis.md: {out}; `lengthwise report {out} --out report.html` makes a page")
