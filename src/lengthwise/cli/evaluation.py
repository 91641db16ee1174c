"""`lengthwise evaluate` and `lengthwise reach`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from lengthwise.cli.options import (
    Device,
    Dtype,
    Force,
    Json,
    Model,
    TrainLength,
    loaded_model,
    method_option,
    print_json,
    say,
    task_option,
)
from lengthwise.cli.stopping import can_go_on
from lengthwise.errors import require

Out = Annotated[Path, typer.Option(help="Run directory: made, or gone on with.")]
INTERVAL = "interval: the longest length that works by all of its 95 % interval ... by a part of it"
# Options without a value
FLAGS = ("--chat", "--force", "--json", "--ray")
Chat = Annotated[bool, typer.Option("--chat", help="Ask in the tokenizer's chat template.")]
BatchTokens = Annotated[int | None, typer.Option(help="Tokens in a batch; by default what suits the device.")]


def evaluate(
    model: Model,
    out: Out,
    task: Annotated[list[str] | None, task_option(help="Task; repeat for several. With --data alone: answer.")] = None,
    method: Annotated[
        list[str] | None, method_option(help="Method, `none`, `truncate`, `hedge` or hedge+METHOD; repeat for several.")
    ] = None,
    length: Annotated[list[int] | None, typer.Option(help="Length in tokens; repeat for several.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Your own files of questions, instead of lengths: FILE or hub:NAME. With lengths: what prompts are made of."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples a cell.")] = 100,
    threshold: Annotated[float, typer.Option(help="Mean over RULER's tasks, 0 to 1, that an effective length needs.")] = 0.856,
    seed: int = 0,
    train_length: TrainLength = None,
    batch_tokens: BatchTokens = None,
    dtype: Dtype = "auto",
    device: Device = None,
    chat: Chat = False,
    force: Force = False,
    ray: Annotated[
        str | None, typer.Option(metavar="[ADDRESS]", help="Run on Ray; without an address on this machine.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score methods by task and length; the same command goes on where it was stopped."""
    from lengthwise.evaluation.evaluate import evaluate as verb
    from lengthwise.records import summarise
    from lengthwise.tasks import ruler

    require(0 < threshold <= 1, f"--threshold is a mean score above 0 and at most 1, not {threshold}")
    own_questions = data is not None and not length
    with_lengths = "with --length, --data is what a task makes its prompts of: name the task (--task), or leave --length out"
    no_task = "give a task (--task NAME), or questions of your own (--data FILE)" if data is None else with_lengths
    require(bool(task) or own_questions, no_task)
    what = "give HOST:PORT, ray://HOST:PORT or auto, or nothing for this machine"
    require(ray is None or _is_address(ray), f"{ray} is not a Ray address; {what}")
    check_names(method or (), task or ())
    loaded, tokenizer, device = _loaded(model, dtype, device, train_length, on_ray=ray is not None)
    with can_go_on(out):
        records = verb(
            loaded,
            tokenizer,
            method or ["none"],
            task or None,
            length or (),
            samples,
            seed,
            out,
            data=data,
            train_length=train_length,
            batch_tokens=batch_tokens,
            name=model,
            chat=chat,
            force=force,
            ray=ray,
            device=device,
        )
    cells = summarise([*records, *ruler.mean_records(records)])
    effective = effective_lengths(cells, threshold)
    if as_json:
        extra = {"ruler": {"threshold": threshold, "effective_length": effective}} if effective else {}
        print_json({"model": model, "out": str(out), "cells": [asdict(cell) for cell in cells], **extra})
    else:
        print(score_table(cells))
        for name, reached in effective.items():
            far = "below the shortest length" if reached is None else f"{reached:,} tokens"
            print(f"RULER's effective length, {name}: {far} (mean of {100 * threshold:g} or more)")
        say(f"records: {out}; `lengthwise report {quote(str(out))} --out report.html` makes a page")


def reach(
    model: Model,
    method: Annotated[list[str] | None, method_option(help="Method beside `none`; repeat for several.")] = None,
    task: Annotated[list[str] | None, task_option(help="Task; repeat for several. By default passkey.")] = None,
    threshold: Annotated[float, typer.Option(help="Mean score, 0 to 1, that counts as working.")] = 0.85,
    longest: Annotated[int, typer.Option(help="Longest length to try, in tokens.")] = 16384,
    samples: Annotated[int, typer.Option(help="Samples at each length.")] = 24,
    out: Annotated[Path | None, typer.Option(help="Run directory, to keep the records and to go on later.")] = None,
    seed: int = 0,
    train_length: TrainLength = None,
    batch_tokens: BatchTokens = None,
    dtype: Dtype = "auto",
    device: Device = None,
    chat: Chat = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the longest length at which a task still works, by doubling and bisection."""
    from lengthwise.evaluation.reach import reach as verb

    check_names(method or (), task or ())
    loaded, tokenizer = loaded_model(model, dtype, device, train_length)
    with can_go_on(out):
        reaches = verb(
            loaded,
            tokenizer,
            method or (),
            task or ("passkey",),
            threshold=threshold,
            longest=longest,
            samples=samples,
            seed=seed,
            out=out,
            train_length=train_length,
            batch_tokens=batch_tokens,
            name=model,
            chat=chat,
            force=force,
        )
    if as_json:
        rows = [{**asdict(reach), "says": reach.says} for reach in reaches]
        print_json({"model": model, "threshold": threshold, "longest": longest, "reach": rows})
    else:
        print(f"{reach_table(reaches)}\n\npercent; a length works from {100 * threshold:g} on; {INTERVAL}")
        if out is not None:
            say(f"records: {out}")


def with_ray_address(arguments: list[str]) -> list[str]:
    """A bare `--ray` means a local one; typer has no option whose value may be left out."""
    if "--ray" not in arguments:
        return arguments
    # Words that are neither options nor values of the option before: MODEL, and where it was given the address
    words = [
        at
        for at, (before, word) in enumerate(itertools.pairwise(arguments), 1)
        if not word.startswith("-") and (not before.startswith("-") or "=" in before or before in FLAGS)
    ]
    after = arguments.index("--ray") + 1
    given = after in words and (len(words) > 1 or _is_address(arguments[after]))
    return arguments if given else [*arguments[:after], "local", *arguments[after:]]


def _is_address(word: str) -> bool:
    return word in ("local", "auto") or ":" in word


def check_names(methods: Sequence[str], tasks: Sequence[str]) -> None:
    """Refuse methods and tasks that do not exist before a model is loaded, which takes seconds or minutes."""
    from lengthwise.evaluation.sweep.questions import tasks_by_name
    from lengthwise.methods.spec import check_spec

    if tasks:
        tasks_by_name(tasks)
    for method in methods:
        check_spec(method, prompts=True)


def _loaded(model: str, dtype: str, device: str | None, train_length: int | None, on_ray: bool) -> tuple[Any, Any, str]:
    """(model, tokenizer, device to answer on); Ray's driver reads the model but leaves GPUs to the workers."""
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    kept = on_ray and not device.startswith("cpu")
    return *loaded_model(model, dtype, "cpu" if on_ray else device, train_length, as_stored=kept), device


def effective_lengths(cells: Sequence[Any], threshold: float) -> dict[str, int | None]:
    """By method, RULER's effective length, where all its tasks were asked."""
    from lengthwise.tasks import ruler

    means: dict[str, dict[int, float]] = {}
    for cell in cells:
        if cell.task == ruler.NAME:
            means.setdefault(cell.method, {})[cell.length] = cell.mean
    return {method: ruler.effective_length(by_length, threshold) for method, by_length in means.items()}


def score_table(cells: list[Any]) -> str:
    """One line a task and length, one column a method: the mean in percent and its 95 % interval."""
    from lengthwise.report.formatting import interval

    methods = list(dict.fromkeys(cell.method for cell in cells))
    by_key = {(cell.task, cell.data, cell.length, cell.method): cell for cell in cells}
    rows = [["task", "tokens", *methods]]
    tasks = list(dict.fromkeys((cell.task, cell.data) for cell in cells))
    asked = dict.fromkeys((cell.task, cell.data, cell.length) for cell in cells)
    # They were asked length by length; down one task a reader sees where it fails
    for task, data, length in sorted(asked, key=lambda key: tasks.index(key[:2])):
        row = [f"{task} {data}".strip(), f"{length:,}"]
        scores = (by_key.get((task, data, length, method)) for method in methods)
        rows.append([*row, *("-" if cell is None else interval(cell) for cell in scores)])
    counts = sorted({cell.n for cell in cells})
    samples = f"{' or '.join(map(str, counts))} sample{'' if counts == [1] else 's'}"
    return f"{columns(rows)}\n\npercent (95 % interval), {samples} a cell"


def reach_table(reaches: list[Any]) -> str:
    """One line a method and task: the longest length that works, and the scores there and above."""
    rows = [["method", "task", "reach", "interval", "score there", "score above"]]
    for reach in reaches:
        there = "-" if reach.length is None else f"{100 * reach.score:.0f} at {reach.length:,}"
        above = "-" if reach.next_length is None else f"{100 * reach.next_score:.0f} at {reach.next_length:,}"
        low, high = ("-" if end is None else f"{end:,}" for end in (reach.low, reach.high))
        rows.append([reach.method, reach.task, reach.says, f"{low} ... {high}", there, above])
    return columns(rows)


def columns(rows: list[list[str]]) -> str:
    """Rows as text, each column as wide as what it holds."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
