"""QQ plots of the sorted, averaged logits of the first layer against a normal (the paper's Figures 2 and 5), one a length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lengthwise.analysis.page.figure import Figure
from lengthwise.analysis.records import Analysis, AtLength
from lengthwise.report.formatting import tokens_at
from lengthwise.report.frame import Axis, Box, Chart, Curve, Point, line, nice_ticks
from lengthwise.report.styles import CIRCLE, Style

BOX = Box(width=250, height=230, left=32, right=10, top=10, bottom=24)
MARKED = 24  # points that can be pointed at
ALL = Style("mean of all heads", "c0", CIRCLE)
ONE = Style("one head", "none", "")
NORMAL = Style("a normal", "law", "", dashed=True)


def qq(analysis: Analysis) -> Figure:
    across = nice_ticks(*_range([one.quantiles for one in analysis.lengths]), 8)
    up = nice_ticks(*_range([points for one in analysis.lengths for points in (one.quantiles, *_all(one))]), 8)
    x = BOX.across(across[0], across[-1], [(tick, f"{tick:g}") for tick in across])
    y = BOX.values(up[0], up[-1], [(tick, f"{tick:g}") for tick in up])
    return Figure(
        name="qq",
        title="Sorted, averaged logits of the first layer against a normal",
        caption="Across: quantiles of a normal. Up: the logits at the same ranks, less their mean, over their sigma. "
        "r is the correlation of the points; Gaussian logits lie on the dashed line.",
        panels=tuple(_panel(one, x, y) for one in analysis.lengths),
        columns=4,
        keys=(ALL, ONE, NORMAL),
    )


def _range(plots: Iterable[list[float]]) -> tuple[float, float]:
    """Of values that fall along each plot."""
    ends = [value for points in plots for value in (points[0], points[-1])]
    return min(ends), max(ends)


def _all(one: AtLength) -> list[list[float]]:
    """The mean of all heads, then every head, standardised."""
    own = zip(one.head_logits, one.head_mean, one.head_sigma, strict=True)
    return [standardised(one.logits, one.logit_mean, one.sigma), *(standardised(*head) for head in own)]


def standardised(logits: Sequence[float], mean: float, sigma: float) -> list[float]:
    return [(value - mean) / sigma if sigma > 0 else 0.0 for value in logits]


def _panel(one: AtLength, x: Axis, y: Axis) -> Chart:
    mean, *heads = _all(one)
    paths = [line((x.at(q), y.at(v)) for q, v in zip(one.quantiles, head, strict=True)) for head in heads]
    points = tuple(
        Point(
            x.at(q), y.at(v), x.at(q), f"quantile {q:+.2f}, entry {rank + 1:,} of {one.keys:,}", f"{v:+.2f}, logit {logit:.2f}"
        )
        for rank, q, v, logit in list(zip(one.ranks, one.quantiles, mean, one.logits, strict=True))[:: _step(one)]
    )
    whole = line((x.at(q), y.at(v)) for q, v in zip(one.quantiles, mean, strict=True))
    diagonal = line((x.at(value), y.at(value)) for value in (x.low, x.high))
    return Chart(
        title=f"{tokens_at(one.length)}: r = {'-' if one.qq_r is None else f'{one.qq_r:.4f}'}",
        describe=f"QQ plot of the first layer's sorted, averaged logits at {tokens_at(one.length)} against a normal",
        width=BOX.width,
        height=BOX.height,
        x=x,
        y=y,
        curves=(
            *(Curve(f"head {head + 1}", (), path, style=ONE, opacity=0.5) for head, path in enumerate(paths)),
            Curve("a normal", (), diagonal),
            Curve("mean of all heads", points, whole, style=ALL),
        ),
        small=True,
        unit="quantile of a normal",
    )


def _step(one: AtLength) -> int:
    return max(1, -(-len(one.ranks) // MARKED))
