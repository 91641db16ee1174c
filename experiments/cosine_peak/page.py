"""The page of Theorem 3.4: the theorem's peak beside the measured ones, layer by layer, and its own case."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.results import read
from lengthwise.common.files import write_whole

RESULTS, PAGE, FIGURE = (f"peak.{ending}" for ending in ("json", "md", "svg"))
WORDS = words_beside(__file__)

Numbers = Mapping[str, Any]


def write_pages(results: Path, out: Path) -> None:
    """The page and Figure 4, from RESULTS/peak.json."""
    document = read(results / RESULTS)
    draw.save(chart(document), out / FIGURE)
    write_whole(out / PAGE, page(document))


def page(document: Numbers) -> str:
    models, spheres = document["models"], document["spheres"]
    about = WORDS["about"].format(**document)
    parts = ["# Theorem 3.4: the peak of the cosines", about, f"![Peaks of the cosines]({FIGURE})"]
    parts += [_models(models), "## Layer by layer", _layers(models)]
    parts += ["## The theorem itself", WORDS["sphere"].format(**document), _spheres(spheres)]
    return "\n\n".join(parts) + "\n"


def _models(models: Sequence[Numbers]) -> str:
    rows = []
    for one in models:
        peaks = [_off(one["whole"][kind], one["theory"]) for kind in ("bare", "weighted")]
        pairs = f"{one['whole']['pairs']:,.0f}"
        rows.append([one["model"], f"{one['scale']:g}", f"{one['theory']:.3f}", *peaks[0], *peaks[1], pairs])
    return table(["model", "CosScale", "theorem", "bare", "off by", "weighted", "off by", "pairs"], rows)


def _layers(models: Sequence[Numbers]) -> str:
    rows = [
        [one["model"], kind, f"{one['theory']:.3f}", *(f"{layer[kind]:.3f}" for layer in one["layers"])]
        for one in models
        for kind in ("bare", "weighted")
    ]
    depth = max(len(one["layers"]) for one in models)
    return table(["model", "peak", "theorem", *(f"layer {at}" for at in range(depth))], rows)


def _spheres(spheres: Sequence[Numbers]) -> str:
    rows = []
    for one in spheres:
        exact, drawn = _off(one["exact"], one["theory"]), _off(one["drawn"]["weighted"], one["theory"])
        rows.append([f"{one['scale']:g}", f"{one['theory']:.3f}", *exact, *drawn, f"{one['drawn']['pairs']:,.0f}"])
    return table(["CosScale", "theorem", "exact", "off by", "random pairs", "off by", "pairs"], rows)


def _off(value: float, theory: float) -> tuple[str, str]:
    return f"{value:.3f}", f"{value / theory - 1:+.1%}"


def theorem(scale: float, size: int) -> float:
    """Theorem 3.4's peak, as lengthwise's CosScale has it."""
    return (math.sqrt((size - 3) ** 2 + 4 * scale**2) - (size - 3)) / (2 * scale)


def chart(document: Numbers) -> Any:
    """The theorem's curve, both measured peaks, and those of random directions; small dots are layers."""
    models, spheres = document["models"], document["spheres"]
    figure, (axes,) = draw.panels(1, width=7.5, height=5, titles=["Where cosines of queries and keys peak"])
    scales = [4 * (1.3 * max(one["scale"] for one in models) / 4) ** (at / 199) for at in range(200)]
    axes.plot(scales, [theorem(scale, document["key_size"]) for scale in scales], color=draw.INK, label="Theorem 3.4")
    for kind, place, marker, shift in (("bare", 1, "o", 0.97), ("weighted", 0, "^", 1.03)):
        at = [shift * one["scale"] for one in models]
        words = "bare cosines" if kind == "bare" else "cosines weighted by e^(S cos)"
        axes.plot(at, [one["whole"][kind] for one in models], marker, color=draw.colour(place), markersize=8, label=words)
        for x, one in zip(at, models, strict=True):
            layers = [layer[kind] for layer in one["layers"]]
            axes.plot([x] * len(layers), layers, ".", color=draw.colour(place), markersize=3)
    drawn = [one["drawn"]["weighted"] for one in spheres]
    axes.plot([one["scale"] for one in spheres], drawn, "x", color=draw.GREY, label="weighted, random directions")
    axes.set(xscale="log", ylabel="peak of the cosines")
    ticks = [one["scale"] for one in models]
    axes.set_xticks(ticks, [f"{scale:g}" for scale in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("CosScale S")
    axes.legend(frameon=False, fontsize=draw.SMALL)
    return figure
