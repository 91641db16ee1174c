"""`lengthwise recommend`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from lengthwise.cli.evaluation import BatchTokens, check_names
from lengthwise.cli.options import Device, Dtype, Json, Model, TrainLength, loaded_model, print_json, say, task_option
from lengthwise.cli.stopping import can_go_on
from lengthwise.common.files import check_writable


def recommend(
    model: Model,
    length: Annotated[int, typer.Option(help="Length of your inputs, in tokens.")],
    out: Annotated[Path, typer.Option(help="Folder for recipe.json and the records: made, or gone on with.")],
    task: Annotated[list[str] | None, task_option(help="Task; repeat for several. By default what the model can do.")] = None,
    data: Annotated[Path | None, typer.Option(help="Your own questions, for one task: FILE or hub:NAME.")] = None,
    text: Annotated[list[Path] | None, typer.Option(help="Your own text, instead of questions; repeat for several.")] = None,
    minutes: Annotated[float, typer.Option(help="Time to take, once the model is loaded.")] = 10.0,
    seed: int = 0,
    train_length: TrainLength = None,
    batch_tokens: BatchTokens = None,
    dtype: Dtype = "auto",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Try what could help this model at this length, and say what does."""
    from lengthwise.common.text import read_texts
    from lengthwise.evaluation.recommendation.recommend import recommend as verb
    from lengthwise.methods.spec import TRUNCATE

    check_names((), task or ())
    check_writable(out / "recipe.json")
    own_text = read_texts(text) if text else None
    loaded, tokenizer = loaded_model(model, dtype, device, train_length)
    with can_go_on(out):
        recipe = verb(
            loaded,
            tokenizer,
            length,
            tasks=task or (),
            data=data,
            text=own_text,
            minutes=minutes,
            seed=seed,
            out=out,
            train_length=train_length,
            batch_tokens=batch_tokens,
            name=model,
        )
    if as_json:
        print_json(recipe.to_json())
    else:
        print("\n".join(recipe.says))
        written = out / "recipe.json"
        use = "" if recipe.method == TRUNCATE else f"use it as --method {quote(f'@{written}')}; "
        say(f"written: {written}; {use}`lengthwise report {quote(str(out))} --out page.html` makes a page")
