"""Matrices of the last layer as Figures 5, 6 and 7 show them: measured into one small file, and drawn from it.

    python -m experiments.cosine_peak.matrices --data DATA --out OUT

OUT is the folder of experiments.entropy_invariance.train; models that are not there are left out. All see the beginning of the
same held-out chapter. Draws OUT/figure_5.png ... figure_7.png; OUT/figures.npz holds, by key, pooled to at most 256 x 256:

    5-before-S, 5-after-S   cosines of queries and keys before and after the rotation, models with CosScale S
    6-log-S                 ln of the attention after the softmax;  S is `plain` for the model without CosScale
    6-counts-S              histograms of cosines: before and after the rotation, each bare and weighted by the attention
    7-window, 7-cosine      ln of the attention: S = 16 in a window, S = 128;  -region: a corner of it, unpooled, as it is
    about                   lengths, chapter and region, as JSON

Cosines are pooled by their mean, attention by its maximum, so that a diagonal stays visible.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
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
from experiments._lib.chinese_novels import Chapter, Special, beginning, held_out
from experiments._lib.command import main, option
from experiments.cosine_peak.run import BINS, before_rotation, histogram
from lengthwise.attention import Equation, RowStatistics
from lengthwise.attention.reference import logits
from lengthwise.errors import BadInput
from lengthwise.models.load import load

FILE = "figures.npz"
SIDE = 256
LEAST = -40.0  # ln of what counts as no attention
PLAIN = "plain"
SCALE, WINDOW_SCALE = 128.0, 16.0
SCALES = (8.0, 16.0, 32.0, 64.0, 96.0, 128.0, 256.0, 600.0)
COARSE = 50  # bins that make one of a drawn histogram
# Few colours and few cells keep the files of noisy matrices small
SHADES, CELLS = 24, 128
FAINT = -15.0  # ln of attention that is drawn as none
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """One call; tokens of the inputs of each figure."""

    data: Path = option(help="folder with zh/*.txt and gau_vocab/vocab.txt")
    out: Path = option(help="folder of the trained models")
    device: str | None = option(None, "cuda where there is one")
    figure_5: int = option(1024, "tokens of Figure 5")
    figure_6: int = option(512, "tokens of Figure 6")
    figure_7: int = option(4096, "tokens of Figure 7")
    region: tuple[int, ...] = option((3516, 3536), "the corner of Figure 7, first and last token")


@dataclass(frozen=True)
class Matrices:
    """The last layer's matrices, [tokens, tokens] each."""

    before: Tensor  # cosines
    after: Tensor  # cosines, rotated
    attention: Tensor  # 0 where a row does not see


class LastLayer:
    """Keeps what the last layer solves."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.equation: Equation | None = None

    def before(self, layer: int, equation: Equation) -> Equation:
        if layer == self.last:
            self.equation = equation
        return equation

    def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None:
        pass


@torch.inference_mode()
def matrices(model: Any, ids: NDArray[np.int64], method: str = "none") -> Matrices:
    units = [layer.attention for layer in model.model.layers]
    cosines: list[Tensor] = []
    hook = units[-1].register_forward_pre_hook(lambda unit, args: cosines.append(before_rotation(unit, args[0])))
    observer = LastLayer(len(units) - 1)
    try:
        with lw.extend(model, method, observer=observer):
            model.model(torch.from_numpy(ids)[None].to(model.device))
    finally:
        hook.remove()
    assert observer.equation is not None
    after = normalize(observer.equation.query, dim=-1) @ normalize(observer.equation.key, dim=-1).transpose(-1, -2)
    hidden = ~observer.equation.visible.mask()[:, None]
    scores = logits(observer.equation).masked_fill(hidden, -torch.inf)
    return Matrices(cosines[0][0], after[0, 0], scores.softmax(-1)[0, 0])


def pooled(matrix: Tensor, largest: bool) -> NDArray[np.float16]:  # at most [SIDE, SIDE]
    pool = adaptive_max_pool2d if largest else adaptive_avg_pool2d
    small = pool(matrix[None].float(), min(SIDE, len(matrix)))[0]
    return np.asarray(small.cpu().numpy(), np.float16)


def logarithm(attention: Tensor) -> NDArray[np.float16]:
    return pooled(attention.double().log().clamp_min(LEAST), largest=True)


def measure_5(model: Any, ids: NDArray[np.int64], name: str) -> dict[str, NDArray[Any]]:
    last = matrices(model, ids)
    return {f"5-{kind}-{name}": pooled(getattr(last, kind), largest=False) for kind in ("before", "after")}


def measure_6(model: Any, ids: NDArray[np.int64], name: str) -> dict[str, NDArray[Any]]:
    last = matrices(model, ids)
    counts = [histogram(cosines, weights) for cosines in (last.before, last.after) for weights in (None, last.attention)]
    return {f"6-log-{name}": logarithm(last.attention), f"6-counts-{name}": np.stack(counts).astype(np.float32)}


def measure_7(model: Any, ids: NDArray[np.int64], name: str, method: str, region: Sequence[int]) -> dict[str, NDArray[Any]]:
    attention = matrices(model, ids, method).attention
    part = attention[slice(*region), slice(*region)]
    return {f"7-{name}": logarithm(attention), f"7-{name}-region": np.asarray(part.float().cpu().numpy())}


def run(options: Options) -> list[str]:
    """Measures, writes and draws; the keys of what is written."""
    chapter = held_out(options.data, max(options.figure_5, options.figure_6, options.figure_7))[0]
    sizes = {name: getattr(options, name) for name in ("figure_5", "figure_6", "figure_7", "region")}
    arrays: dict[str, NDArray[Any]] = {"about": np.array(json.dumps({**sizes, "chapter": chapter.name}))}
    for scale in (None, *SCALES):
        export = options.out / ("rope" if scale is None else f"rope-cos{scale:g}") / "export"
        if not (export / "config.json").is_file():
            print(f"{export.parent.name} is not trained in {options.out}: left out", flush=True)
            continue
        model, tokenizer = load(str(export), device=options.device)
        arrays |= _of_model(model, chapter, Special.of(tokenizer), scale, options)
        print(f"{export.parent.name}: measured", flush=True)
    if len(arrays) == 1:
        raise BadInput(f"no model of these figures is trained in {options.out}; train --cos-scale none 128 first")
    np.savez_compressed(options.out / FILE, **arrays)
    for number, figure in ((5, figure_5), (6, figure_6), (7, figure_7)):
        if any(key.startswith(f"{number}-") for key in arrays):
            draw.save(figure(arrays), options.out / f"figure_{number}.png")
    return list(arrays)


def _of_model(model: Any, chapter: Chapter, special: Special, scale: float | None, options: Options) -> dict[str, NDArray[Any]]:
    name = PLAIN if scale is None else f"{scale:g}"
    first = measure_6(model, beginning(chapter, options.figure_6, special), name)
    if scale is None:
        return first
    arrays = first | measure_5(model, beginning(chapter, options.figure_5, special), name)
    seventh = {WINDOW_SCALE: ("window", "window"), SCALE: ("cosine", "none")}
    if scale in seventh:
        arrays |= measure_7(model, beginning(chapter, options.figure_7, special), *seventh[scale], options.region)
    return arrays


def figure_5(arrays: Arrays) -> Any:
    """Cosines before the rotation above, after it below; each column has a scale of its own."""
    names = _names(arrays, "5-before-")
    figure = draw.blank(2.1 * len(names), 5.6)
    for at, (name, column) in enumerate(zip(names, figure.subplots(2, len(names), squeeze=False).T, strict=True)):
        pair = [_coarser(arrays[f"5-{kind}-{name}"]) for kind in ("before", "after")]
        ends = {"vmin": min(map(np.min, pair)), "vmax": max(map(np.max, pair))}
        shown = [axes.imshow(matrix, **_shades("viridis"), **ends) for axes, matrix in zip(column, pair, strict=True)]
        column[0].set_title(f"S = {name}", fontsize=10)
        figure.colorbar(shown[0], ax=list(column), location="bottom", shrink=0.9).ax.tick_params(labelsize=7)
        for axes, kind in zip(column, ("before", "after"), strict=True):
            _bare(axes, f"{kind} the rotation" if at == 0 else "")
    figure.suptitle(f"Cosines of queries and keys, last layer, {_about(arrays)['figure_5']:,} tokens")
    return figure


def figure_6(arrays: Arrays) -> Any:
    """Which cosines attention goes to, and the logarithm of attention."""
    names = _names(arrays, "6-log-")
    figure = draw.blank(2.1 * len(names), 4.6)
    above, below = figure.subplots(2, len(names), squeeze=False, height_ratios=(0.8, 1))
    for at, (name, upper, lower) in enumerate(zip(names, above, below, strict=True)):
        _histogram(upper, arrays[f"6-counts-{name}"])
        upper.set_title("plain" if name == PLAIN else f"S = {name}", fontsize=10)
        shown = lower.imshow(arrays[f"6-log-{name}"].astype(np.float32), **_shades("magma"), vmin=FAINT, vmax=0)
        _bare(lower, "ln attention" if at == 0 else "")
    above[0].legend(frameon=False, fontsize=6)
    figure.colorbar(shown, ax=list(below), location="right", shrink=0.9).ax.tick_params(labelsize=7)
    figure.suptitle(
        f"Cosines before the rotation and attention after the softmax, last layer, {_about(arrays)['figure_6']:,} tokens"
    )
    return figure


def _histogram(axes: Any, counts: NDArray[Any]) -> None:
    """Cosines before the rotation, bare and by attention."""
    edges = np.linspace(-1, 1, BINS // COARSE + 1)
    for row, label, colour in ((0, "all pairs", draw.GREY), (1, "by attention", draw.COLOURS[1])):
        share = counts[row].astype(np.float64).reshape(-1, COARSE).sum(1) / counts[row].sum(dtype=np.float64)
        axes.stairs(share, edges, fill=True, alpha=0.5, color=colour, label=label)
    axes.set(yticks=[], xlim=(-1, 1), ylim=(0, None))
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right", "left"]].set_visible(False)


def figure_7(arrays: Arrays) -> Any:
    """Attention over the whole input, and a corner of it token by token; colours end at the corner's largest value."""
    about = _about(arrays)
    titles = {"window": f"(a) S = {WINDOW_SCALE:g} in a window", "cosine": f"(b) S = {SCALE:g}"}
    names = [name for name in titles if f"7-{name}" in arrays]
    figure = draw.blank(9.6, 4.6 * len(names))
    for name, (whole, corner) in zip(names, figure.subplots(len(names), 2, squeeze=False), strict=True):
        region = arrays[f"7-{name}-region"]
        ends = {"vmin": 0.0, "vmax": float(region.max())}
        n, (first, last) = about["figure_7"], about["region"]
        whole.imshow(np.exp(arrays[f"7-{name}"].astype(np.float32)), **_shades("magma"), extent=(0, n, n, 0), **ends)
        shown = corner.imshow(region, **_shades("magma"), extent=(first, last, last, first), **ends)
        corner.set(xticks=range(first, last, 5), yticks=range(first, last, 5))
        whole.set_title(titles[name], fontsize=10)
        corner.set_title(f"tokens {first:,} to {last - 1:,}", fontsize=10)
        for axes in (whole, corner):
            axes.tick_params(labelsize=7)
        figure.colorbar(shown, ax=[whole, corner], location="right", shrink=0.85).ax.tick_params(labelsize=7)
    figure.suptitle(f"Attention, last layer, {about['figure_7']:,} tokens")
    return figure


def _names(arrays: Arrays, prefix: str) -> Sequence[str]:
    """Plain first, then by S."""
    return [name for name in (PLAIN, *(f"{scale:g}" for scale in SCALES)) if prefix + name in arrays]


def _about(arrays: Arrays) -> dict[str, Any]:
    return dict(json.loads(str(arrays["about"])))


def _coarser(matrix: NDArray[Any]) -> NDArray[np.float32]:  # at most [CELLS, CELLS]
    """The means of squares of cells; a matrix that is small, or cannot be divided, stays."""
    side, wide = len(matrix), matrix.astype(np.float32)
    if side % CELLS:
        return wide
    return wide.reshape(CELLS, side // CELLS, CELLS, side // CELLS).mean((1, 3))


def _shades(name: str) -> dict[str, Any]:
    """For `imshow`: every dot one of few colours, none in between."""
    from matplotlib import colormaps

    return {"cmap": colormaps[name].resampled(SHADES), "interpolation": "nearest"}


def _bare(axes: Any, label: str) -> None:
    axes.set(xticks=[], yticks=[], ylabel=label)


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
