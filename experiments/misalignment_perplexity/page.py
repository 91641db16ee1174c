"""The page of Table 1: coefficients beside the paper's, a chart with a dot a row, and all rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.results import read
from experiments.misalignment_perplexity import strength as strengths
from experiments.misalignment_perplexity.strength import GROUPINGS, MEASURES, Coefficient, Group, Row, Strength, groups
from lengthwise.common.files import write_whole

RESULTS, PAGE, FIGURE = (f"misalignment_perplexity.{ending}" for ending in ("json", "md", "svg"))
WORDS = words_beside(__file__)


def write_pages(results: Path, out: Path) -> None:
    """The page and its chart, from RESULTS/misalignment_perplexity.json."""
    document = read(results / RESULTS)
    draw.save(chart(document["rows"], _coefficients(document)), out / FIGURE)
    write_whole(out / PAGE, page(document))


def page(document: dict[str, Any]) -> str:
    rows, coefficients = document["rows"], _coefficients(document)
    parts = ["# Does misalignment tell more of long perplexity than training loss? (Output Alignment, Table 1)"]
    parts.append("\n".join(line for model in document["models"] for line in _about(model)))
    if document["missing"]:
        parts.append(f"**Unfinished**: {document['missing']} rows are missing. The same command goes on.")
    parts += [WORDS["about"], f"![Long perplexity against each measure]({FIGURE})"]
    for title, (kind, quality) in zip(WORDS["titles"].split("\n"), GROUPINGS, strict=True):
        parts += [f"## {title}", _table(groups(rows), coefficients, kind, quality)]
    first = coefficients[groups(rows)[0].models, groups(rows)[0].lengths, False, "Spearman", "log_ppl"]
    if first is not None:
        parts.append(f"L_misalign and L_train with each other, over all rows: {told(first.between)}.")
    for group in groups(rows):
        if len({(row["model"], row["factor"]) for row in group.rows}) == 1:
            parts += [f"## Rows: {group.models}, {group.lengths} ({group.rows[0]['length']:,} tokens)", _rows(group.rows)]
    for name, refused in document["refused"].items():
        parts += [f"## Refused by {name}", "\n".join(f"- `{what}`: {why}" for what, why in refused.items())]
    return "\n\n".join(parts) + "\n"


def told(coefficient: Coefficient) -> str:
    return f"{coefficient.value:.2f} [{coefficient.low:.2f}, {coefficient.high:.2f}]"


def _coefficients(document: dict[str, Any]) -> dict[tuple[str, str, bool, str, str], Strength | None]:
    """The coefficients in the results, by the models, the lengths, whether rows act within, kind and quality."""
    read: dict[tuple[str, str, bool, str, str], Strength | None] = {}
    for entry in document["coefficients"]:
        for kind, quality in GROUPINGS:
            values = entry.get(f"{kind} with {quality}")
            key = entry["models"], entry["lengths"], entry["acting"], kind, quality
            read[key] = None if values is None else Strength.read(values)
    return read


def _about(model: dict[str, Any]) -> list[str]:
    machine = ", ".join(f"{key} {value}" for key, value in model["made_with"].items())
    read = f"{model['streams']} streams of {model['source']}, {model['pairs']} pairs of readings, seed {model['seed']}"
    trained = f"(weights {model['model']}, {model['dtype']}), trained on {model['train_length']:,} tokens"
    return [f"- {model['name']} {trained}: {read}; {machine}", f"- command: `{model['command']}`"]


def _table(sets: Sequence[Group], coefficients: dict[Any, Strength | None], kind: str, quality: str) -> str:
    head = ["rows", "n", "families", *MEASURES.values(), "L_misalign less L_train", "L_misalign correlates"]
    lines: list[list[object]] = []
    if quality == "log_ppl":
        lines.append(_line("paper, 7 models, 16k tokens", strengths.of_the_paper(kind), 7))
    if (kind, quality) == GROUPINGS[0]:
        printed = strengths.PAPER["printed"]
        more = f"{printed['l_misalign'] - printed['l_train']:.2f}"
        lines.append(["paper, as printed", 7, 7, *(printed.get(name, "") for name in MEASURES), more, ""])
    for group in sets:
        label, acting = f"{group.models}, {group.lengths}", group.acting
        lines.append(_line(label, coefficients[group.models, group.lengths, False, kind, quality], len(group.rows)))
        if len(acting.rows) < len(group.rows):
            inside = coefficients[group.models, group.lengths, True, kind, quality]
            lines.append(_line(f"{label}, methods that act within", inside, len(acting.rows)))
    return table(head, lines)


def _line(label: str, strength: Strength | None, rows: int) -> list[object]:
    if strength is None:
        return [label, rows, *[""] * (len(MEASURES) + 2), strengths.SILENT]
    columns = [told(strength.of[name]) if name in strength.of else "" for name in MEASURES]
    return [label, strength.rows, strength.owners, *columns, told(strength.more), strength.verdict]


def _rows(rows: Sequence[Row]) -> str:
    names = (*MEASURES, "log_ppl", "beyond")
    ranked = sorted(rows, key=lambda row: row["log_ppl"]["mean"])
    lines = [[f"`{row['spec']}`{' =' if row['unchanged'] else ''}", *(_cell(row[name]) for name in names)] for row in ranked]
    return table(["method", *MEASURES.values(), "log of long perplexity", "beyond"], lines)


def _cell(numbers: dict[str, float]) -> str:
    return f"{numbers['mean']:.3f} [{numbers['low']:.2f}, {numbers['high']:.2f}]"


def chart(rows: Sequence[Row], coefficients: dict[Any, Strength | None]) -> Any:
    """Long perplexity against each measure: a dot a row, a colour a length, a sign a model; the plain model has a dark rim."""
    figure, panels = draw.panels(len(MEASURES), width=4, height=4.8, share_y=True)
    colours = dict(zip(sorted({row["factor"] for row in rows}), draw.COLOURS * 9, strict=False))
    signs = dict(zip(dict.fromkeys(row["model"] for row in rows), "os^Dv*P" * 9, strict=False))
    first = groups(rows)[0]
    strength = coefficients[first.models, first.lengths, False, "Spearman", "log_ppl"]
    for axes, (measure, label) in zip(panels, MEASURES.items(), strict=True):
        for plain, (model, sign), (factor, colour) in itertools.product((False, True), signs.items(), colours.items()):
            dots = [row for row in rows if (row["method"] == "none", row["model"], row["factor"]) == (plain, model, factor)]
            at = [row[measure]["mean"] for row in dots], [row["log_ppl"]["mean"] for row in dots]
            size, rim, width = (70, draw.INK, 1.4) if plain else (34, "white", 0.5)
            axes.scatter(*at, c=colour, marker=sign, s=size, edgecolors=rim, linewidths=width)
        axes.set(xlabel=f"{label}, nats")
        axes.set_title(f"{label}: {told(strength.of[measure])}" if strength else label, fontsize=10)
    panels[0].set_ylabel("log of long perplexity")
    axes = panels[-1]
    for factor, colour in colours.items():
        axes.scatter([], [], s=34, c=colour, label=f"{factor:g} x the training length")
    for model, sign in signs.items():
        axes.scatter([], [], s=34, c=draw.GREY, marker=sign, label=model)
    axes.scatter([], [], s=70, c="white", edgecolors=draw.INK, linewidths=1.4, label="without a method")
    draw.key(figure, axes, columns=6)
    figure.suptitle("Long perplexity against what is measured up to the training length; Spearman's coefficients", fontsize=11)
    return figure
