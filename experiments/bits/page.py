"""The page of the bits: a table and a chart a figure beside the paper's words, then Theorems 1 and 2.

Without positions the last token sees a length l only through means over l + 2 tokens: its state is a function of
s = 1 / (l + 2). A piecewise linear network goes on in a straight line where no data bend it. `straight_on` is that line, the
tangent of f at the training length n, and has no free number:

    z(l) = f(n) + df/ds (s(l) - s(n)),   df/ds = -(n + 2)^2 f'(n),   answer f^-1(z)

`excursion` is how far f(y) must leave its training range: from 10 to 50 the length by 4.4 times that range, 1/sqrt by 0.26.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.results import read
from experiments.bits.linear_attention import length_error, mean_error, sum_error
from lengthwise.common.files import write_whole

RESULTS, PAGE, FIGURE = (f"bits.{ending}" for ending in ("json", "md", "svg"))
LENGTHS = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
TRAIN_LENGTH, TEST_LENGTH = 10, 50
THEOREM_LENGTHS = (11, 20, 30, 40, 50)
WORDS = words_beside(__file__)
# Figure: its title, what the paper says, its target, how its bits are drawn, what tells its curves apart
FIGURES: dict[str, list[str]] = WORDS["figures"]
LABELS = ("nope", "rope", "alibi", "learned", "identity", "sqrt", "log", "rsqrt", "reciprocal", "10", "20", "30")


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
    document = read(results / RESULTS)
    figures = {name: lines for name in FIGURES if (lines := lines_of(name, document["curves"]))}
    draw.save(chart(figures), out / FIGURE)
    write_whole(out / PAGE, page(document, figures))


def lines_of(name: str, curves: Sequence[Curve]) -> Lines:
    """The curves of a figure, seeds in order, in the figure's own order."""
    *_, target, kind, varies = FIGURES[name]
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
    parts = ["# Mean, length and sum of bits (Output Alignment, Section 3)", "\n".join(lines), WORDS["about"]]
    parts.append(f"![Loss by length]({FIGURE})")
    for name, own in figures.items():
        losses = {
            label: [_spread([curve["losses"][n - 1] for curve in seeds]) for n in LENGTHS] for label, seeds in own.items()
        }
        parts += [f"## Figure {name}: {FIGURES[name][0]}", f"Paper: {FIGURES[name][1]}"]
        parts.append(table(["loss at", *LENGTHS], [[label, *row] for label, row in losses.items()]))
        if name == "1c":
            answers = "Answers, beside what going straight on in 1 / (l + 2) would answer:"
            parts += [answers, _answers(own), WORDS["special"], _why(own)]
    parts += [WORDS["flat"], _flat(figures)] if {"1a", "5"} & set(figures) else []
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
    laws = {"length": length_error, "sum": sum_error, "mean": lambda length, _: mean_error(length)}
    closed = [[name, *(f"{law(length, TRAIN_LENGTH):.4g}" for length in THEOREM_LENGTHS)] for name, law in laws.items()]
    bounds = [[side["test_length"], *(f"{side[name]:.3g}" for name in ("error", "printed", "mended"))] for side in sides]
    return [
        "## Theorem 2: linear attention, closed forms",
        WORDS["theorem_2"],
        table(["error at", *THEOREM_LENGTHS], closed),
        "## Theorem 1: the bound, numerically",
        WORDS["theorem_1"].format(**sides[0]),
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
