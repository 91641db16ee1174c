"""Writes the page of the synthetic tasks: a table and a chart a figure, the paper's words beside them, Theorems 1 and 2."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments._lib.draw import save
from experiments._lib.markdown import table
from experiments.output_alignment.bits_charts import chart
from experiments.output_alignment.bits_configurations import FIGURES, TEST_LENGTH, TRAIN_LENGTH, Configuration, Curve
from experiments.output_alignment.bits_findings import (
    Curves,
    Spread,
    answer_at,
    by_configuration,
    continuation,
    loss_at,
)
from experiments.output_alignment.bits_theorems import sections, theorem_1
from experiments.output_alignment.bits_verdicts import VERDICTS
from lengthwise.common.files import write_whole
from lengthwise.errors import require

LENGTHS = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
FORMAT = "lengthwise.experiments.output_alignment.synthetic/1"

# Title, and what the paper says of it
PAPER = {
    "1a": ("Mean, four encodings", "without positions the loss of longer sequences stays what it was, about 1e-5."),
    "1b": ("Length, four encodings", "whatever the encoding, the loss rises steeply beyond 10 and goes on rising."),
    "1c": ("Length, reparameterised", "all three improve on the plain target; 1/sqrt is nearly perfect to 35."),
    "3a": ("Sum, longer training sequences", "longer training lowers the error, the rising trend remains."),
    "3b": ("Length, longer training sequences", "longer training lowers the error, the rising trend remains."),
    "4a": ("Sum, four encodings", "models do not generalise, as with lengths."),
    "4b": ("Sum, reparameterised", "reparameterisation improves it significantly."),
    "5": ("Mean, four encodings, number of ones uniform", "the model still generalises: it does not just guess a half."),
}

# What tells a figure's curves apart, where it is not the encoding
VARIES = {"1c": "function", "4b": "function", "3a": "train_length", "3b": "train_length"}

Grouped = dict[Configuration, list[Curve]]


def write(curves: Curves, out: Path, facts: dict[str, Any]) -> list[Path]:
    """The page, its charts and all numbers; figures of which nothing is trained are named as missing."""
    require(bool(curves), f"nothing is trained in {out} yet; run the same command without --page first")
    grouped = by_configuration(curves)
    drawn = {name: lines for name in sorted(PAPER) if (lines := _lines(name, grouped))}
    files = [out / "synthetic.md", out / "synthetic.json"]
    for name, lines in drawn.items():
        file = out / f"synthetic-{name}.svg"
        longest = min(one[0].train_length for one in lines.values())
        save(chart(f"Figure {name}: {PAPER[name][0]}", lines, longest, _straight(name, lines)), file)
        files.append(file)
    bounds = theorem_1()
    write_whole(files[0], _text(grouped, drawn, bounds, facts))
    rows = [{**asdict(one), "losses": _short(one.losses), "answers": _short(one.answers)} for one in curves]
    document = {"format": FORMAT, **facts, "theorem_1": [asdict(one) for one in bounds], "curves": rows}
    write_whole(files[1], json.dumps(document) + "\n")
    return files


def _lines(name: str, grouped: Grouped) -> dict[str, list[Curve]]:
    """The curves of a figure by what tells them apart."""
    return {str(getattr(one, VARIES.get(name, "positions"))): grouped[one] for one in FIGURES[name] if one in grouped}


def _straight(name: str, lines: dict[str, list[Curve]]) -> dict[str, list[float]]:
    """Of 1c: what straight continuation would lose."""
    if name != "1c":
        return {}
    return {
        f"{label}, straight on": [
            (continuation(own[0].configuration, length) - length) ** 2 if length > TRAIN_LENGTH else float("nan")
            for length in range(1, TEST_LENGTH + 1)
        ]
        for label, own in lines.items()
        if label in ("identity", "rsqrt")
    }


def _text(grouped: Grouped, drawn: dict[str, dict[str, list[Curve]]], bounds: Any, facts: dict[str, Any]) -> str:
    parts = ["# Mean, length and sum of bits (Output Alignment, Section 3)", _head(grouped, facts), "## What came out"]
    verdicts = [words for verdict in VERDICTS if (words := verdict(grouped))]
    parts.append("\n".join(f"- {words}" for words in verdicts) or "Too little is trained yet.")
    for name, lines in drawn.items():
        title, words = PAPER[name]
        parts += [f"## Figure {name}: {title}", f"Paper: {words}", f"![Figure {name}](synthetic-{name}.svg)", _table(lines)]
        if left := len(FIGURES[name]) - len(lines):
            parts.append(f"{left} of {len(FIGURES[name])} curves are not trained.")
        if name == "1c":
            parts += ["Answers, beside what going straight on in 1 / (l + 2) would answer:", _answers(lines)]
    if missing := [name for name in sorted(PAPER) if name not in drawn]:
        parts.append(f"Not trained: figures {', '.join(missing)}.")
    return "\n\n".join([*parts, *sections(bounds)]) + "\n"


def _head(grouped: Grouped, facts: dict[str, Any]) -> str:
    all_ = [curve for curves in grouped.values() for curve in curves]
    lines = [f"- {key}: {value}" for key, value in facts["made_with"].items()]
    lines.append(f"- settings: {', '.join(f'{key} {value:g}' for key, value in facts['settings'].items())}")
    lines.append(f"- trained: {len(all_)} models, {np.mean([one.cpu_seconds for one in all_]):.0f} cpu-seconds each")
    lines.append(f"- command: `{facts['command']}`")
    words = (
        f"Small decoders read BOS, bits, EOS and answer one number at EOS. Training lengths are 1 to {TRAIN_LENGTH} unless the "
        f"figure says otherwise, test lengths 1 to {TEST_LENGTH}. Losses are mean squared errors in the units of the target: "
        "the median over seeds, and in brackets their range, which for five seeds is an interval of 94 % for the median. "
        "To a sum 1 is added before it is reparameterised, because it can be 0. Answers are taken back by z^2, e^z, 1/z^2 and "
        "1/z on the whole line. `identity` is the plain target; `reciprocal`, f(y) = 1/y, is not the paper's."
    )
    return "\n".join(lines) + f"\n\n{words}"


def _table(lines: dict[str, list[Curve]]) -> str:
    rows = [[label, *(_cell(loss_at(curves, length)) for length in LENGTHS)] for label, curves in lines.items()]
    return table(["loss at", *LENGTHS], rows)


def _answers(lines: dict[str, list[Curve]]) -> str:
    beyond = [length for length in LENGTHS if length > TRAIN_LENGTH]
    rows = []
    for label, curves in lines.items():
        rows.append([label, *(_cell(answer_at(curves, length), 3) for length in beyond)])
        rows.append([f"{label}, straight on", *(f"{continuation(curves[0].configuration, length):.3g}" for length in beyond)])
    return table(["answer at", *beyond], rows)


def _cell(found: Spread, digits: int = 2) -> str:
    numbers = (found.middle, found.low, found.high)
    middle, low, high = (f"{value:.{digits}g}" if abs(value) < 99.5 else f"{value:,.0f}" for value in numbers)
    return f"{middle} [{low}, {high}]" if found.seeds > 1 else middle


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
