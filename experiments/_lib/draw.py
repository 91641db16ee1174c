"""The one place that draws: matplotlib figures without a screen, the same bytes whenever the same numbers are drawn.

figure, panels = draw.panels(2, titles=["10 documents", "20 documents"])
draw.curve(panels[0], lengths, means, low, high, label="none", at=0)
draw.save(figure, Path("results/figure.svg"))
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lengthwise.common.files import write_whole

DOTS = 110  # per inch
# Okabe and Ito's, which colour-blind readers can tell apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
INK, GREY, FAINT = "#1d2126", "#7d848c", "#e4e4de"
SMALL = 8  # letters of keys and ticks
KEY = 0.6  # inches below panels, for the key
# Letters stay letters, and names of clipping paths do not depend on the day
SETTINGS = {"svg.hashsalt": "lengthwise", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 10}


def blank(width: float, height: float, arranged: bool = True) -> Any:
    """An empty figure of so many inches, which arranges what is put on it unless told otherwise."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        return Figure((width, height), layout="constrained" if arranged else None)


def panels(
    count: int,
    columns: int = 3,
    width: float = 4.6,
    height: float = 3.4,
    titles: Sequence[str] = (),
    share_y: bool = False,
    left: float = 0.7,
    key: float = KEY,
) -> tuple[Any, list[Any]]:
    """A figure of equal panels in rows of at most `columns`, with a quiet frame and grid each, and room for a key below.

    Sizes are in inches: `width` and `height` of a panel with its labels, `left` of the labels at its side, `key` of the room
    below. Places are computed here because matplotlib's own arranging takes longer than drawing.
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    across, down = width * columns, height * rows + key
    figure = blank(across, down, arranged=False)
    place = {"left": left / across, "right": 1 - 0.15 / across, "top": 1 - 0.3 / down, "bottom": (key + 0.5) / down}
    place |= {"wspace": (left + 0.05) / (width - left - 0.05), "hspace": 0.85 / (height - 0.85)}
    every = figure.subplots(rows, columns, squeeze=False, sharey=share_y, gridspec_kw=place).flatten().tolist()
    for axes in every[count:]:
        axes.remove()
    for at, axes in enumerate(every[:count]):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=SMALL)
        if at < len(titles):
            axes.set_title(titles[at])
    return figure, every[:count]


def colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


def curve(
    axes: Any,
    x: Sequence[float],
    y: Sequence[float],
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    *,
    label: str | None = None,
    at: int = 0,
    **style: Any,
) -> None:
    """A line with a mark at every point, intervals as a band (a single one as a bar); `at` chooses colour and mark."""
    how: dict[str, Any] = {
        "color": colour(at),
        "marker": MARKERS[at % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.4,
        **style,
    }
    axes.plot(x, y, label=label, **how)
    if low is not None and high is not None and len(x) > 1:
        axes.fill_between(x, low, high, color=how["color"], alpha=0.15, linewidth=0)
    elif low is not None and high is not None:
        # A band of no width would not be seen
        axes.vlines(x, low, high, color=how["color"], alpha=0.4)


def intervals(axes: Any, rows: Sequence[tuple[str, float, float, float]], *, at: int = 0, **style: Any) -> None:
    """Values with their intervals, one below the other, each beside its name."""
    places = range(len(rows))
    values = [value for _, value, _, _ in rows]
    wings = [[v - low for _, v, low, _ in rows], [high - v for _, v, _, high in rows]]
    axes.errorbar(values, places, xerr=wings, **{"fmt": "o", "markersize": 4, "color": colour(at), "linewidth": 1.2, **style})
    axes.set_yticks(places, [name for name, *_ in rows], fontsize=SMALL)
    axes.invert_yaxis()


def length_axis(axes: Any, lengths: Sequence[int], label: str = "tokens") -> None:
    """A logarithmic axis of lengths that names those measured."""
    axes.set_xscale("log")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths], fontsize=SMALL)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(label)


def train_length(axes: Any, length: float) -> None:
    """A dashed line where training ended."""
    axes.axvline(length, color=GREY, linewidth=0.9, linestyle=(0, (4, 4)))


def key(figure: Any, axes: Any, columns: int = 4) -> None:
    """One key for the whole figure, below it, of what `axes` shows; its lines are long enough to tell their dashes apart."""
    handles, names = axes.get_legend_handles_labels()
    for most in range(columns, 0, -1):
        shown = figure.legend(handles, names, loc="lower center", ncols=most, frameon=False, fontsize=SMALL, handlelength=3.6)
        if most == 1 or shown.get_window_extent().width <= figure.bbox.width:
            return
        shown.remove()


def save(figure: Any, file: Path) -> None:
    """Written whole, by its ending .png or .svg, without a date or a version."""
    import matplotlib

    drawn = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if file.suffix == ".svg" else {"Software": None}
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(drawn, format=file.suffix.removeprefix("."), dpi=DOTS, metadata=metadata)
    write_whole(file, _smaller(drawn) if file.suffix == ".png" else drawn.getvalue())


def _smaller(drawn: io.BytesIO) -> bytes:
    """The same picture by a palette, where only greys of its letters must be left out: a byte a dot instead of four."""
    from PIL import Image

    whole = Image.open(drawn).convert("RGB")
    if whole.getcolors(512) is None:
        return drawn.getvalue()
    small = io.BytesIO()
    whole.quantize(256, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()
