"""`lengthwise train`, whose options are the fields of training/settings.py."""

from __future__ import annotations

import inspect
import os
import types
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typing_extensions import Doc

from lengthwise.cli.options import Json, print_json, say
from lengthwise.training.settings import Settings, read_yaml, settings_of

KEYWORD = inspect.Parameter.KEYWORD_ONLY
Config = Annotated[Path | None, typer.Option(help="YAML file of settings; flags win.")]


def train(config: Path | None = None, as_json: bool = False, **flags: Any) -> None:
    """Fine-tune a causal model with the misalignment of its outputs in the loss."""
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


def _parameters() -> list[inspect.Parameter]:
    """One parameter a setting; all default to None, so that only what was given wins over the YAML file."""
    hints = get_type_hints(Settings, include_extras=True)
    parameters = [_parameter(field.name, hints[field.name], field.default) for field in fields(Settings)]
    parameters.insert(2, inspect.Parameter("config", KEYWORD, default=None, annotation=Config))
    return [*parameters, inspect.Parameter("as_json", KEYWORD, default=False, annotation=Json)]


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    words = next(mark.documentation for mark in hint.__metadata__ if isinstance(mark, Doc))
    if default not in (MISSING, None, ()):
        words = words.removesuffix(".") + f"; by default {f'{default:g}' if isinstance(default, float) else default}."
    info = typer.Argument(metavar="MODEL", help=words) if name == "model" else typer.Option(help=words)
    return inspect.Parameter(name, KEYWORD, default=None, annotation=Annotated[_plain(hint) | None, info])


def _plain(hint: Any) -> Any:
    """The kind of a setting as the command line reads it: int, float, str, bool or a list of texts."""
    origin = get_origin(hint)
    if origin in (Annotated, Union, types.UnionType):
        return _plain(get_args(hint)[0])
    return {Literal: str, tuple: list[str]}.get(origin, hint)


# What typer reads in place of `flags`
train.__signature__ = inspect.Signature(parameters := _parameters())  # type: ignore[attr-defined]
train.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def _say_where_it_goes_on(settings: Any) -> None:
    from lengthwise.training.adjustment import learnt_method
    from lengthwise.training.directory import TrainingDirectory, step_of

    directory = TrainingDirectory(Path(settings.out))
    if not (directory.path / "config.json").exists():
        return
    checkpoint = directory.last_checkpoint(learnt_method(settings.adjustment))
    if checkpoint is None:
        say(f"no checkpoint is in {settings.out} yet; the same command begins again at step 1 of {settings.steps}")
    else:
        done = f"step {step_of(checkpoint)} of {settings.steps}"
        say(f"what was finished is in {settings.out}; the same command goes on after {done}")


def _print(trained: Any) -> None:
    if trained.losses:
        print(f"{'step':>6}{'loss':>10}{'cross-entropy':>16}{'misalignment':>15}")
    else:
        say(f"{Path(trained.model).with_name('losses.jsonl')} is gone, and with it the losses")
    # The first and the last, which may be one
    for line in trained.losses[:1] + trained.losses[1:][-1:]:
        apart = f"{line['misalignment']:>15.4f}" if "misalignment" in line else f"{'-':>15}"
        print(f"{line['step']:>6}{line['loss']:>10.4f}{line['cross_entropy']:>16.4f}{apart}")
    print(f"{trained.model}: use it with the method {trained.method}")
