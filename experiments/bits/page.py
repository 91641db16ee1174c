"""The page of the bits: a table and a chart a figure beside the paper's words, then Theorems 1 and 2.

Without positions the last token sees a length l only through means over l + 2 tokens: its state is a function of
s = 1 / (l + 2). A piecewise linear network goes on in a straight line where no data bend it. `straight_on` is that line, the
tangent of f at the training length n, and has no free number:

    z(l) = f(n) + df/ds (s(l) - s(n)),   df/ds = -(n + 2)^2 f'(n),   answer f^-1(z)

`excursion` is how far f(y) must leave its training range: from 10 to 50 the length by 4.4 times that range, 1/sqrt by 0.26.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table
from experiments.bits.linear_attention import length_error, mean_error, sum_error
from lengthwise.common.files import write_whole

RESULTS, PAGE, FIGURE = (f"bits.{ending}" for ending in ("json", "md", "svg"))
LENGTHS = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
TRAIN_LENGTH, TEST_LENGTH = 10, 50
THEOREM_LENGTHS = (11, 20, 30, 40, 50)

# Figure: its title, its target, how its bits are drawn, what tells its curves apart
FIGURES = {
    "1a": ("Mean, four encodings", "mean", "uniform", "positions"),
    "1b": ("Length, four encodings", "length", "uniform", "positions"),
    "1c": ("Length, reparameterised", "length", "uniform", "function"),
    "3a": ("Sum, longer training sequences", "sum", "uniform", "train_length"),
    "3b": ("Length, longer training sequences", "length", "uniform", "train_length"),
    "4a": ("Sum, four encodings", "sum", "uniform", "positions"),
    "4b": ("Sum, reparameterised", "sum", "uniform", "function"),
    "5": ("Mean, four encodings, number of ones uniform", "mean", "uniform ones", "positions"),
}
PAPER = {
    "1a": "without positions the loss of longer sequences stays what it was, about 1e-5.",
    "1b": "whatever the encoding, the loss rises steeply beyond 10 and goes on rising.",
    "1c": "all three improve on the plain target; 1/sqrt is nearly perfect to 35.",
    "3a": "longer training lowers the error, the rising trend remains.",
    "3b": "longer training lowers the error, the rising trend remains.",
    "4a": "models do not generalise, as with lengths.",
    "4b": "reparameterisation improves it significantly.",
    "5": "the model still generalises: it does not just guess a half.",
}
LABELS = ("nope", "rope", "alibi", "learned", "identity", "sqrt", "log", "rsqrt", "reciprocal", "10", "20", "30")

ABOUT = f"""Small decoders read BOS, bits, EOS and answer one number at EOS. Training lengths are 1 to {TRAIN_LENGTH} unless the
figure says otherwise, test lengths 1 to {TEST_LENGTH}. Losses are mean squared errors in the units of the target: the median
over seeds, and in brackets their range, which for five seeds is an interval of 94 % for the median. To a sum 1 is added before
it is reparameterised, because it can be 0. Answers are taken back by z^2, e^z, 1/z^2 and 1/z on the whole line. `identity` is
the plain target; `reciprocal`, f(y) = 1/y, is not the paper's."""
SPECIAL = f"""`leaves its range` is how far f(y) goes beyond its training range up to {TEST_LENGTH}, in sizes of that range;
without positions the last token sees a length l only as 1 / (l + 2), which leaves its range by 0.26. `straight on` is the
answer of a network that goes straight on in it. `within one bit` is the last length before the loss first exceeds 1."""
FLAT = f"""Mean, no positions: the greatest loss from {TRAIN_LENGTH} to {TEST_LENGTH} over that at {TRAIN_LENGTH}, and how many
seeds stay below 1e-05, the paper's loss, at every length. A guess of a half would lose 0.005 on 50 uniform bits."""
THEOREM_2 = f"""Errors of linear attention trained on lengths 1 to {TRAIN_LENGTH}. The paper prints twice this error for the
sum (but E i^2 of l bits is l (l + 1) / 4), and its model for the sum, kappa(0) = 0, is not the best over all lengths."""
THEOREM_1 = """Linear attention with 8-dimensional tokens, trained on lengths 5 to 10 to turn the last token: L_train
{train:.3g}, L_misalign {misalign:.3g}. The printed proof drops factors of 2 and a product of norms; `mended` is what its steps
give with them. There are models on which the printed bound fails (tests)."""

# f, its slope and its inverse, as lengthwise's OutRep has them
FUNCTIONS: dict[str, tuple[Callable[[float], float], Callable[[float], float], Callable[[float], float]]] = {
    "identity": (lambda y: y, lambda y: 1.0, lambda z: z),
    "sqrt": (math.sqrt, lambda y: 0.5 * y**-0.5, lambda z: z**2),
    "log": (math.log, lambda y: 1 / y, math.exp),
    "rsqrt": (lambda y: y**-0.5, lambda y: -0.5 * y**-1.5, lambda z: z**-2),
    "reciprocal": (lambda y: 1 / y, lambda y: -(y**-2), lambda z: 1 / z),
}
Curve = dict[str, Any]
Lines = dict[str, list[Curve]]  # by what tells a figure's curves apart; a curve a seed


def write_pages(results: Path, out: Path) -> None:
    """The page and its charts, from RESULTS/bits.json."""
    document = json.loads((results / RESULTS).read_text())
    figures = {name: lines for name in FIGURES if (lines := lines_of(name, document["curves"]))}
    draw.save(chart(figures), out / FIGURE)
    write_whole(out / PAGE, page(document, figures))


def lines_of(name: str, curves: Sequence[Curve]) -> Lines:
    """The curves of a figure, seeds in order, in the figure's own order."""
    _, target, kind, varies = FIGURES[name]
    wanted = {"target": target, "kind": kind, "positions": "nope", "function": "identity", "train_length": TRAIN_LENGTH}
    lines: Lines = {}
    for curve in sorted(curves, key=lambda curve: curve["seed"]):
        if all(curve[key] == value for key, value in wanted.items() if key != varies):
            lines.setdefault(str(curve[varies]), []).append(curve)
    return {label: lines[label] for label in LABELS if label in lines}


def straight_on(function: str, length: int, n: int = TRAIN_LENGTH) -> float:
    """The answer to `length` on the straight line, for targets that are lengths."""
    f, slope, inverse = FUNCTIONS[function]
    return inverse(f(n) - (n + 2) ** 2 * slope(n) * (1 / (length + 2) - 1 / (n + 2)))


def excursion(function: str, length: int, n: int = TRAIN_LENGTH) -> float:
    """|f(length) - f(n)| in units of |f(n) - f(1)|, for targets that are lengths."""
    f, _, _ = FUNCTIONS[function]
    return abs(f(length) - f(n)) / abs(f(n) - f(1))


def holds_to(curve: Curve, most: float) -> int:
    """The last length before the loss first exceeds `most`."""
    losses = curve["losses"]
    return next((at for at, loss in enumerate(losses) if not loss <= most), len(losses))


def flatness(curve: Curve) -> float:
    """The greatest loss from the training length on over the loss there."""
    part = curve["losses"][TRAIN_LENGTH - 1 : TEST_LENGTH]
    return float(max(part) / part[0])


def page(document: dict[str, Any], figures: dict[str, Lines]) -> str:
    curves = document["curves"]
    seconds = statistics.fmean(curve["cpu_seconds"] for curve in curves)
    lines = [f"- {key}: {value}" for key, value in document["made_with"].items()]
    lines.append(f"- settings: {', '.join(f'{key} {value:g}' for key, value in document['settings'].items())}")
    lines.append(f"- trained: {len(curves)} models, {seconds:.0f} cpu-seconds each")
    lines.append(f"- command: `{document['command']}`")
    parts = [
        "# Mean, length and sum of bits (Output Alignment, Section 3)",
        "\n".join(lines),
        ABOUT,
        f"![Loss by length]({FIGURE})",
    ]
    for name, own in figures.items():
        rows = [
            [label, *(_spread([curve["losses"][n - 1] for curve in seeds]) for n in LENGTHS)] for label, seeds in own.items()
        ]
        parts += [f"## Figure {name}: {FIGURES[name][0]}", f"Paper: {PAPER[name]}"]
        parts.append(table(["loss at", *LENGTHS], rows))
        if name == "1c":
            parts += ["Answers, beside what going straight on in 1 / (l + 2) would answer:", _answers(own), SPECIAL, _why(own)]
    parts += [FLAT, _flat(figures)] if {"1a", "5"} & set(figures) else []
    return "\n\n".join([*parts, *_theorems(document["theorem_1"])]) + "\n"


def _answers(lines: Lines) -> str:
    beyond = [length for length in LENGTHS if length > TRAIN_LENGTH]
    rows = []
    for label, seeds in lines.items():
        rows.append([label, *(_spread([curve["answers"][length - 1] for curve in seeds], 3) for length in beyond)])
        rows.append([f"{label}, straight on", *(f"{straight_on(label, length):.3g}" for length in beyond)])
    return table(["answer at", *beyond], rows)


def _why(lines: Lines) -> str:
    rows = []
    for label, seeds in lines.items():
        loss, reach = _spread([curve["losses"][34] for curve in seeds], 3), _spread([holds_to(curve, 1.0) for curve in seeds])
        rows.append([label, f"{excursion(label, TEST_LENGTH):.2g}", f"{straight_on(label, TEST_LENGTH):.3g}", loss, reach])
    return table(["f", "leaves its range", f"straight on at {TEST_LENGTH}", "loss at 35", "within one bit"], rows)


def _flat(figures: dict[str, Lines]) -> str:
    rows = []
    for name, label in (("1a", "uniform"), ("5", "uniform ones")):
        if seeds := figures.get(name, {}).get("nope"):
            low = sum(max(curve["losses"]) <= 1e-5 for curve in seeds)
            rows.append([label, _spread([flatness(curve) for curve in seeds], 3), f"{low} of {len(seeds)}"])
    return table(["bits", "greatest over first", "seeds below 1e-05"], rows)


def _theorems(sides: list[dict[str, Any]]) -> list[str]:
    errors = {
        "length": [length_error(length, TRAIN_LENGTH) for length in THEOREM_LENGTHS],
        "sum": [sum_error(length, TRAIN_LENGTH) for length in THEOREM_LENGTHS],
        "mean": [mean_error(length) for length in THEOREM_LENGTHS],
    }
    closed = [[name, *(f"{error:.4g}" for error in row)] for name, row in errors.items()]
    bounds = [[side["test_length"], *(f"{side[name]:.3g}" for name in ("error", "printed", "mended"))] for side in sides]
    return [
        "## Theorem 2: linear attention, closed forms",
        THEOREM_2,
        table(["error at", *THEOREM_LENGTHS], closed),
        "## Theorem 1: the bound, numerically",
        THEOREM_1.format(**sides[0]),
        table(["test length", "error", "printed bound", "mended bound"], bounds),
    ]


def _spread(values: Sequence[float], digits: int = 2) -> str:
    """The median over seeds and their range."""
    middle, low, high = (
        f"{value:.{digits}g}" if abs(value) < 99.5 else f"{value:,.0f}"
        for value in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} [{low}, {high}]" if len(values) > 1 else middle


def chart(figures: dict[str, Lines]) -> Any:
    """Loss by length, a panel a figure, training lengths shaded; dotted is what straight continuation would lose."""
    titles = [f"{name}: {FIGURES[name][0]}" for name in figures]
    figure, panels = draw.panels(len(figures), columns=2, width=5.5, height=2.9, titles=titles)
    lengths = range(1, TEST_LENGTH + 1)
    for axes, (name, lines) in zip(panels, figures.items(), strict=True):
        axes.axvspan(1, min(seeds[0]["train_length"] for seeds in lines.values()), color="#d55e00", alpha=0.08, linewidth=0)
        for at, (label, seeds) in enumerate(lines.items()):
            losses = list(zip(*(curve["losses"] for curve in seeds), strict=True))
            bands = ([pick(row) for row in losses] for pick in (statistics.median, min, max))
            draw.curve(axes, lengths, *bands, label=label, at=at, marker="")
        for style, label in ((":", "identity"), ("--", "rsqrt")) if name == "1c" else ():
            beyond = range(TRAIN_LENGTH + 1, TEST_LENGTH + 1)
            errors = [(straight_on(label, length) - length) ** 2 for length in beyond]
            axes.plot(beyond, errors, color=draw.GREY, linewidth=1.1, linestyle=style, label=f"{label}, straight on")
        axes.set(yscale="log", xlim=(1, None))
        axes.legend(frameon=False, fontsize=6, ncols=2)
    for axes in panels[-2:]:
        axes.set_xlabel("length in bits")
    figure.supylabel("mean squared error", fontsize=9)
    return figure
