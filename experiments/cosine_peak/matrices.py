"""Draws Figures 5, 6 and 7 of Entropy Invariance: cosines of queries and keys, and attention, of the last layer.

    python -m experiments.cosine_peak.matrices --data DATA --out OUT

OUT is the folder of experiments.entropy_invariance.train; models that are not there are left out. All see the beginning of the
same held-out chapter. Draws OUT/figure_5.png ... figure_7.png. Cosines are pooled by their mean, attention by its maximum, so
that a diagonal stays visible.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, adaptive_max_pool2d, normalize

import lengthwise as lw
from experiments._lib import draw
from experiments._lib.chinese_novels import Special, beginning, held_out
from experiments._lib.command import main, option
from experiments._lib.gau_cosines import before_rotation
from experiments.cosine_peak.run import BINS, histogram
from lengthwise.attention import Equation, RowStatistics
from lengthwise.attention.reference import logits
from lengthwise.models.load import load

PLAIN = "plain"
SCALES = (8.0, 16.0, 32.0, 64.0, 96.0, 128.0, 256.0, 600.0)
# Figure 7: S, and the method that its model is used with
SEVENTH = {16.0: ("(a) S = 16 in a window", "window"), 128.0: ("(b) S = 128", "none")}
COARSE = 50  # bins that make one of a drawn histogram
# Few colours and few cells keep the files of noisy matrices small
SHADES, SIDE = 24, 128
FAINT = -15.0  # ln of attention that is drawn as none


@dataclass(frozen=True, kw_only=True)
class Options:
    """One call."""

    data: Path = option(help="folder with zh/*.txt and gau_vocab/vocab.txt")
    out: Path = option(help="folder of the trained models")
    device: str | None = option(None, "cuda where there is one")
    tokens: tuple[int, ...] = option((1024, 512, 4096), "of Figures 5, 6 and 7")
    region: tuple[int, ...] = (3516, 3536)  # the corner of Figure 7, first and last token


@dataclass(frozen=True)
class Matrices:
    """The last layer's matrices, [tokens, tokens] each."""

    before: Tensor  # cosines
    after: Tensor  # cosines, rotated
    attention: Tensor  # 0 where a row does not see


class LastLayer:
    """Keeps what the last layer solves: each layer takes the place of the one before it."""

    equation: Equation

    def before(self, layer: int, equation: Equation) -> Equation:
        self.equation = equation
        return equation

    def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None:
        pass


@torch.inference_mode()
def matrices(model: Any, ids: NDArray[np.int64], method: str = "none") -> Matrices:
    cosines: list[Tensor] = []
    unit, observer = model.model.layers[-1].attention, LastLayer()
    hook = unit.register_forward_pre_hook(lambda unit, args: cosines.append(before_rotation(unit, args[0])))
    try:
        with lw.extend(model, method, observer=observer):
            model.model(torch.from_numpy(ids)[None].to(model.device))
    finally:
        hook.remove()
    after = normalize(observer.equation.query, dim=-1) @ normalize(observer.equation.key, dim=-1).transpose(-1, -2)
    hidden = ~observer.equation.visible.mask()[:, None]
    scores = logits(observer.equation).masked_fill(hidden, -torch.inf)
    return Matrices(cosines[0][0], after[0, 0], scores.softmax(-1)[0, 0])


def pooled(matrix: Tensor, largest: bool) -> NDArray[np.float32]:  # at most [SIDE, SIDE]
    pool = adaptive_max_pool2d if largest else adaptive_avg_pool2d
    return np.asarray(pool(matrix[None].float(), min(SIDE, len(matrix)))[0].cpu().numpy(), np.float32)


def run(options: Options) -> None:
    """Measures all models that are there, and draws the three figures."""
    chapter = held_out(options.data, max(options.tokens))[0]
    fifth, sixth, seventh = {}, {}, {}
    for scale in (None, *SCALES):
        name = PLAIN if scale is None else f"S = {scale:g}"
        export = options.out / ("rope" if scale is None else f"rope-cos{scale:g}") / "export"
        if not (export / "config.json").is_file():
            print(f"{export.parent.name} is not trained in {options.out}: left out", flush=True)
            continue
        model, tokenizer = load(str(export), device=options.device)
        texts = [beginning(chapter, length, Special.of(tokenizer)) for length in options.tokens]
        sixth[name] = matrices(model, texts[1])
        if scale is not None:
            fifth[name] = matrices(model, texts[0])
        if scale in SEVENTH:
            title, method = SEVENTH[scale]
            seventh[title] = matrices(model, texts[2], method)
    draw.save(figure_5(fifth), options.out / "figure_5.png")
    draw.save(figure_6(sixth), options.out / "figure_6.png")
    draw.save(figure_7(seventh, options.region[0], options.region[1]), options.out / "figure_7.png")


def figure_5(models: Mapping[str, Matrices]) -> Any:
    """Cosines before the rotation above, after it below; each column has a scale of its own."""
    figure = draw.blank(2.1 * len(models), 5.6)
    for (name, own), column in zip(models.items(), figure.subplots(2, len(models), squeeze=False).T, strict=True):
        pair = [pooled(matrix, largest=False) for matrix in (own.before, own.after)]
        ends = {"vmin": min(map(np.min, pair)), "vmax": max(map(np.max, pair))}
        shown = [axes.imshow(matrix, **_shades("viridis"), **ends) for axes, matrix in zip(column, pair, strict=True)]
        column[0].set_title(name, fontsize=10)
        figure.colorbar(shown[0], ax=list(column), location="bottom", shrink=0.9).ax.tick_params(labelsize=7)
        for axes, words in zip(column, ("before the rotation", "after the rotation"), strict=True):
            axes.set(xticks=[], yticks=[], ylabel=words)
    figure.suptitle(f"Cosines of queries and keys, last layer, {len(own.before):,} tokens")
    return figure


def figure_6(models: Mapping[str, Matrices]) -> Any:
    """Which cosines before the rotation attention goes to, and the logarithm of attention."""
    figure = draw.blank(2.1 * len(models), 4.6)
    above, below = figure.subplots(2, len(models), squeeze=False, height_ratios=(0.8, 1))
    for (name, own), upper, lower in zip(models.items(), above, below, strict=True):
        for weights, label, colour in ((None, "all pairs", draw.GREY), (own.attention, "by attention", draw.COLOURS[1])):
            counts = histogram(own.before, weights).reshape(-1, COARSE).sum(1)
            edges = np.linspace(-1, 1, BINS // COARSE + 1)
            upper.stairs(counts / counts.sum(), edges, fill=True, alpha=0.5, color=colour, label=label)
        upper.set(yticks=[], xlim=(-1, 1), ylim=(0, None))
        upper.set_title(name, fontsize=10)
        faint = pooled(own.attention, largest=True).clip(np.exp(FAINT))
        shown = lower.imshow(np.log(faint), **_shades("magma"), vmin=FAINT, vmax=0)
        lower.set(xticks=[], yticks=[])
    below[0].set_ylabel("ln attention")
    above[0].legend(frameon=False, fontsize=6)
    figure.colorbar(shown, ax=list(below), location="right", shrink=0.9).ax.tick_params(labelsize=7)
    figure.suptitle(f"Cosines before the rotation and attention after the softmax, last layer, {len(own.before):,} tokens")
    return figure


def figure_7(models: Mapping[str, Matrices], first: int, last: int) -> Any:
    """Attention over the whole input, and a corner of it token by token; colours end at the corner's largest value."""
    figure = draw.blank(9.6, 4.6 * len(models))
    for (title, own), (whole, corner) in zip(models.items(), figure.subplots(len(models), 2, squeeze=False), strict=True):
        n, region = len(own.attention), own.attention[first:last, first:last].float().cpu().numpy()
        ends = {**_shades("magma"), "vmin": 0.0, "vmax": float(region.max())}
        whole.imshow(pooled(own.attention, largest=True), extent=(0, n, n, 0), **ends)
        shown = corner.imshow(region, extent=(first, last, last, first), **ends)
        whole.set_title(title, fontsize=10)
        corner.set_title(f"tokens {first:,} to {last - 1:,}", fontsize=10)
        figure.colorbar(shown, ax=[whole, corner], location="right", shrink=0.85).ax.tick_params(labelsize=7)
    figure.suptitle(f"Attention, last layer, {n:,} tokens")
    return figure


def _shades(name: str) -> dict[str, Any]:
    """Arguments of `imshow` that draw every dot in one of few colours, none in between."""
    from matplotlib import colormaps

    return {"cmap": colormaps[name].resampled(SHADES), "interpolation": "nearest"}


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
