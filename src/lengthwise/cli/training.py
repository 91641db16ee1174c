"""`lengthwise train`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from lengthwise.cli.options import Json, print_json, say


def train(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="A directory or a hub name.")] = None,
    out: Annotated[str | None, typer.Option(help="Directory of the run; the same command goes on in it.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings; flags win.")] = None,
    adjustment: Annotated[
        str | None, typer.Option(help="Method in force: none, clex, eabf, yarn:factor=4, ..., or longqlora.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Weight of the misalignment; 0 trains without. [0.1]")] = None,
    train_length: Annotated[int | None, typer.Option(help="Tokens of one reading; by default the model's own.")] = None,
    sampling: Annotated[
        str | None, typer.Option(help="1..L/2, 1..L/4, L/4..L/2 or 1..L: how far apart readings start.")
    ] = None,
    overlap: Annotated[str | None, typer.Option(help="whole or half: which positions of both readings count.")] = None,
    compare: Annotated[
        str | None, typer.Option(help="sce or kl: by cross-entropy, as the paper, or by the symmetric KL. [sce]")
    ] = None,
    data: Annotated[list[str] | None, typer.Option(help="Text file, one document.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Hub dataset, directory or file for the package datasets.")] = None,
    dataset_config: Annotated[str | None, typer.Option(help="Configuration of the dataset.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of the dataset. [train]")] = None,
    text_field: Annotated[str | None, typer.Option(help="Column of the dataset. [text]")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates of the weights. [200]")] = None,
    batch: Annotated[int | None, typer.Option(help="Rows of one forward in one process. [1]")] = None,
    accumulation: Annotated[int | None, typer.Option(help="Forwards of one step. [1]")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Constant after the warm-up. [2e-5]")] = None,
    warmup: Annotated[int | None, typer.Option(help="Steps of warm-up. [20]")] = None,
    lora_rank: Annotated[int | None, typer.Option(help="0 trains all weights. [0; longqlora 64]")] = None,
    shifted_sparse: Annotated[
        bool | None, typer.Option("--shifted-sparse/--no-shifted-sparse", help="Train within shifted groups of tokens.")
    ] = None,
    quantise: Annotated[bool | None, typer.Option("--quantise/--no-quantise", help="4-bit weights below LoRA.")] = None,
    stretch: Annotated[float | None, typer.Option(help="Training lengths that clex learns up to. [4]")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, or bfloat16 to compute in it. [float32]")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default a GPU if there is one.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn. [0]")] = None,
    save_every: Annotated[int | None, typer.Option(help="Steps between checkpoints. [50]")] = None,
    as_json: Json = False,
) -> None:
    """Fine-tune a causal model with the misalignment of its outputs in the loss."""
    # First of all: what was parsed is all that is defined here
    flags = {name: value for name, value in locals().items() if name not in ("config", "as_json")}
    from lengthwise.training.settings import read_yaml, settings_of
    from lengthwise.training.train import train_with

    given = {name: value for name, value in flags.items() if value is not None and value != []}
    written = {} if config is None else {str(key).replace("-", "_"): value for key, value in read_yaml(config).items()}
    settings = settings_of({**written, **given})
    # One word for all processes that `accelerate launch` started
    speaks = os.environ.get("RANK", "0") == "0"
    try:
        trained = train_with(settings)
    except KeyboardInterrupt:
        if speaks:
            _say_where_it_goes_on(settings)
        raise
    if not speaks:
        return
    if as_json:
        print_json(asdict(trained))
    else:
        _print(trained)


def _say_where_it_goes_on(settings: Any) -> None:
    from lengthwise.training.adjustment import learnt_in
    from lengthwise.training.directory import Directory

    directory = Directory(Path(settings.out))
    if not (directory.path / "config.json").exists():
        return
    checkpoint = directory.last_checkpoint(learnt_in(settings.adjustment))
    if checkpoint is None:
        say(f"no checkpoint is in {settings.out} yet; the same command begins again at step 1 of {settings.steps}")
    else:
        done = f"step {checkpoint.name.rpartition('-')[2]} of {settings.steps}"
        say(f"what was finished is in {settings.out}; the same command goes on after {done}")


def _print(trained: Any) -> None:
    if trained.losses:
        _print_losses(trained.losses[:1] + trained.losses[1:][-1:])
    else:
        say(f"{Path(trained.model).with_name('losses.jsonl')} is gone, and with it the losses")
    print(f"{trained.model}: use it with the method {trained.method}")


def _print_losses(lines: list[dict[str, Any]]) -> None:
    print(f"{'step':>6}{'loss':>10}{'cross-entropy':>16}{'misalignment':>15}")
    for line in lines:
        apart = f"{line['misalignment']:>15.4f}" if "misalignment" in line else f"{'-':>15}"
        print(f"{line['step']:>6}{line['loss']:>10.4f}{line['cross_entropy']:>16.4f}{apart}")
