"""The page of Table 1: the models, the coefficients beside the paper's with what chance gives, and a chart with a dot a row."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.page import read_all
from experiments._lib.results import read
from experiments._lib.student import Mean
from experiments.misalignment_perplexity.strength import FEWEST, KINDS, more, strength
from lengthwise.common.files import write_whole
from lengthwise.tasks.ruler import NAMES as RULER_TASKS

FORMAT = "lengthwise.experiments.misalignment_perplexity/2"
PAGE, FIGURE = "misalignment_perplexity.md", "misalignment_perplexity.svg"
COEFFICIENTS, METHODS = "coefficients.json", "over_methods.json"  # made with the page; of an earlier run
MADE_OF = {Path(PAGE).stem: sorted(f.stem for f in Path(__file__).parent.glob("results/*.json") if f.name != COEFFICIENTS)}
MEASURES = {"l_train": "L_train", "l_misalign": "L_misalign", "kl": "symmetric KL"}
RULER = "RULER"
UNITS = {"token": "nats a token", "byte": "nats a byte"}
PAPER = read(Path(__file__).with_name("paper.json"))
WORDS = words_beside(__file__)
Row = Mapping[str, Any]
Quality = tuple[str, int]  # what it is, and tokens; 0 stands for twice each model's training length


def write_pages(results: Path, out: Path) -> None:
    """The page and its chart, from all rows in `results`."""
    rows = sorted((row for _, row in read_all(results, FORMAT)), key=lambda row: (row["settings"]["method"], row["parameters"]))
    rows = with_shared_tasks(rows)
    found = coefficients(rows)
    # One point shows nothing
    if len(rows) > 1:
        draw.save(chart(rows), out / FIGURE)
    write_whole(out / COEFFICIENTS, json.dumps({"coefficients": found}, indent=1) + "\n")
    write_whole(out / PAGE, page(rows, found, read(file) if (file := results / METHODS).exists() else {}))


def with_shared_tasks(rows: Sequence[Row]) -> list[Row]:
    """The rows with those cells of RULER that all of them have, with as many samples as any."""
    most = max((len(cell["scores"]) for row in rows for cell in row["ruler"]), default=0)
    known = [{(c["task"], c["length"]) for c in row["ruler"] if len(c["scores"]) == most} for row in rows]
    shared = set.intersection(*known)
    return [{**row, "ruler": [c for c in row["ruler"] if (c["task"], c["length"]) in shared]} for row in rows]


def page(rows: Sequence[Row], found: Sequence[Row], methods: Mapping[str, Any]) -> str:
    parts = ["# Does misalignment tell more of long perplexity than training loss? (Output Alignment, Table 1)"]
    tasks = dict.fromkeys(cell["task"].removeprefix("ruler_") for cell in rows[0]["ruler"])
    about = WORDS["about"].format(tasks=", ".join(tasks) or "none", all=len(RULER_TASKS))
    parts += [about, *([f"![Long perplexity against each measure]({FIGURE})"] if len(rows) > 1 else [])]
    parts += [part for unit, name in UNITS.items() for part in (f"## The models, {name}", _models(rows, unit))]
    for kind in KINDS:
        parts += [
            f"## {kind}'s coefficients",
            WORDS["coefficients"].format(count=len(found)),
            _table([one for one in found if one["kind"] == kind]),
        ]
    parts += ["## Over methods instead of models", WORDS["methods"], _over_methods(methods)]
    parts += ["## How the rows were obtained", "\n".join(map(_obtained, rows))]
    return "\n\n".join(parts) + "\n"


def groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Sets of rows that coefficients are taken of."""
    plain = [row for row in rows if row["settings"]["method"] == "none"]
    bases = [row for row in plain if row["settings"]["bits"] is None]
    sets = {"models": bases, "and rounded ones": plain, "and those under a method": list(rows)}
    return {name: own for at, (name, own) in enumerate(sets.items()) if not at or len(own) > len(list(sets.values())[at - 1])}


def qualities(rows: Sequence[Row]) -> list[Quality]:
    common = {(line["measure"], line["length"]) for row in rows for line in row["measures"] if line["measure"] == "log_ppl"}
    # A length of one model alone compares nothing
    shared = [(name, n) for name, n in sorted(common) if sum(value(row, (name, n)) is not None for row in rows) > 1]
    asked = sorted({cell["length"] for row in rows for cell in row["ruler"]})
    tasks = len({cell["task"] for row in rows for cell in row["ruler"]})
    return [("beyond", 0), *shared, *((f"{tasks} tasks of {RULER}", length) for length in asked)]


def streams(row: Row, measure: str, length: int) -> list[float] | None:
    return next((line["streams"] for line in row["measures"] if (line["measure"], line["length"]) == (measure, length)), None)


def value(row: Row, quality: Quality, unit: str = "token") -> float | None:
    """Nats, or RULER's mean in percent; None where it is not measured."""
    name, length = quality
    if name.endswith(RULER):
        return 100 * fmean(fmean(cell["scores"]) for cell in row["ruler"] if cell["length"] == length)
    own = streams(row, name, length or (1 if name in MEASURES else 2) * row["settings"]["train_length"])
    return None if own is None else fmean(_in_unit(row, own, unit))


def _in_unit(row: Row, own: Sequence[float], unit: str) -> list[float]:
    return [nats / (rate if unit == "byte" else 1) for nats, rate in zip(own, row["bytes"], strict=True)]


def _label(quality: Quality) -> str:
    name, length = quality
    if name.endswith(RULER):
        return f"{name}, {length:,}"
    return "log PPL beyond L, 2 L" if name == "beyond" else f"log PPL, {length:,}"


def _models(rows: Sequence[Row], unit: str) -> str:
    asked = [(name, 0) for name in MEASURES] + qualities(rows)
    head = ["model", "parameters", "L", "bytes a token", *MEASURES.values(), *map(_label, qualities(rows))]
    lines: list[list[object]] = []
    for row in rows:
        cells = [_cell(row, quality, unit) for quality in asked]
        millions = f"{row['parameters'] / 1e6:,.0f} M"
        lines.append([row["name"], millions, f"{row['settings']['train_length']:,}", f"{fmean(row['bytes']):.2f}", *cells])
    return table(head, lines)


def _cell(row: Row, quality: Quality, unit: str) -> str:
    found = value(row, quality, unit)
    if found is None or quality[0].endswith(RULER):
        return "" if found is None else f"{found:.1f}"
    name, length = quality
    own = streams(row, name, length or (1 if name in MEASURES else 2) * row["settings"]["train_length"])
    mean = Mean.of(_in_unit(row, own or [], unit))
    digits = 3 if unit == "token" else 4
    return f"{mean.value:.{digits}f}" + (
        "" if mean.low is None else f" [{mean.low:.{digits - 1}f}, {mean.high:.{digits - 1}f}]"
    )


def coefficients(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The paper's and ours: each measure's with each quality, and how much more L_misalign goes along than L_train."""
    l_train, l_misalign, *qualities_of_paper = zip(*PAPER["models"].values(), strict=True)
    measured = {"l_train": l_train, "l_misalign": l_misalign}
    cases = [
        ({"rows": "the paper's", "unit": "token", "with": name}, measured, quality, sign)
        for name, quality, sign in zip(("log PPL, 16k", "LongBench-E"), qualities_of_paper, (1, -1), strict=True)
    ]
    for (name, own), unit, quality in itertools.product(groups(rows).items(), UNITS, qualities(rows)):
        chosen = [row for row in own if value(row, quality) is not None]
        good = [value(row, quality, unit) or 0.0 for row in chosen]
        columns = {measure: [value(row, (measure, 0), unit) or 0.0 for row in chosen] for measure in MEASURES}
        about = {"rows": name, "unit": unit, "with": _label(quality)}
        cases.append((about, columns, good, -1 if quality[0].endswith(RULER) else 1))  # type: ignore[arg-type]
    found = []
    for kind, (about, columns, good, sign) in itertools.product(KINDS, cases):
        strengths = {name: strength(kind, column, good) for name, column in columns.items()}
        strengths["more"] = more(kind, columns["l_misalign"], columns["l_train"], good, sign)
        known = {name: asdict(one) for name, one in strengths.items() if one is not None}
        found.append({"kind": kind, **about, "n": len(good), **known})
    return found


def _table(found: Sequence[Row]) -> str:
    head = ["rows", "in", "with", "n", *MEASURES.values(), "L_misalign less L_train"]
    lines: list[list[object]] = []
    for one in found:
        numbers = [one.get(name) for name in (*MEASURES, "more")]
        told = ["" if n is None else "{value:z.2f} [{low:z.2f}, {high:z.2f}], p {p:.3f}".format(**n) for n in numbers]
        few = [f"fewer than {FEWEST} models", "", "", ""]
        lines.append([one["rows"], UNITS[one["unit"]], one["with"], one["n"], *(few if one["n"] < FEWEST else told)])
    return table(head, lines)


def _over_methods(document: Mapping[str, Any]) -> str:
    lines: list[list[object]] = []
    for one in document.get("coefficients", ()):
        if not one["acting"] and (own := one.get("Spearman with log_ppl")):
            numbers = [own["of"]["l_train"], own["of"]["l_misalign"], own["more"]]
            told = ["{value:.2f} [{low:.2f}, {high:.2f}]".format(**number) for number in numbers]
            lines.append([f"{one['models']}, {one['lengths']}", own["rows"], *told])
    return table(["rows", "n", "L_train", "L_misalign", "L_misalign less L_train"], lines)


def _obtained(row: Row) -> str:
    settings, made = row["settings"], ", ".join(f"{key} {value}" for key, value in row["made_with"].items())
    counts = {len(cell["scores"]) for cell in row["ruler"]}
    asked = f"; RULER with {min(counts)} samples a task" if counts else ""
    text = f"{settings['streams']} streams of {settings['source']}, seed {settings['seed']}{asked}"
    return f"- {row['name']} (weights {settings['model']}, {settings['dtype']}): {text}; {made}; `{row['command']}`"


def chart(rows: Sequence[Row]) -> Any:
    """Long perplexity at twice each training length against both measures; a colour a base, hollow dots are changed ones."""
    bases = list(dict.fromkeys(row["name"].split("-")[0] for row in rows))
    figure, panels = draw.panels(2, width=4.4, height=4, share_y=True)
    for axes, measure in zip(panels, ("l_train", "l_misalign"), strict=True):
        for row in rows:
            x, y = value(row, (measure, 0)), value(row, ("beyond", 0))
            if x is None or y is None:
                continue
            rounded, under = row["settings"]["bits"] is not None, row["settings"]["method"] != "none"
            colour = draw.colour(bases.index(row["name"].split("-")[0]))
            look = {"marker": "s" if under else "o", "facecolors": "white" if rounded or under else colour}
            axes.scatter(x, y, s=46, **look, edgecolors=colour, label=row["name"])
        axes.set(xlabel=f"{MEASURES[measure]}, nats a token")
    panels[0].set_ylabel("log of perplexity beyond L, at 2 L")
    draw.key(figure, panels[0], columns=3)
    return figure
