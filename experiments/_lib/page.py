"""What pages about methods by length have in common: cells of result files, their tables and curves, how they were obtained."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments._lib import draw, results
from experiments._lib.markdown import table
from lengthwise.common.files import write_whole

Document = Mapping[str, Any]
Cell = Mapping[str, Any]
# The order of methods in tables, and their colours in figures; readings without a temperature are grey
STYLES: dict[str, dict[str, Any]] = {
    "none": {"color": draw.INK, "linestyle": "--"},
    "truncate": {"color": draw.GREY, "linestyle": ":"},
    "pmax-model": {"color": draw.COLOURS[0]},
    "pmax-layer": {"color": draw.COLOURS[2]},
    "hedge-pmax-model": {"color": draw.COLOURS[1]},
    "hedge-pmax-layer": {"color": draw.COLOURS[3]},
    "log": {"color": draw.COLOURS[4]},
    "entropy-model": {"color": draw.COLOURS[5]},
    "answers-head": {"color": "#7a3b9a"},
    "hedge-answers-head": {"color": "#7a3b9a", "linestyle": "--"},
    "pmax-head": {"color": draw.COLOURS[2], "linestyle": ":"},
    "entropy-layer": {"color": draw.COLOURS[5], "linestyle": "--"},
    "entropy-head": {"color": draw.COLOURS[5], "linestyle": ":"},
    "hedge+none": {"color": draw.INK, "linestyle": "-."},
    "answers-model": {"color": "#7a3b9a", "linestyle": ":"},
    "answers-layer": {"color": "#7a3b9a", "linestyle": "-."},
}
METHODS = """`none` is the model as it is, `truncate` reads the last {train_length} tokens, `log` is the log law, `pmax-model`
is the paper's P_max alignment and `entropy-model` its entropy alignment; `-layer` and `-head` align every layer or head alone,
and `hedge-` mixes that reading with what `truncate` reads. Alignments were solved once, on the package's prose; the paper
calibrates on each task."""
ANSWERS = "`answers-head` has one temperature a head, fitted to answers of the package's own tasks."
PAIRED = """Points on the same samples, with 95 % intervals: Fay and Lumbard's, which leave out 0 just where McNemar's exact
test does, of right and wrong and wherever at most half of the samples differ; Student's of all else."""
FLOOR, CEILING = 0.05, 0.95
UNTEMPERED = ("none", "truncate")


def read_all(folder: Path, form: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The result files of one format in a folder, by name without the ending."""
    for file in sorted(folder.glob("*.json")):
        document = results.read(file)
        if document.get("format") == form:
            yield file.stem, document


def paper(here: str) -> dict[str, Any]:
    """The paper's numbers, which stand beside the module `here`."""
    return dict(json.loads(Path(here).with_name("paper.json").read_text()))


def write(file: Path, title: str, document: Document, parts: Iterable[str]) -> None:
    """A page: title, what is missing, the parts, and how the numbers were obtained."""
    missing = document.get("missing", 0)
    begun = [f"{missing:,} answers or cells are missing: the run was stopped, and the same command goes on."] if missing else []
    write_whole(file, "\n\n".join([f"# {title}", *begun, *filter(None, parts), obtained(document)]) + "\n")


def obtained(document: Document) -> str:
    """Model, versions, materials and command, folded away."""
    model = document["model"]
    lines = [f"model: {model['name']} (weights {model['weights']}), trained on {document['train_length']:,} tokens"]
    lines += [f"{key}: {value}" for key, value in document["made_with"].items()]
    lines += [f"{key}: {document[key]}" for key in ("dtype", "seed", "samples")]
    lines += [f"{task}: made of {material}" for task, material in document["materials"].items()]
    lines += [f"command: `{document['command']}`"]
    return "\n".join(
        ["<details><summary>How this was obtained</summary>", "", *(f"- {line}" for line in lines), "", "</details>"]
    )


def model_name(document: Document) -> str:
    """The last part of a path that tells models apart: every training run exports to a folder of that name."""
    *before, last = Path(document["model"]["name"]).parts
    return before[-1] if last == "export" and before else last


def methods(cells: Iterable[Cell]) -> list[str]:
    """In the order of importance, others last."""
    names = dict.fromkeys(cell["method"] for cell in cells)
    return [*(name for name in STYLES if name in names), *(name for name in names if name not in STYLES)]


def methods_told(document: Document) -> str:
    """What the names of the methods mean."""
    fitted = any("answers" in cell["method"] for cell in document["cells"])
    return METHODS.format(**document) + (f" {ANSWERS}" if fitted else "")


def undecided(cells: Iterable[Cell]) -> str:
    """Where nothing can be ranked, because no method finds anything or every temperature finds all; empty where all can."""
    places: dict[tuple[str, int], dict[str, float]] = {}
    for cell in cells:
        places.setdefault((cell["task"], cell["length"]), {})[cell["method"]] = cell["mean"]
    floor: dict[str, list[str]] = {}
    ceiling: dict[str, list[str]] = {}
    for (task, length), means in places.items():
        tempered = [mean for name, mean in means.items() if name not in UNTEMPERED]
        if max(means.values()) <= FLOOR:
            floor.setdefault(task, []).append(f"{length:,}")
        elif len(tempered) > 1 and min(tempered) >= CEILING:
            ceiling.setdefault(task, []).append(f"{length:,}")
    told = {
        f"at the floor, no method above {FLOOR:.0%}": floor,
        f"at the ceiling, every temperature from {CEILING:.0%}": ceiling,
    }
    lines = [
        f"- {words}: " + "; ".join(f"{task} at {', '.join(at)}" for task, at in where.items())
        for words, where in told.items()
        if where
    ]
    return "\n".join(["Cells that rank nothing, by task and tokens:", "", *lines]) if lines else ""


def by_length(
    head: str, cells: Sequence[Cell], shown: Callable[[Cell], str], name: Callable[[Any], str] = "{:,}".format
) -> str:
    """A row a method, a column a length; the length None, which is several together, comes last."""
    lengths = sorted({cell["length"] for cell in cells}, key=lambda n: (n is None, n))
    known = {(cell["method"], cell["length"]): shown(cell) for cell in cells}
    rows = [[method, *(known.get((method, n), "") for n in lengths)] for method in methods(cells)]
    return table([head, *map(name, lengths)], rows)


def percent(cell: Cell, samples: int, decimals: int = 0) -> str:
    """The mean and its 95 % interval; how many samples, where they are fewer than asked for."""
    few = f", n {cell['n']}" if cell["n"] < samples else ""
    mean, low, high = (f"{100 * cell[key]:.{decimals}f}" for key in ("mean", "low", "high"))
    return f"{mean} ({low}-{high}{few})"


def points(pair: Mapping[str, Any] | None) -> str:
    """A difference in points and its 95 % interval."""
    return (
        "" if pair is None else "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * pair[key] for key in ("difference", "low", "high")))
    )


def gains(document: Document, key: str, tasks: Mapping[str, str]) -> list[str]:
    """A table a task, under its title: every method over the plain model (`gains`), or P_max over every other (`pmax_over`)."""
    titles = {"gains": "## Against the plain model", "pmax_over": "## P_max alignment against the others"}
    rows = document.get(key, [])
    if key == "pmax_over":
        rows = [{**row, "method": row["over"]} for row in rows]
    chosen = {title: [row for row in rows if row["task"] == task] for task, title in tasks.items()}
    together = f"all beyond {document['train_length']:,}"

    def name(length: int | None) -> str:
        return together if length is None else f"{length:,}"

    tables = [by_length(title, some, points, name) for title, some in chosen.items() if some]
    return [titles[key], f"{PAIRED} {by_chance(len(rows))}", *tables] if tables else []


def by_chance(n: int, what: str = "differences", nothing: int = 0) -> str:
    """How many of the intervals that a page shows would leave out no difference, a ratio's 1, by chance alone."""
    about = f"at most about {n / 20:.0f}" if n >= 20 else "one or none"
    shown = f"{n:,} {what} are shown, each with a 95 % interval of its own"
    return f"{shown}: between equals {about} would leave out {nothing} by chance."


def temperatures(document: Document) -> str:
    """Temperatures by length: one number, or the lowest and the highest of layers and heads."""
    rows = {name: {int(length): taus for length, taus in row.items()} for name, row in document["temperatures"].items()}
    lengths = sorted({length for row in rows.values() for length in row})

    def span(taus: Sequence[float]) -> str:
        low, high = min(taus, default=0.0), max(taus, default=0.0)
        return "" if not taus else f"{low:.3f}" if len(taus) == 1 else f"{low:.2f}-{high:.2f}"

    body = [[name, *(span(row.get(n, [])) for n in lengths)] for name, row in rows.items()]
    note = f"Exactly 1 up to {document['train_length']:,} tokens; of layers and heads the lowest and the highest."
    return f"{note}\n\n{table(['ours: tau', *(f'{n:,}' for n in lengths)], body)}"


def curves(axes: Any, cells: Sequence[Cell], scale: float = 100, keys: Sequence[str] = ("mean", "low", "high")) -> None:
    """A curve a method over length, with its interval where `keys` name one."""
    for at, method in enumerate(methods(cells)):
        row = sorted((cell for cell in cells if cell["method"] == method), key=lambda cell: cell["length"])
        values = [[scale * cell[key] for cell in row] for key in keys]
        draw.curve(axes, [cell["length"] for cell in row], *values, label=method, at=at, **STYLES.get(method, {}))
