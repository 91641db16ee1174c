"""Perplexity with the misalignment loss, in that without: a panel a setting, alphas from left to right, a colour a length."""

from __future__ import annotations

import math
from typing import Any

from experiments._lib.draw import blank
from experiments.output_alignment.bits_charts import COLOURS, GREY
from experiments.output_alignment.fine_tuning_compared import Outcome, Point, Ratio
from experiments.output_alignment.fine_tuning_grid import LENGTHS, SAMPLING, Setting

COLUMNS = 4
# Ratios to read off, the most important first, and the share of the axis that two of them keep apart
TICKS = (1, 2, 1.2, 0.8, 5, 3, 1.5, 0.5, 8, 12, 20, 1.1, 0.9, 1.05, 0.95)
APART = 0.07


def chart(outcome: Outcome, steps: int) -> Any:
    """After the last step; bars are 95 % intervals over seeds. One logarithmic axis for all: panels can be compared."""
    chosen = [one for one in outcome.settings if one.sampling == SAMPLING]
    settings = sorted(chosen, key=lambda one: (one.compare != one.without.compare, one.factor, one.adjustment))
    lines, columns = -(-len(settings) // COLUMNS), min(COLUMNS, len(settings))
    figure = blank(3.1 * columns + 0.4, 2.9 * lines + 0.9)
    panels = figure.subplots(lines, columns, squeeze=False, sharey=True).flatten()
    for axes, setting in zip(panels, settings, strict=False):
        _panel(axes, outcome, setting, steps)
    for axes in panels[len(settings) :]:
        axes.set_visible(False)
    _ratios(panels[0])
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(LENGTHS), frameon=False, fontsize=9)
    figure.suptitle(f"Perplexity after {steps} steps, in that with alpha 0", fontsize=11)
    return figure


def _panel(axes: Any, outcome: Outcome, setting: Setting, steps: int) -> None:
    axes.axhline(1, color=GREY, linewidth=0.9)
    alphas = setting.alphas[1:]
    for at, (factor, colour) in enumerate(zip(LENGTHS, COLOURS, strict=False)):
        axes.plot([], [], "o", color=colour, label=f"{factor} x the model's length")
        for place, alpha in enumerate(alphas):
            point = Point(setting, alpha, steps)
            ratio = outcome.ratio(point, point.without, (factor,))
            if ratio is not None:
                _dot(axes, place + 0.13 * (at - 1.5), ratio, colour)
    axes.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axes.set(xlabel="alpha", xlim=(-0.5, len(alphas) - 0.5))
    axes.set_title(setting.label, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e4de", linewidth=0.6)
    axes.set_axisbelow(True)


def _dot(axes: Any, x: float, ratio: Ratio, colour: str) -> None:
    axes.plot(x, ratio.value, "o", markersize=4, color=colour)
    if ratio.low is not None:
        axes.plot([x, x], [ratio.low, ratio.high], color=colour, linewidth=1.2)


def _ratios(axes: Any) -> None:
    """The axis that all panels share."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    shown: list[float] = []
    for tick in TICKS:
        if low <= tick <= high and all(abs(math.log(tick / one)) > APART * math.log(high / low) for one in shown):
            shown.append(tick)
    axes.set_yticks(shown, [f"{tick:g}" for tick in shown])
    axes.set_yticks([], minor=True)
    axes.set_ylim(low, high)
