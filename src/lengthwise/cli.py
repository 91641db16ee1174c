"""The command line: parse, call a verb, print. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from lengthwise.errors import BadInput
from lengthwise.version import __version__

app = typer.Typer(add_completion=False, help="Let a Transformer work past the length it was trained on.")

# What newer typer returns for Ctrl-C, where older typer raises
INTERRUPTED = 130

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A directory or a hub name.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Dtype = Annotated[str, typer.Option(help="auto, float32 or bfloat16.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...; by default a GPU if there is one.")]
TrainLength = Annotated[int | None, typer.Option(help="Length the model was trained on; by default what its config says.")]
Force = Annotated[bool, typer.Option(help="Accept an alignment made for another model.")]


@app.command()
def calibrate(
    model: Model,
    length: Annotated[list[int], typer.Option(help="Length in tokens; repeat for a table.")],
    out: Annotated[Path, typer.Option(help="The alignment file to write.")],
    statistic: Annotated[str, typer.Option(help="pmax or entropy.")] = "pmax",
    scope: Annotated[str, typer.Option(help="model, layer or head: what shares one temperature.")] = "model",
    search: Annotated[str, typer.Option(help="solve (3 forwards) or grid (Algorithm 1, 11 forwards).")] = "solve",
    train_length: TrainLength = None,
    text: Annotated[list[Path] | None, typer.Option(help="Text file to cut sequences from.")] = None,
    task: Annotated[str | None, typer.Option(help="Use samples of a task instead of text.")] = None,
    sequences: Annotated[int, typer.Option(help="Long sequences to average over.")] = 1,
    seed: int = 0,
    method: Annotated[str, typer.Option(help="Method applied throughout, to calibrate on top of it.")] = "none",
    dtype: Dtype = "auto",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Find the temperature that keeps attention as sharp as at training length."""
    from lengthwise.calibrate import calibrate as verb
    from lengthwise.models.load import load

    _check_writable(out)
    loaded, tokenizer = load(model, dtype, device)
    alignment = verb(
        loaded,
        tokenizer,
        length,
        statistic=statistic,
        scope=scope,
        search=search,
        train_length=train_length,
        files=text or (),
        task=task,
        sequences=sequences,
        seed=seed,
        method=method,
    )
    alignment.save(out)
    if as_json:
        _print_json(alignment.to_json())
    else:
        _print_alignment(alignment)
        _say(f"written: {out}")


@app.command()
def bake(
    model: Model,
    alignment: Annotated[Path, typer.Argument(metavar="ALIGNMENT", help="File that `lengthwise calibrate` wrote.")],
    length: Annotated[int, typer.Option(help="Length whose temperature is folded into the weights.")],
    out: Annotated[Path, typer.Option(help="Directory to write the checkpoint to.")],
    dtype: Dtype = "auto",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a stock checkpoint that carries the temperature and needs no lengthwise."""
    from lengthwise.bake import bake as verb
    from lengthwise.methods.temperature.aligned import Alignment
    from lengthwise.models.load import load

    table = Alignment.load(alignment)
    _check_writable(out / "config.json")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} exists already; give a new directory")
    loaded, tokenizer = load(model, dtype, "cpu", as_stored=True)
    baked = verb(loaded, table, length=length, inplace=True, force=force)
    _save_whole(out, baked, tokenizer)
    tau = table.tau(length).tolist()
    if as_json:
        _print_json({"model": model, "alignment": str(alignment), "length": length, "tau": tau, "out": str(out)})
    else:
        print(f"{out}: a stock {type(baked).__name__} with tau {tau} for inputs of about {length} tokens")


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods, one line each."""
    from lengthwise.methods.catalogue import CATALOGUE
    from lengthwise.methods.spec import one_line

    _print_list({name: one_line(name) for name in CATALOGUE}, as_json)


@app.command()
def tasks(as_json: Json = False) -> None:
    """List the tasks, one line each."""
    from lengthwise.tasks import TASKS

    lines = {name: str(sys.modules[task.samples.__module__].__doc__).split("\n", 1)[0] for name, task in TASKS.items()}
    _print_list(lines, as_json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for what the demo writes.")] = Path("demo"),
    full: Annotated[bool, typer.Option("--full", help="Also the entropy, every scope, and a longer input.")] = False,
    as_json: Json = False,
) -> None:
    """Measure, calibrate, extend and bake a tiny model, end to end."""
    from lengthwise.demo import demo as verb
    from lengthwise.demo import table

    _check_writable(out / "pmax-model.json")
    rows = verb(out, full=full)
    if as_json:
        _print_json(rows)
    else:
        print(table(rows))
        _say(f"written: {out}")


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit status: 0 done, 2 bad input (said in one line), 1 anything else."""
    _quiet_libraries()
    try:
        result = typer.main.get_command(app).main(arguments or ["--help"], prog_name="lengthwise", standalone_mode=False)
    except BadInput as error:
        _say(str(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except Exception as error:
        # The command-line parser's own errors; newer typer carries its own click, so their class has no one home
        if not hasattr(error, "format_message"):
            raise
        _say(" ".join(error.format_message().split()) + " (lengthwise --help shows what there is)")
        return 2
    if result == INTERRUPTED:
        _say("interrupted; nothing half-written was left behind")
        return 1
    return result if isinstance(result, int) else 0


def _quiet_libraries() -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    for name in ("transformers", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # The first line only: torch's warnings come with a stack of C++ frames
    warnings.showwarning = lambda message, *_, **__: _say(f"note: {str(message).partition(chr(10))[0]}")


def _say(line: str) -> None:
    print(f"lengthwise: {line}", file=sys.stderr, flush=True)


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))


def _print_list(lines: dict[str, str], as_json: bool) -> None:
    if as_json:
        _print_json([{"name": name, "what": line} for name, line in lines.items()])
        return
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:<{width}}  {line}")


def _print_alignment(alignment: Any) -> None:
    print(f"{alignment.statistic} at training length {alignment.train_length}: {_brief(alignment.target)}")
    print(f"{'length':>8}  {'tau':<34}{alignment.statistic:<34}long forwards")
    for entry in alignment.temperatures:
        print(f"{entry.length:>8}  {_brief(entry.tau):<34}{_brief(entry.statistic):<34}{entry.forwards}")


def _brief(table: Any) -> str:
    """A number, or the range of many."""
    if isinstance(table, float | int):
        return f"{table:.4g}"
    flat = [v for row in table for v in (row if isinstance(row, list) else [row])]
    return f"{min(flat):.4g} ... {max(flat):.4g} ({len(flat)} values)"


def _check_writable(path: Path) -> None:
    """Before hours of work, not after."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise BadInput(f"cannot write {path}; give a path in a directory you may write to")


def _save_whole(out: Path, model: Any, tokenizer: Any) -> None:
    """Into a directory beside it, moved into place when complete."""
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    try:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        part.chmod(0o755)
        if out.exists():
            out.rmdir()
        part.replace(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
