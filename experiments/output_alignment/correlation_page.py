"""Writes the page of Table 1: what came out, the coefficients beside the paper's, the chart and all rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments._lib.draw import save
from experiments._lib.markdown import table
from experiments.output_alignment.correlation_cells import Estimate
from experiments.output_alignment.correlation_chart import chart
from experiments.output_alignment.correlation_findings import MEASURES, Group, findings, groups, of_the_paper, told, verdict
from experiments.output_alignment.correlation_paper import COEFFICIENTS, TABLE_1
from experiments.output_alignment.correlation_rows import Measured, Row
from experiments.output_alignment.correlation_strength import Strength
from experiments.output_alignment.correlation_subject import Noted
from lengthwise.common.files import write_whole
from lengthwise.errors import require

FORMAT = "lengthwise.experiments.output_alignment.correlation/1"
NAME = "correlation"

ABOUT = """A row is a model with a length method, whose factor fits the long length. `L_train` is the mean cross-entropy of
readings of the training length; `L_misalign` and the symmetric KL compare two readings of the same place that begin up to half
the training length apart, at positions that both tell from L/2 to L tokens. Long perplexity is that of one forward over all
tokens of the long length, `beyond` that of the tokens told from more than the training length. All are in nats, on the same
text for all methods of a model; in brackets 95 % intervals, of losses over streams, of misalignment over pairs of readings.
Means are rounded to 0.001 before they are ranked, so that arithmetic does not make an order; `=` marks methods that leave all
three at the plain model's. Coefficients have 95 % bootstrap intervals over rows; those of one position method, at all lengths
and with all temperatures on top, are drawn together, because they are alike."""

TABLES = (
    ("Spearman", "log_ppl", "Spearman's coefficients with long perplexity"),
    ("Pearson", "log_ppl", "Pearson's coefficients with the log of long perplexity"),
    ("Spearman", "beyond", "Spearman's coefficients, only tokens beyond the training length"),
)


def write(measured: Sequence[Measured], out: Path) -> str:
    """correlation.md, .json and .svg; returns the page."""
    rows = [row for one in measured for row in one.rows]
    require(bool(rows), f"nothing is measured in {out} yet; run the same command without --page first")
    text = _text(measured, rows)
    document = {
        "format": FORMAT,
        "models": [_model(one.noted) for one in measured],
        "refused": {one.noted.name: one.refused for one in measured if one.refused},
        "missing": sum(one.missing for one in measured),
        "findings": findings(rows),
        "coefficients": [_coefficients(group, acting) for group in groups(rows) for acting in (False, True)],
        "paper": {"coefficients": COEFFICIENTS, "rows": [asdict(one) for one in TABLE_1]},
        "rows": [asdict(row) for row in rows],
    }
    save(chart(rows), out / f"{NAME}.svg")
    write_whole(out / f"{NAME}.json", json.dumps(document, indent=1) + "\n")
    write_whole(out / f"{NAME}.md", text)
    return text


def _text(measured: Sequence[Measured], rows: Sequence[Row]) -> str:
    parts = [
        "# Does misalignment tell more of long perplexity than training loss? (Output Alignment, Table 1)",
        _head(measured),
    ]
    if missing := sum(one.missing for one in measured):
        parts.append(f"**Unfinished**: {missing} rows are missing. The same command goes on.")
    parts += [ABOUT, "## What came out", "\n".join(f"- {words}" for words in findings(rows))]
    parts.append(f"![Long perplexity against each measure]({NAME}.svg)")
    parts += [part for kind, quality, title in TABLES for part in (f"## {title}", _table(rows, kind, quality))]
    for group in groups(rows):
        if len({(row.model, row.factor) for row in group.rows}) == 1:
            parts += [f"## Rows: {group.label} ({group.rows[0].length:,} tokens)", _rows(group.rows)]
    for one in measured:
        if one.refused:
            parts += [f"## Refused by {one.noted.name}", "\n".join(f"- `{what}`: {why}" for what, why in one.refused.items())]
    return "\n\n".join(parts) + "\n"


def _head(measured: Sequence[Measured]) -> str:
    lines = []
    for one in measured:
        made, machine = one.noted.made, ", ".join(f"{key} {value}" for key, value in one.noted.made_with.items())
        lines.append(
            f"- {one.noted.name} (weights {made['model']}, {made['dtype']}), trained on {made['train_length']:,} tokens: "
            f"{made['streams']} streams of {made['source']}, {made['pairs']} pairs of readings, seed {made['seed']}; {machine}"
        )
        lines.append(f"- command: `{one.noted.command}`")
    return "\n".join(lines)


def _table(rows: Sequence[Row], kind: str, quality: str) -> str:
    head = ["rows", "n", "families", *MEASURES.values(), "L_misalign less L_train", "L_misalign correlates"]
    paper = of_the_paper(kind)
    lines = []
    if quality == "log_ppl":
        lines.append(_line("paper, 7 models, 16k tokens", paper))
    if kind == "Spearman" and quality == "log_ppl":
        printed = [COEFFICIENTS.get(name, "") for name in MEASURES]
        lines.append(["paper, as printed", 7, 7, *printed, f"{COEFFICIENTS['l_misalign'] - COEFFICIENTS['l_train']:.2f}", ""])
    for group in groups(rows):
        lines.append(_line(group.label, group.strength(kind, quality), len(group.rows)))
        if len(group.acting.rows) < len(group.rows):
            acting = group.acting
            lines.append(_line(f"{acting.label}, methods that act within", acting.strength(kind, quality), len(acting.rows)))
    return table(head, lines)


def _line(label: str, found: Strength | None, n: int | None = None) -> list[object]:
    if found is None:
        return [label, n or 0, *[""] * (len(MEASURES) + 2), verdict(None)]
    coefficients = [told(found.of[name]) if name in found.of else "" for name in MEASURES]
    return [label, found.rows, found.owners, *coefficients, told(found.more), verdict(found)]


def _rows(rows: Sequence[Row]) -> str:
    head = ["method", "L_train", "L_misalign", "symmetric KL", "log of long perplexity", "beyond"]
    ranked = sorted(rows, key=lambda row: row.log_ppl.mean)
    lines = [[_name(row), *map(_cell, (*row.short, row.log_ppl, row.beyond))] for row in ranked]
    return table(head, lines)


def _name(row: Row) -> str:
    return f"`{row.spec}`{' =' if row.unchanged else ''}"


def _cell(one: Estimate) -> str:
    return f"{one.mean:.3f} [{one.low:.2f}, {one.high:.2f}]"


def _model(noted: Noted) -> dict[str, object]:
    return {"name": noted.name, **noted.made, "made_with": noted.made_with, "command": noted.command}


def _coefficients(group: Group, acting: bool) -> dict[str, object]:
    chosen = group.acting if acting else group
    found = {
        f"{kind} with {quality}": {**asdict(strength), "verdict": verdict(strength)}
        for kind, quality, _ in TABLES
        if (strength := chosen.strength(kind, quality)) is not None
    }
    return {"models": group.models, "lengths": group.lengths, "acting": acting, **found}
