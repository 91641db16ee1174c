"""The matrices as pictures, from what `matrices` measured: Figures 5, 6 and 7."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments._lib.draw import blank
from experiments.entropy_invariance.cosines import BINS
from experiments.entropy_invariance.matrices import PLAIN
from experiments.entropy_invariance.paper import SCALE, SCALES, WINDOW_SCALE

Arrays = Mapping[str, NDArray[Any]]
COARSE = 50  # bins that make one of a drawn histogram
# Few colours and few cells keep the files of noisy matrices small
SHADES, CELLS = 24, 128
FAINT = -15.0  # ln of attention that is drawn as none


def figure_5(arrays: Arrays) -> Any:
    """Cosines before the rotation above, after it below; each column has a scale of its own."""
    names = _names(arrays, "5-before-")
    figure = blank(2.1 * len(names), 5.6)
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
    figure = blank(2.1 * len(names), 4.6)
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
    """Of the cosines before the rotation, bare and by attention."""
    edges = np.linspace(-1, 1, BINS // COARSE + 1)
    for row, label, colour in ((0, "all pairs", "#7d848c"), (1, "by attention", "#d55e00")):
        share = counts[row].astype(np.float64).reshape(-1, COARSE).sum(1) / counts[row].sum(dtype=np.float64)
        axes.stairs(share, edges, fill=True, alpha=0.5, color=colour, label=label)
    axes.set(yticks=[], xlim=(-1, 1), ylim=(0, None))
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right", "left"]].set_visible(False)


def figure_7(arrays: Arrays) -> Any:
    """Attention over the whole input, and a corner of it token by token; colours end at the corner's largest value."""
    about = _about(arrays)
    titles = {"window": f"(a) S = {WINDOW_SCALE:g} in a window", "cosine": f"(b) S = {SCALE:g}"}
    found = [name for name in titles if f"7-{name}" in arrays]
    figure = blank(9.6, 4.6 * len(found))
    for name, (whole, corner) in zip(found, figure.subplots(len(found), 2, squeeze=False), strict=True):
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
