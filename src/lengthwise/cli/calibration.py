"""`lengthwise calibrate`, `lengthwise bake` and `lengthwise export`."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from lengthwise.cli import completion
from lengthwise.cli.evaluation import columns
from lengthwise.cli.options import Device, Dtype, Force, Json, Model, TrainLength, loaded_model, print_json, say
from lengthwise.common.files import check_writable, save_whole, standard_stream
from lengthwise.common.formats import read_json
from lengthwise.errors import BadInput, require


def calibrate(
    model: Model,
    length: Annotated[list[int], typer.Option(help="Length in tokens; repeat for a table.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    statistic: Annotated[
        str | None,
        typer.Option(help="Keep pmax or entropy, or fit to answers.", show_default="pmax"),
    ] = None,
    scope: Annotated[str, typer.Option(help="model, layer or head: what shares one temperature.")] = "model",
    search: Annotated[
        str,
        typer.Option(help="solve (3 forwards), grid (Algorithm 1, 11 forwards), or dpe or longrope: that method's numbers."),
    ] = "solve",
    train_length: TrainLength = None,
    text: Annotated[list[Path] | None, typer.Option(help="Text file to cut sequences from.")] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="Use samples of a task instead of text; repeat with answers.", autocompletion=completion.tasks),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Questions with answers for the task, with --statistic answers.")] = None,
    sequences: Annotated[
        int | None,
        typer.Option(help="Long sequences to average over, by default 1; with answers, questions of each task (8 or 32)."),
    ] = None,
    seed: int = 0,
    minutes: Annotated[
        float | None, typer.Option(help="Time to fit to answers, or to search the numbers of dpe or longrope (10), about.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="Method applied throughout, to calibrate on top of it.", autocompletion=completion.methods)
    ] = "none",
    dtype: Dtype = "auto",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Find the temperature that keeps attention as sharp as at training length; or the numbers of dpe or longrope."""
    from lengthwise.calibration.calibrate import calibrate as verb
    from lengthwise.calibration.calibrate import check_choices
    from lengthwise.calibration.position_search import SEARCHED, search_positions
    from lengthwise.methods.spec import NONE, check_spec
    from lengthwise.models.anatomy import anatomy_of
    from lengthwise.models.suitability import refuse_unreachable
    from lengthwise.tasks import without_groups

    positions = search in SEARCHED
    statistic = statistic or ("answers" if positions else "pmax")
    check_choices(statistic, scope, "solve" if positions else search, without_groups(task or ()), data)
    if positions:
        alone = len(length) == 1 and statistic == "answers" and scope == "model"
        problem = f"--search {search} finds the numbers of one length by answers"
        require(alone, f"{problem}; give one --length, and neither --statistic nor --scope")
    timed = positions or statistic == "answers"
    require(timed or minutes is None, f"--minutes is for --statistic answers or --search {' or '.join(SEARCHED)}; leave it out")
    check_spec(method)
    check_writable(out)
    _refuse_foreign(out)
    loaded, tokenizer = loaded_model(model, dtype, device, train_length)
    if not timed and method == NONE and (anatomy := anatomy_of(loaded, train_length)).rotates:
        refuse_unreachable(loaded, anatomy)
        say("a temperature alone harms a rotary model or hardly helps; calibrate on positions, as with --method yarn:factor=4")
    asked: dict[str, Any] = {"train_length": train_length, "files": text or (), "task": task, "data": data}
    asked |= {"sequences": sequences, "seed": seed, "method": method} | ({} if minutes is None else {"minutes": minutes})
    if positions:
        result: Any = search_positions(loaded, tokenizer, length[0], search, **asked)
    else:
        result = verb(loaded, tokenizer, length, statistic=statistic, scope=scope, search=search, **asked)
    _save(result, out)
    if as_json:
        print_json(result.file_content())
        return
    if positions:
        _print_positions(result, out)
        say(f"written: {out}")
    else:
        _print_alignment(result)
        say(f"written: {out}; use it as --method {shlex.quote(f'@{out}')}")


def bake(
    model: Model,
    alignment: Annotated[
        str, typer.Argument(metavar="ALIGNMENT", help="File that `calibrate` or `recommend` wrote, or a temperature method.")
    ],
    length: Annotated[int, typer.Option(help="Length whose temperature is folded into the weights.")],
    out: Annotated[Path, typer.Option(help="Directory to write the checkpoint to.")],
    dtype: Dtype = "auto",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a stock checkpoint that carries the temperature and needs no lengthwise."""
    from lengthwise.calibration.bake import bake as verb
    from lengthwise.calibration.export.checkpoint import Processors
    from lengthwise.methods.recipe import parts_of
    from lengthwise.methods.registry import factory
    from lengthwise.methods.spec import parse_spec
    from lengthwise.methods.temperature.aligned import Alignment
    from lengthwise.models.load import load

    # As elsewhere, where a spec may be a file
    alignment = alignment.removeprefix("@")
    names = () if Path(alignment).exists() else parse_spec(alignment).names
    is_method = bool(names) and factory(names[0]) is not None
    installed = [alignment] if is_method else parts_of(alignment)
    # A recipe also says which model it is for
    methods = sum(isinstance(part, str | Alignment) for part in installed)
    require(methods == 1, f"{alignment} installs {methods or 'no'} methods; weights can carry one temperature")
    check_writable(out / "config.json")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} exists already; give a new directory")
    loaded, tokenizer = load(model, dtype, "cpu", as_stored=True)
    baked = verb(loaded, installed, length=length, inplace=True, force=force)
    save_whole(out, [baked, tokenizer, Processors(baked.config)])
    # What the weights carry: a window sees fewer keys than the length has
    tau = baked.config.lengthwise["tau"]
    tau = tau[0] if all(value == tau[0] for value in tau) else tau
    if as_json:
        print_json({"model": model, "alignment": alignment, "length": length, "tau": tau, "out": str(out)})
    else:
        print(f"{out}: a stock {type(baked).__name__} with tau {tau} for inputs of about {length:,} tokens")


def export(
    model: Model,
    spec: Annotated[
        str,
        typer.Argument(metavar="SPEC", help="Methods, @alignment.json or @recipe.json.", autocompletion=completion.methods),
    ],
    to: Annotated[str, typer.Option(help="The engine: transformers (vLLM, SGLang), gguf (llama.cpp), ctranslate2 or onnx.")],
    out: Annotated[Path, typer.Option(help="Directory to write.")],
    length: Annotated[
        int | None, typer.Option(help="Length it is for.", show_default="that of the recipe, the alignment or the factor")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run the engine on it, and compare with the extended model.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a directory that is there.")] = False,
    train_length: TrainLength = None,
    dtype: Dtype = "auto",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model that carries a method and runs in stock engines, without lengthwise."""
    from lengthwise.calibration.export.export import check_place
    from lengthwise.calibration.export.export import export as verb
    from lengthwise.methods.spec import check_spec

    check_spec(spec)
    check_place(out, to, overwrite, verify)
    # Weights of 16 bits stay so in a checkpoint; elsewhere only those that lose nothing by it
    loaded, tokenizer = loaded_model(model, dtype, "cpu", train_length, as_stored=to == "transformers")
    chosen: dict[str, Any] = {"length": length, "train_length": train_length}
    chosen |= {"verify": verify, "overwrite": overwrite, "force": force}
    command = shlex.join(["lengthwise", "export", model, spec, "--to", to, *_as_options(chosen), "--out", str(out)])
    written = verb(loaded, spec, to=to, out=out, tokenizer=tokenizer, inplace=True, command=command, **chosen)
    if as_json:
        print_json({"model": model, "spec": spec, **asdict(written), "out": str(out)})
        return
    print(f"{out}: for {to}, inputs of about {written.length:,} tokens")
    for line in (*written.says, *written.compared):
        print(f"- {line}")


def _as_options(chosen: dict[str, Any]) -> list[str]:
    """Options as they are typed, without those that were left out."""
    pairs = [(f"--{key.replace('_', '-')}", value) for key, value in chosen.items() if value]
    return [word for name, value in pairs for word in ([name] if value is True else [name, str(value)])]


def _refuse_foreign(out: Path) -> None:
    """Refuse to overwrite a file that `calibrate` did not write."""
    if not out.is_file() or out.stat().st_size == 0 or standard_stream(out.stat()) is not None:
        return
    document = None
    with suppress(BadInput, ValueError):
        document = read_json(out)
    kind = document.get("format") if isinstance(document, dict) else None
    ours = str(kind).startswith(("lengthwise.alignment/", "lengthwise.positions/"))
    require(ours, f"{out} is there and holds no alignment or positions; give --out another name, or take it away first")


def _save(found: Any, out: Path) -> None:
    try:
        found.save(out)
    except BadInput as error:
        # Forwards that took hours are not taken again for want of a place
        print_json(found.file_content())
        raise BadInput(f"{error}; the file's content was printed instead, keep it") from error


def _print_positions(found: Any, out: Path) -> None:
    numbers = " ".join(f"{number:g}" for number in found.numbers)
    candidates, stopped = (found.provenance[key] for key in ("candidates", "stopped"))
    print(f"{found.method}: {numbers}, the best of {candidates} candidates; ended {stopped}")
    print("nats of an answer on cases that were not searched with:")
    rows = [("", "plain", "found")]
    rows += [(name, f"{nats:.4g}", f"{found.expects['found'][name]:.4g}") for name, nats in found.expects["plain"].items()]
    print(columns([[f"{name:>20}", *rest] for name, *rest in rows]))
    option = {"dpe": "scales", "longrope": "factors"}[found.method]
    print(f"use it as --method {shlex.quote(f'{found.method}:{option}={out}')}")


def _print_alignment(alignment: Any) -> None:
    print(f"{alignment.statistic} at training length {alignment.train_length:,}: {_number_or_range(alignment.target)}")
    rows = [("length", "tau", alignment.statistic, "long forwards")]
    for entry in alignment.temperatures:
        rows.append((f"{entry.length:,}", _number_or_range(entry.tau), _number_or_range(entry.statistic), str(entry.forwards)))
    print(columns([[f"{length:>8}", *rest] for length, *rest in rows]))
    expected = [(entry["length"], entry["expects"]) for entry in alignment.provenance.get("searched", ()) if "expects" in entry]
    if expected:
        print("nats on cases that were not fitted; of prose, how far it moved:")
        rows = [("length", "", "plain", "fitted")]
        rows += [
            (f"{length:,}", name, f"{nats:.4g}", f"{expects['fitted'][name]:.4g}")
            for length, expects in expected
            for name, nats in expects["plain"].items()
        ]
        print(columns([[f"{length:>8}", *rest] for length, *rest in rows]))


def _number_or_range(table: Any) -> str:
    """A number, or the range of many."""
    if isinstance(table, float | int):
        return f"{table:.4g}"
    flat = [v for row in table for v in (row if isinstance(row, list) else [row])]
    return f"{min(flat):.4g} ... {max(flat):.4g} ({len(flat)} values)"
