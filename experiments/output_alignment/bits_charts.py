"""A figure's curves: test loss against length, medians over seeds with their range, training lengths shaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments._lib.draw import blank
from experiments.output_alignment.bits_findings import Curves, loss_at

# Okabe and Ito's, which colour-blind readers can tell apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY = "#7d848c"


def chart(title: str, lines: Mapping[str, Curves], train_length: int, others: Mapping[str, list[float]] | None = None) -> Any:
    """Logarithmic on the left; the same linearly on the right, as the paper draws it. `others` are dotted, from length 1 on."""
    figure = blank(11, 3.9)
    for axes, scale in zip(figure.subplots(1, 2), ("log", "linear"), strict=True):
        axes.axvspan(1, train_length, color="#d55e00", alpha=0.08, linewidth=0)
        for colour, (label, curves) in zip(COLOURS, lines.items(), strict=False):
            at = range(1, len(curves[0].losses) + 1)
            found = [loss_at(curves, length) for length in at]
            axes.plot(at, [one.middle for one in found], color=colour, linewidth=1.5, label=label)
            low, high = [one.low for one in found], [one.high for one in found]
            axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
        for at_most, (label, losses) in enumerate((others or {}).items()):
            style = (":", "--", "-.")[at_most % 3]
            axes.plot(range(1, len(losses) + 1), losses, color=GREY, linewidth=1.1, linestyle=style, label=label)
        axes.set(xlabel="length in bits", ylabel="mean squared error", yscale=scale, xlim=(1, None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e4de", linewidth=0.6)
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure
