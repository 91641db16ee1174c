"""`lengthwise analyse` and `lengthwise misalignment`: what a model does at length, and what its answers want."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from lengthwise.cli.evaluation import check_names, columns
from lengthwise.cli.options import (
    Device,
    Dtype,
    Json,
    Model,
    Texts,
    TrainLength,
    loaded_model,
    method_option,
    print_json,
    say,
    task_option,
)
from lengthwise.cli.stopping import can_go_on


def analyse(
    model: Model,
    length: Annotated[list[int], typer.Option(help="Length in tokens; repeat for several.")],
    out: Annotated[Path, typer.Option(help="Directory for tables and figures: made, or gone on with.")],
    text: Texts = None,
    task: Annotated[
        list[str] | None, task_option(help="Task whose answers tell whether to sharpen or flatten; repeat for several.")
    ] = None,
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

    check_names((), task or ())
    loaded, tokenizer = loaded_model(model, dtype, device, train_length)
    with can_go_on(out):
        analysis = verb(
            loaded,
            tokenizer,
            length,
            out,
            files=text or (),
            tasks=task or (),
            train_length=train_length,
            sequences=sequences,
            seed=seed,
            name=model,
        )
    if as_json:
        print_json(analysis.to_json())
        return
    answers = (tables.answers(analysis),) if analysis.answers else ()
    for table in (tables.by_length(analysis), tables.temperatures(analysis), *answers):
        print(columns([list(table.head), *map(list, table.rows)]), end="\n\n")
    for line in (*findings(analysis), *tables.notes(analysis)):
        print(line)
    say(f"tables, figures and analysis.md: {out}; `lengthwise report {quote(str(out))} --out report.html` makes a page")


def misalignment(
    model: Model,
    text: Texts = None,
    train_length: TrainLength = None,
    length: Annotated[int | None, typer.Option(help="Longest context; by default the training length.")] = None,
    method: Annotated[str, method_option(help="Method applied throughout.")] = "none",
    pairs: Annotated[int, typer.Option(help="Pairs of readings, two forwards each.")] = 16,
    seed: int = 0,
    dtype: Dtype = "auto",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure how differently a model goes on from a text and from the text's own suffix."""
    from lengthwise.methods.spec import check_spec
    from lengthwise.training.output_alignment.misalignment import misalignment as verb

    check_spec(method)
    loaded, tokenizer = loaded_model(model, dtype, device, train_length)
    measured = verb(
        loaded, tokenizer, files=text or (), train_length=train_length, length=length, pairs=pairs, seed=seed, method=method
    )
    if as_json:
        print_json(asdict(measured))
        return
    for name, mean, (low, high) in (
        ("misalignment (symmetric cross-entropy)", measured.sce, measured.interval),
        ("symmetric KL", measured.kl, measured.kl_interval),
    ):
        print(f"{name:<40}{mean:8.4f} nats (95 % interval {low:.4f} to {high:.4f})")
    contexts = f"{(measured.length + 1) // 2:,} to {measured.length:,} tokens"
    print(f"contexts of {contexts}, {measured.pairs} pairs, method {measured.method}")
