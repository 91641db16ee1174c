"""Long perplexity against each measure: a dot a row, a colour a length, a sign a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments._lib.draw import blank
from experiments.output_alignment.bits_charts import COLOURS
from experiments.output_alignment.correlation_findings import MEASURES, groups, told
from experiments.output_alignment.correlation_rows import Row
from experiments.rope_methods.contenders import PLAIN

SIGNS = "os^Dv*P"
INK = "#1d2126"


def chart(rows: Sequence[Row]) -> Any:
    """The plain model has a dark rim."""
    figure = blank(12, 4.8)
    factors = sorted({row.factor for row in rows})
    models = list(dict.fromkeys(row.model for row in rows))
    found = groups(rows)[0].strength()
    for axes, (measure, label) in zip(figure.subplots(1, len(MEASURES), sharey=True), MEASURES.items(), strict=True):
        for model, sign in zip(models, SIGNS * len(models), strict=False):
            for factor, colour in zip(factors, COLOURS * len(factors), strict=False):
                own = [row for row in rows if (row.model, row.factor) == (model, factor)]
                for some, rim in ((False, "white"), (True, INK)):
                    dots = [row for row in own if (row.method == PLAIN) == some]
                    at = [getattr(row, measure).mean for row in dots], [row.log_ppl.mean for row in dots]
                    axes.scatter(
                        *at, s=70 if some else 34, c=colour, marker=sign, edgecolors=rim, linewidths=1.4 if some else 0.5
                    )
        axes.set(xlabel=f"{label}, nats")
        axes.set_title(f"{label}: {told(found.of[measure])}" if found else label, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e4e4de", linewidth=0.6)
        axes.set_axisbelow(True)
    figure.axes[0].set_ylabel("log of long perplexity")
    _legend(figure, models, factors)
    figure.suptitle("Long perplexity against what is measured up to the training length; Spearman's coefficients", fontsize=11)
    return figure


def _legend(figure: Any, models: Sequence[str], factors: Sequence[float]) -> None:
    axes = figure.axes[-1]
    for factor, colour in zip(factors, COLOURS * len(factors), strict=False):
        axes.scatter([], [], s=34, c=colour, label=f"{factor:g} x the training length")
    for model, sign in zip(models, SIGNS * len(models), strict=False):
        axes.scatter([], [], s=34, c="#7d848c", marker=sign, label=model)
    axes.scatter([], [], s=70, c="white", edgecolors=INK, linewidths=1.4, label="without a method")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize=9)
