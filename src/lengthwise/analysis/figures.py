"""The figures of an analysis, after the paper's: sharpness, heads, QQ plots, temperatures, learned bias."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from lengthwise.analysis.records import Analysis, AnswerSlopes, AtLength, Sight
from lengthwise.analysis.tables import ESTIMATES
from lengthwise.common.laws import log_law
from lengthwise.report.charts import Axis, Box, Chart, ChartPoint, Curve, Figure, end_labels, layer_opacity, nice_ticks
from lengthwise.report.formatting import tokens_at
from lengthwise.report.styles import CIRCLE, CROSS, Style

LARGE = Box(width=620, height=340, left=46, right=24, top=26, bottom=40)
MEDIUM = Box(width=360, height=270, left=46, right=24, top=26, bottom=40)
SQUARE_BOX = Box(width=250, height=230, left=32, right=10, top=10, bottom=24)
HEAD_BOX = Box(width=220, height=170, left=36, right=20, top=10, bottom=24)
BIAS_BOX = Box(width=220, height=170, left=36, right=12, top=10, bottom=24)
STATISTICS = {
    "p_max": "P_max, the largest probability of a row",
    "entropy": "entropy of a row, in nats",
    "l_max": "largest logit of a row",
}
STAND_OUT = 6  # heads in colour
MARKED = 24  # points of a QQ plot that can be pointed at
STEPS = 48  # straight pieces of the log law
ALL_HEADS = Style("mean of all heads", "c0", CIRCLE)
ONE_HEAD = Style("one head", "none", "")
NORMAL = Style("a normal", "law", "", dashed=True)
LAW = Style("log law", "law", "", dashed=True)
BIAS = Style("bias", "c0", "")
# As in the paper: what is derived is a curve, what was measured a mark
ESTIMATE_STYLES = {
    "proposition_1": Style(ESTIMATES["proposition_1"], "c0", ""),
    "proposition_2": Style(ESTIMATES["proposition_2"], "c1", ""),
    "pmax": Style(ESTIMATES["pmax"], "c0", CIRCLE, lined=False),
    "entropy": Style(ESTIMATES["entropy"], "c1", CROSS, lined=False),
}
SHARPER, FLATTER = Style("wants sharper", "c0", CIRCLE, lined=False), Style("wants flatter", "c1", CROSS, lined=False)


def figures(analysis: Analysis) -> list[Figure]:
    """Sharpness, heads and QQ plots first; temperatures, answers and bias where the analysis has them."""
    drawn = [sharpness_figure(analysis), heads_figure(analysis), qq_figure(analysis)]
    drawn += [temperatures_figure(analysis)] if analysis.temperatures else []
    return [*drawn, *([answers_figure(analysis)] if analysis.answers else []), *bias_figures(analysis)]


def sharpness_figure(analysis: Analysis) -> Figure:
    """P_max, entropy and largest logit against length, a curve a layer, the mean over its heads (Table 1, by layer)."""
    return Figure(
        name="sharpness",
        title="Attention by length and layer",
        caption="Means over rows and heads, a line a layer; numbers at the end of lines are layers.",
        panels=tuple(_statistic_panel(analysis, statistic) for statistic in STATISTICS),
        columns=3,
    )


def _statistic_panel(analysis: Analysis, statistic: str) -> Chart:
    lengths = [n.length for n in analysis.lengths]
    by_length = [[sum(heads) / len(heads) for heads in getattr(n, statistic)] for n in analysis.lengths]
    layers = list(zip(*by_length, strict=True))  # [layers][lengths]
    x = MEDIUM.lengths([*lengths, analysis.train_length], most_ticks=8)
    values = [value for layer in layers for value in layer]
    y = MEDIUM.values(min(0.0, *values), max(values), 5)
    labels = end_labels([y.at(layer[-1]) for layer in layers])
    curves = []
    for layer, means in enumerate(layers):
        points = ChartPoint.by_length(zip(lengths, means, strict=True), x, y, "{:.3g}")
        style = Style(f"layer {layer + 1}", "c0", CIRCLE)
        opacity = layer_opacity(layer, len(layers))
        curves.append(Curve.through(points, style, end_label=labels[layer], opacity=opacity))
    return Chart(
        title=STATISTICS[statistic],
        description=f"{STATISTICS[statistic]}, against length, a line for each of {len(layers)} layers",
        box=MEDIUM,
        x=x,
        y=y,
        curves=tuple(curves),
        train_x=x.at(analysis.train_length),
    )


def heads_figure(analysis: Analysis) -> Figure:
    """P_max of every head against length, a panel a layer; the heads that disperse most stand out."""
    most = {(head.layer, head.head) for head in analysis.heads[:STAND_OUT]}
    x = HEAD_BOX.lengths([analysis.train_length, *(n.length for n in analysis.lengths)], most_ticks=4)
    y = HEAD_BOX.values(0.0, max(value for n in analysis.lengths for layer in n.p_max for value in layer), 4)
    stand_out = f" In colour, with their numbers: the {len(most)} heads whose P_max falls most." if most else ""
    return Figure(
        name="heads",
        title="P_max of every head by length",
        caption=f"A panel a layer, a line a head.{stand_out}",
        panels=tuple(_layer_panel(analysis, layer, most, x, y) for layer in range(len(analysis.lengths[0].p_max))),
        columns=4,
    )


def _layer_panel(analysis: Analysis, layer: int, most: set[tuple[int, int]], x: Axis, y: Axis) -> Chart:
    curves = []
    for head in range(len(analysis.lengths[0].p_max[layer])):
        points = ChartPoint.by_length(((n.length, n.p_max[layer][head]) for n in analysis.lengths), x, y, "{:.3f}")
        stands_out = (layer + 1, head + 1) in most
        style = Style(f"head {head + 1}", "c1" if stands_out else "none", CIRCLE)
        curves.append(Curve.through(points, style, end_label=str(head + 1) if stands_out else ""))
    return Chart(
        title=f"layer {layer + 1}",
        description=f"P_max of every head of layer {layer + 1} against length",
        box=HEAD_BOX,
        x=x,
        y=y,
        # Those that stand out are drawn last, over the others
        curves=tuple(sorted(curves, key=lambda curve: curve.end_label != "")),
        train_x=x.at(analysis.train_length),
        small=True,
    )


def qq_figure(analysis: Analysis) -> Figure:
    """QQ plots of the sorted, averaged logits of the first layer against a normal (Figures 2 and 5), one a length."""
    across = nice_ticks(*_range([n.quantiles for n in analysis.lengths]), 8)
    x = SQUARE_BOX.across(across[0], across[-1], [(tick, f"{tick:g}") for tick in across])
    y = SQUARE_BOX.values(*_range([plot for n in analysis.lengths for plot in (n.quantiles, *_standardised_plots(n))]), 8)
    return Figure(
        name="qq",
        title="Sorted, averaged logits of the first layer against a normal",
        caption="Across: quantiles of a normal. Up: the logits at the same ranks, less their mean, over their sigma. "
        "r is the correlation of the points; Gaussian logits lie on the dashed line.",
        panels=tuple(_qq_panel(n, x, y) for n in analysis.lengths),
        columns=4,
        keys=(ALL_HEADS, ONE_HEAD, NORMAL),
    )


def _range(plots: Iterable[Sequence[float]]) -> tuple[float, float]:
    """The lowest and highest of plots whose values fall along them."""
    ends = [value for plot in plots for value in (plot[0], plot[-1])]
    return min(ends), max(ends)


def _standardised_plots(n: AtLength) -> list[list[float]]:
    """The mean of all heads, then every head."""
    heads = zip(n.head_logits, n.head_mean, n.head_sigma, strict=True)
    return [standardised(n.logits, n.logit_mean, n.sigma), *(standardised(*head) for head in heads)]


def standardised(logits: Sequence[float], mean: float, sigma: float) -> list[float]:
    return [(value - mean) / sigma if sigma > 0 else 0.0 for value in logits]


def _qq_panel(n: AtLength, x: Axis, y: Axis) -> Chart:
    mean, *heads = _standardised_plots(n)
    lines = [[(x.at(q), y.at(v)) for q, v in zip(n.quantiles, plot, strict=True)] for plot in (mean, *heads)]
    marked = list(zip(n.ranks, n.quantiles, mean, n.logits, strict=True))[:: max(1, -(-len(n.ranks) // MARKED))]
    points = tuple(
        ChartPoint.placed(x, y, q, v, f"quantile {q:+.2f}, entry {rank + 1:,} of {n.keys:,}", f"{v:+.2f}, logit {logit:.2f}")
        for rank, q, v, logit in marked
    )
    return Chart(
        title=f"{tokens_at(n.length)}: r = {'-' if n.qq_r is None else f'{n.qq_r:.4f}'}",
        description=f"QQ plot of the first layer's sorted, averaged logits at {tokens_at(n.length)} against a normal",
        box=SQUARE_BOX,
        x=x,
        y=y,
        curves=(
            *(Curve(f"head {head}", (), line, style=ONE_HEAD, opacity=0.5) for head, line in enumerate(lines[1:], 1)),
            Curve("a normal", (), [(x.at(value), y.at(value)) for value in (x.low, x.high)]),
            Curve("mean of all heads", points, lines[0], style=ALL_HEADS),
        ),
        small=True,
        unit="quantile of a normal",
    )


def temperatures_figure(analysis: Analysis) -> Figure:
    """The temperature against length by every estimate (Figures 3, 4 and 6 to 9)."""
    rows = analysis.temperatures
    x = LARGE.lengths([row.length for row in rows], most_ticks=10)
    taus = [tau for row in rows for name in ESTIMATES if (tau := getattr(row, name)) is not None]
    y = LARGE.values(min([*taus, *(row.log_law for row in rows)]), max([*taus, 1.0]), 6)
    curves = []
    for name, style in ESTIMATE_STYLES.items():
        known = ((row.length, tau) for row in rows if (tau := getattr(row, name)) is not None)
        points = ChartPoint.by_length(known, x, y, "tau = {:.3f}")
        curves.append(Curve.through(points, style))
    chart = Chart(
        title="temperature tau",
        description="The temperature against length by Propositions 1 and 2, by Algorithm 1 and by the log law",
        box=LARGE,
        x=x,
        y=y,
        curves=tuple(curve for curve in (*curves, _law_curve(analysis, x, y)) if curve.points),
        train_x=x.at(analysis.train_length),
    )
    return Figure(
        name="temperatures",
        title="The temperature by length, by five accounts",
        caption="Curves: derived from the first layer's logits (Propositions 1 and 2) or from the length alone (log law). "
        "Marks: measured on the whole model (Algorithm 1).",
        panels=(chart,),
        columns=1,
        keys=(*ESTIMATE_STYLES.values(), LAW),
    )


def _law_curve(analysis: Analysis, x: Axis, y: Axis) -> Curve:
    first, last = math.log2(analysis.train_length), math.log2(analysis.temperatures[-1].length)
    lengths = [2 ** (first + (last - first) * step / STEPS) for step in range(STEPS + 1)]
    points = ChartPoint.by_length(((row.length, row.log_law) for row in analysis.temperatures), x, y, "tau = {:.3f}")
    return Curve("log law", points, [(x.at(n), y.at(log_law(analysis.train_length, n))) for n in lengths])


def answers_figure(analysis: Analysis) -> Figure:
    """The slope of every head at the longest length, a panel a task."""
    longest = max(answers.length for answers in analysis.answers)
    return Figure(
        name="answers",
        title=f"What the answers want of every head, at {tokens_at(longest)}",
        caption="Across: layers. Up: by how many nats an answer gets worse as one head's ln g grows by 1. Heads below 0 want "
        "to be sharper, heads above 0 flatter.",
        panels=tuple(_answers_panel(answers) for answers in analysis.answers if answers.length == longest),
        columns=3,
        keys=(SHARPER, FLATTER),
    )


def _answers_panel(answers: AnswerSlopes) -> Chart:
    layers, every = len(answers.heads), [slope for heads in answers.heads for slope in heads]
    x = MEDIUM.across(0.5, layers + 0.5, [(layer, str(layer)) for layer in range(1, layers + 1, -(-layers // 12))])
    y = MEDIUM.values(min(*every, 0.0), max(*every, 0.0), 5)
    points: dict[Style, list[ChartPoint]] = {SHARPER: [], FLATTER: []}
    for layer, heads in enumerate(answers.heads, 1):
        for head, slope in enumerate(heads, 1):
            labels = f"layer {layer}", f"head {head}: {slope:+.3g}"
            points[SHARPER if slope < 0 else FLATTER].append(ChartPoint.placed(x, y, layer, slope, *labels))
    return Chart(
        title=f"{answers.task}: {answers.slope:+.3g} in all",
        description=f"Slope of the answers to {answers.task} in ln g of every head, by layer",
        box=MEDIUM,
        x=x,
        y=y,
        curves=tuple(Curve.through(tuple(marks), style) for style, marks in points.items() if marks),
        level=y.at(0.0),
        unit="layer",
    )


def bias_figures(analysis: Analysis) -> list[Figure]:
    """The learned bias of every head against distance (Figure 1), a figure for each layer that owns a bias."""
    owners = sorted({head.layer for head in analysis.sights})
    return [_bias_figure([head for head in analysis.sights if head.layer == layer], len(owners) > 1) for layer in owners]


def _bias_figure(heads: list[Sight], several: bool) -> Figure:
    radius = heads[0].radius
    marks = [d for d in (-512, -64, -8, 0, 8, 64, 512) if abs(d) <= radius]
    x = BIAS_BOX.across(signed_log2(-radius), signed_log2(radius), [(signed_log2(d), f"{d:+d}" if d else "0") for d in marks])
    values = [value for head in heads for value in head.bias]
    y = BIAS_BOX.values(min(*values, 0.0), max(*values, 0.0), 5)
    layer = heads[0].layer
    return Figure(
        name=f"bias_layer_{layer}" if several else "bias",
        title=f"Learned bias by distance, layer {layer}" if several else "Learned bias by distance",
        caption="Across: distance of the key in tokens, keys before the row on the left. From near-sighted to far-sighted "
        "heads: in brackets the mean distance a head would look at by its bias alone, at the training length.",
        panels=tuple(_bias_panel(head, x, y) for head in heads),
        columns=4,
    )


def signed_log2(distance: float) -> float:
    """Where a distance is placed: a T5's buckets grow with it, and neighbours would fall on one point of a plain axis."""
    return math.copysign(math.log2(1 + abs(distance)), distance)


def _bias_panel(head: Sight, x: Axis, y: Axis) -> Chart:
    values = dict(zip(range(-head.radius, head.radius + 1), head.bias, strict=True))
    powers = sorted({sign * 2**power for power in range(head.radius.bit_length()) for sign in (-1, 1)} | {0})
    points = tuple(
        ChartPoint.placed(x, y, signed_log2(d), values[d], f"{d:+d} tokens" if d else "the row itself", f"{values[d]:.3f}")
        for d in powers
        if abs(d) <= head.radius
    )
    line = [(x.at(signed_log2(d)), y.at(value)) for d, value in values.items()]
    return Chart(
        title=f"head {head.head} ({head.sight_train:.0f} tokens)",
        description=f"Learned bias of head {head.head} of layer {head.layer} against the distance of the key",
        box=BIAS_BOX,
        x=x,
        y=y,
        curves=(Curve(f"head {head.head}", points, line, style=BIAS),),
        small=True,
        unit="distance in tokens",
    )
