"""Lost in the middle as a picture: accuracy by the place of the gold document, a line a method, a panel a number of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments._lib.draw import blank
from experiments.attention_alignment.by_place import numbers, task_of, tokens
from experiments.attention_alignment.paper_questions import POSITIONS
from experiments.attention_alignment.results import Results

# Okabe and Ito's, which colour-blind readers can tell apart; without alignment in greys
LOOKS = {
    "none": ("#1d2126", "--"),
    "truncate": ("#7d848c", ":"),
    "log": ("#e69f00", "-"),
    "pmax-model": ("#0072b2", "-"),
    "entropy-model": ("#56b4e9", "-"),
    "pmax-layer": ("#009e73", "-"),
    "hedge-pmax-model": ("#d55e00", "-"),
    "hedge-pmax-layer": ("#cc79a7", "-"),
}
APART = 0.12  # documents between the marks of two methods, so that their intervals can be told apart


def curve(results: Results, title: str) -> Any:
    """Of the methods that matter most; bars are 95 % intervals."""
    asked = numbers(results)
    figure = blank(5 * len(asked), 4.6)
    panels = figure.subplots(1, len(asked), sharey=True, squeeze=False)[0]
    methods = [name for name in LOOKS if name in results.methods]
    for axes, documents in zip(panels, asked, strict=True):
        for at, method in enumerate(methods):
            _line(axes, results, method, documents, APART * (at - (len(methods) - 1) / 2) * documents / 10)
        axes.set(
            title=f"{documents} documents, about {tokens(results, documents):,} tokens", xlabel="place of the gold document"
        )
        axes.set_xticks(POSITIONS[documents])
        axes.set_ylim(-2, 102)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e4de", linewidth=0.6)
        axes.set_axisbelow(True)
    panels[0].set_ylabel("percent right")
    figure.suptitle(title, fontsize=11)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 3 * len(asked)), frameon=False)
    return figure


def _line(axes: Any, results: Results, method: str, documents: int, shift: float) -> None:
    length = tokens(results, documents)
    cells = {at: results.cell(method, task_of(documents, at), length) for at in POSITIONS[documents]}
    known = {at: cell for at, cell in cells.items() if cell is not None}
    means = [100 * cell.mean for cell in known.values()]
    bars: Sequence[Sequence[float]] = [
        [100 * (cell.mean - cell.low) for cell in known.values()],
        [100 * (cell.high - cell.mean) for cell in known.values()],
    ]
    colour, style = LOOKS[method]
    at = [place + shift for place in known]
    look = {"color": colour, "linestyle": style, "linewidth": 1.5, "marker": "o", "markersize": 4, "elinewidth": 0.8}
    axes.errorbar(at, means, yerr=bars, capsize=2, label=method, **look)
