"""The line charts: training losses (Figures 2 and 3), the theorem and what is measured (Figure 4), perplexity by length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments._lib.draw import blank
from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.losses import Loss
from experiments.entropy_invariance.rows import METHODS, Row, fourfold
from experiments.entropy_invariance.verdicts import Cells, lengths
from lengthwise.methods.similarity.cosscale import peak

# Okabe and Ito's, which colour-blind readers can tell apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
BLACK, GREY = "#1d2126", "#7d848c"
KINDS = {(False, False): ("plain", GREY), (True, False): ("CosScale", COLOURS[4])}
KINDS |= {(False, True): ("InfoScale", COLOURS[0]), (True, True): ("both", COLOURS[2])}

Losses = Mapping[Configuration, Sequence[Loss]]


def figure_2_3(losses: Losses) -> Any:
    """Base models on the left; then the tuned ones, with CosScale and without."""
    base = {one: curve for one, curve in losses.items() if one.base is None}
    tuned = {one: curve for one, curve in losses.items() if one.base is not None}
    panels = {
        "Base models": base,
        "Tuned, with CosScale": {one: curve for one, curve in tuned.items() if one.cos_scale is not None},
        "Tuned, without": {one: curve for one, curve in tuned.items() if one.cos_scale is None},
    }
    figure = blank(15, 5.6)
    for axes, (title, own) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for at, (one, curve) in enumerate(sorted(own.items(), key=lambda pair: _place(pair[0]))):
            _loss(axes, one, curve, _colour(one, at))
        axes.set(title=title, xlabel="step", ylabel="training loss, nats")
        _quiet(axes)
        if own:
            axes.legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    return figure


def _loss(axes: Any, one: Configuration, curve: Sequence[Loss], colour: Any) -> None:
    """Training as a line, held-out windows as dots of the same colour."""
    points = [(loss.step, loss.loss) for loss in curve if loss.kind == "training"]
    style = "--" if one.cos_scale is None else "-"
    axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, linewidth=1.2, label=one.name)
    if held := [(loss.step, loss.loss) for loss in curve if loss.kind == "held out"]:
        axes.plot(*zip(*held, strict=True), color=colour, linestyle="", marker="o", markersize=2.5)


def _colour(one: Configuration, at: int) -> Any:
    """Base models by their S, tuned ones and ALiBi by their place."""
    if one.base is not None or one.positions != "rope":
        return COLOURS[at % len(COLOURS)]
    if one.cos_scale is None:
        return BLACK
    from matplotlib import colormaps

    return colormaps["viridis"](0.9 * min(1.0, math.log2(one.cos_scale / 8) / math.log2(600 / 8)))


def _place(one: Configuration) -> tuple[bool, float, str]:
    return one.positions != "rope", one.cos_scale or 0.0, one.name


def figure_4(document: Mapping[str, Any]) -> Any:
    """From peak.json: the theorem's curve, both measured peaks, and those of a random sphere; small dots are layers."""
    models, spheres = document["models"], document["spheres"]
    figure = blank(7.5, 5)
    axes = figure.subplots()
    scales = np.geomspace(4, 1.3 * max(one["scale"] for one in models), 200)
    axes.plot(scales, [peak(scale, document["key_size"]) for scale in scales], color=BLACK, label="Theorem 3.4")
    for kind, colour, marker, shift in (("bare", COLOURS[1], "o", 0.97), ("weighted", COLOURS[0], "^", 1.03)):
        at = [shift * one["scale"] for one in models]
        words = "bare cosines" if kind == "bare" else "cosines weighted by e^(S cos)"
        axes.plot(at, [one["whole"][kind] for one in models], marker, color=colour, markersize=8, label=words)
        for x, one in zip(at, models, strict=True):
            axes.plot([x] * len(one["layers"]), [layer[kind] for layer in one["layers"]], ".", color=colour, markersize=3)
    drawn = [one["drawn"]["weighted"] for one in spheres]
    axes.plot([one["scale"] for one in spheres], drawn, "x", color=GREY, label="weighted, random directions")
    axes.set(xscale="log", xlabel="CosScale S", ylabel="peak of the cosines", title="Where cosines of queries and keys peak")
    ticks = [one["scale"] for one in models]
    axes.set_xticks(ticks, [f"{scale:g}" for scale in ticks])
    axes.minorticks_off()
    _quiet(axes)
    axes.legend(frameon=False)
    return figure


def perplexities(cells: Cells) -> Any:
    """A panel a method: plain, with either scale, with both; bands are 95 % intervals."""
    figure = blank(15, 6.4)
    grid = figure.subplots(2, math.ceil(len(METHODS) / 2), sharex=True, sharey=True)
    for axes, method in zip(grid.flat, METHODS, strict=True):
        for row in fourfold(method):
            _perplexity(axes, cells, row)
        axes.set(title=method, xscale="log", yscale="log")
        at = lengths(cells)
        axes.set_xticks(at, [f"{length:,}" for length in at], fontsize=7)
        axes.minorticks_off()
        _quiet(axes)
    for axes in grid[:, 0]:
        axes.set_ylabel("perplexity")
    for axes in grid[-1]:
        axes.set_xlabel("tokens")
    handles, labels = grid.flat[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def _perplexity(axes: Any, cells: Cells, row: Row) -> None:
    at = [length for length in lengths(cells) if (row, length) in cells]
    scores = [cells[row, length].score for length in at]
    label, colour = KINDS[row.cos is not None, row.law is not None]
    axes.plot(at, [one.perplexity for one in scores], color=colour, marker="o", markersize=3, label=label)
    axes.fill_between(
        at,
        [one.perplexity_low for one in scores],
        [one.perplexity_high for one in scores],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )


def _quiet(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e4de", linewidth=0.6)
    axes.set_axisbelow(True)
