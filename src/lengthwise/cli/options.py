"""Options that several commands share, and how commands speak: results to standard output, all else to standard error."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from lengthwise.cli import completion

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A directory, a hub name, a GGUF file, or `embedded`.", autocompletion=completion.models
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...; by default a GPU if there is one.")]
TrainLength = Annotated[int | None, typer.Option(help="Length the model was trained on; by default what is known of it.")]
Texts = Annotated[list[Path] | None, typer.Option(help="Text file to read; by default prose that ships along.")]
Force = Annotated[bool, typer.Option(help="Accept what was not made for this model.")]
MOST_LETTERS = 1200  # of a line that is said
method_option = partial(typer.Option, autocompletion=completion.methods)
task_option = partial(typer.Option, autocompletion=completion.tasks)


def say(line: str) -> None:
    """Print one line to standard error: line breaks in a name are shown escaped, a line without end is cut in its middle."""
    printed = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in f"lengthwise: {line}")
    if len(printed) > MOST_LETTERS:
        printed = f"{printed[:700]} ... {printed[705 - MOST_LETTERS :]}"
    print(printed, file=sys.stderr, flush=True)


def loaded_model(name: str, dtype: str, device: str | None, train_length: int | None, **how: Any) -> tuple[Any, Any]:
    """(model, tokenizer). Says which training length is taken, where neither the user nor the model's config tells it."""
    from lengthwise.models.anatomy import anatomy_of
    from lengthwise.models.load import load

    model, tokenizer = load(name, dtype, device, **how)
    if line := anatomy_of(model, train_length).trained.said:
        say(line)
    return model, tokenizer


def print_json(document: Any) -> None:
    """Print a document to standard output; JSON has neither NaN nor infinity, which become null."""
    print(json.dumps(_finite(document), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
