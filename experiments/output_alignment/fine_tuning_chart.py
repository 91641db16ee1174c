"""Perplexity with the misalignment loss, in that without: a panel a setting, alphas from left to right, a colour a length."""

from __future__ import annotations

from typing import Any

from experiments.entropy_invariance.canvas import blank
from experiments.output_alignment.bits_charts import COLOURS, GREY
from experiments.output_alignment.fine_tuning_compared import Outcome, Point
from experiments.output_alignment.fine_tuning_grid import ALPHAS, LENGTHS, SAMPLING, Setting

COLUMNS = 4


def chart(outcome: Outcome, steps: int) -> Any:
    """After the last step; bars are 95 % intervals over seeds."""
    settings = sorted(
        (one for one in outcome.settings if one.sampling == SAMPLING), key=lambda one: (one.factor, one.adjustment)
    )
    lines = -(-len(settings) // COLUMNS)
    figure = blank(3.1 * min(COLUMNS, len(settings)) + 0.4, 2.6 * lines + 0.9)
    panels = figure.subplots(lines, min(COLUMNS, len(settings)), squeeze=False, sharex=True).flatten()
    for axes, setting in zip(panels, settings, strict=False):
        _panel(axes, outcome, setting, steps)
    for axes in panels[len(settings) :]:
        axes.set_visible(False)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(LENGTHS), frameon=False, fontsize=9)
    figure.suptitle(f"Perplexity after {steps} steps, in that with alpha 0", fontsize=11)
    return figure


def _panel(axes: Any, outcome: Outcome, setting: Setting, steps: int) -> None:
    axes.axhline(1, color=GREY, linewidth=0.9)
    for at, (factor, colour) in enumerate(zip(LENGTHS, COLOURS, strict=False)):
        for place, alpha in enumerate(ALPHAS[1:]):
            ratio = outcome.ratio(Point(setting, alpha, steps), Point(setting, 0.0, steps), (factor,))
            label = f"{factor} x the model's length" if place == 0 else None
            x = place + 0.13 * (at - 1.5)
            axes.plot([], [], "o", color=colour, label=label)
            if ratio is not None:
                axes.plot(x, ratio.value, "o", markersize=4, color=colour)
                if ratio.low is not None:
                    axes.plot([x, x], [ratio.low, ratio.high], color=colour, linewidth=1.2)
    axes.set_xticks(range(len(ALPHAS) - 1), [f"{alpha:g}" for alpha in ALPHAS[1:]])
    axes.set(xlabel="alpha", xlim=(-0.5, len(ALPHAS) - 1.5))
    axes.set_title(setting.label, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e4de", linewidth=0.6)
    axes.set_axisbelow(True)
