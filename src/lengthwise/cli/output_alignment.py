"""`lengthwise misalignment`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from lengthwise.cli import completion
from lengthwise.cli.options import Device, Dtype, Json, Model, Texts, TrainLength, print_json


def misalignment(
    model: Model,
    text: Texts = None,
    train_length: TrainLength = None,
    length: Annotated[int | None, typer.Option(help="Longest context; by default the training length.")] = None,
    method: Annotated[str, typer.Option(help="Method applied throughout.", autocompletion=completion.methods)] = "none",
    pairs: Annotated[int, typer.Option(help="Pairs of readings, two forwards each.")] = 16,
    seed: int = 0,
    dtype: Dtype = "auto",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure how differently a model goes on from a text and from the text's own suffix."""
    from lengthwise.models.load import load
    from lengthwise.training.output_alignment.misalignment import misalignment as verb

    loaded, tokenizer = load(model, dtype, device)
    measured = verb(
        loaded,
        tokenizer,
        files=text or (),
        train_length=train_length,
        length=length,
        pairs=pairs,
        seed=seed,
        method=method,
    )
    if as_json:
        print_json(asdict(measured))
    else:
        _print(measured)


def _print(measured: Any) -> None:
    for name, mean, (low, high) in (
        ("misalignment (symmetric cross-entropy)", measured.sce, measured.interval),
        ("symmetric KL", measured.kl, measured.kl_interval),
    ):
        print(f"{name:<40}{mean:8.4f} nats (95 % interval {low:.4f} to {high:.4f})")
    contexts = f"{(measured.length + 1) // 2:,} to {measured.length:,} tokens"
    print(f"contexts of {contexts}, {measured.pairs} pairs, method {measured.method}")
