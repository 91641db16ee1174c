"""Entropy Invariance's conclusions over seeds of the training: pairs of rows compared within each seed, Student's over seeds.

    d_s = ln PPL(row) - ln PPL(other), of seed s        ratio = exp(mean d_s), with the interval of its logarithm

Both rows of a seed are asked the same hidden tokens. results/ holds a file a seed, which experiments.entropy_invariance.measure
writes; summary.json is made of them as the page is.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.page import read_all
from experiments._lib.student import Mean
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.entropy_seeds/1"
PAGE, FIGURE, SUMMARY = "seeds.md", "seeds.svg", "summary.json"  # the last is made with the page
MADE_OF = {"seeds": ("seed-0", "seed-1", "seed-2", "seed-3", "seed-4")}
WORDS = words_beside(__file__)
CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
SHARES = {"content": "content", "rotation": "rotation", "share": "rotation's share", "distance": "told by distance"}
Row = tuple[str, float | None, str | None]  # method, S of CosScale, law
Cells = dict[tuple[Row, int], dict[int, float]]  # ln of perplexity by seed
Seeds = Sequence[Mapping[str, Any]]


def write_pages(results: Path, out: Path) -> None:
    seeds = sorted((document for _, document in read_all(results, FORMAT)), key=lambda document: document["seed"])
    cells, paper, labels = cells_of(seeds)
    compared = list(comparisons(cells, paper))
    turned = rotation(seeds)
    summary = {"seeds": [one["seed"] for one in seeds], "noise": noise(cells), "compared": compared, "rotation": turned}
    summary |= {"pairs": pairs(cells, paper), "over_window": list(over_window(cells)), "best_scales": best_scales(cells)}
    write_whole(out / SUMMARY, json.dumps(summary, indent=1) + "\n")
    write_whole(out / PAGE, page(seeds, cells, labels, summary))
    draw.save(chart(cells, labels), out / FIGURE)


def cells_of(seeds: Seeds) -> tuple[Cells, dict[tuple[Row, int], float | None], dict[Row, str]]:
    """Ours, the paper's perplexity (a limit is beyond all numbers), and the rows' names."""
    cells: Cells = {}
    paper: dict[tuple[Row, int], float | None] = {}
    labels: dict[Row, str] = {}
    for document in seeds:
        for cell in document["cells"]:
            row = cell["method"], cell["cos"], cell["law"]
            key = row, cell["length"]
            cells.setdefault(key, {})[document["seed"]] = math.log(cell["perplexity"])
            printed = cell["paper"]
            paper[key] = None if not printed else math.inf if printed.startswith(">") else float(printed)
            labels[row] = cell["label"]
    return cells, paper, labels


def ratio(cells: Cells, row: Row, other: Row, length: int) -> Mean | None:
    """The mean difference of logarithms over the seeds that both have."""
    ours, theirs = (cells.get((one, length), {}) for one in (row, other))
    apart = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return Mean.of(apart) if apart else None


def comparisons(cells: Cells, paper: Mapping[Any, float | None]) -> Iterator[dict[str, Any]]:
    """Each scale alone, InfoScale on top of CosScale, and S against 128, at every length."""
    rows, lengths = list(dict.fromkeys(row for row, _ in cells)), sorted({length for _, length in cells})
    for row in rows:
        method, cos, law = row
        others: list[Row] = [(method, None, None), (method, cos, None), *([(method, 128.0, law)] if cos else [])]
        for other in dict.fromkeys(others):
            if other == row or other not in rows:
                continue
            for length in lengths:
                if (mean := ratio(cells, row, other, length)) is not None:
                    ends = [None if end is None else math.exp(end) for end in (mean.value, mean.low, mean.high)]
                    printed = paper[row, length], paper[other, length]
                    theirs = printed[0] / printed[1] if all(n and math.isfinite(n) for n in printed) else None  # type: ignore[operator]
                    about = {"row": named(row), "other": named(other), "length": length, "seeds": len(cells[row, length])}
                    numbers = dict(zip(("value", "low", "high"), ends, strict=True))
                    yield {**about, **numbers, "paper": theirs, "verdict": verdict(mean, *printed)}


def over_window(cells: Cells) -> Iterator[dict[str, Any]]:
    """Every other row over the plain window, the best of the paper's plain methods, at every length."""
    window: Row = ("window", None, None)
    for row, length in cells:
        if row != window and (mean := ratio(cells, row, window, length)) is not None:
            ends = [None if end is None else math.exp(end) for end in (mean.value, mean.low, mean.high)]
            yield {"row": named(row), "length": length, **dict(zip(("value", "low", "high"), ends, strict=True))}


def best_scales(cells: Cells) -> list[dict[str, Any]]:
    """S of the lowest perplexity without a position method, in the order of the seeds that have every S."""
    lines = []
    for length in sorted({length for _, length in cells}):
        known = {row[1]: own for (row, n), own in cells.items() if n == length and row[0] == "gau" and row[1] and not row[2]}
        seeds = sorted(set.intersection(*map(set, known.values()))) if known else []
        lines.append({"length": length, "scales": [min(known, key=lambda s: known[s][seed]) for seed in seeds]})
    return lines


def named(row: Row) -> dict[str, Any]:
    """A row as keys of result files name it."""
    return dict(zip(("method", "cos", "law"), row, strict=True))


def verdict(mean: Mean, printed: float | None, others: float | None) -> str:
    """Whether ours says for certain what the paper's two numbers say; empty where they say nothing."""
    if printed is None or others is None or printed == others:
        return ""
    if not mean.sign:
        return UNDECIDED
    return CONFIRMED if (mean.sign < 0) == (printed < others) else REFUTED


def pairs(cells: Cells, paper: Mapping[Any, float | None]) -> dict[str, Any]:
    """Every two rows at every length against the paper's order."""
    words: dict[str, Counter[str]] = {}
    for length in sorted({length for _, length in cells}):
        own = [row for row, n in cells if n == length]
        for row, other in itertools.combinations(own, 2):
            mean = ratio(cells, row, other, length)
            word = "" if mean is None else verdict(mean, paper[row, length], paper[other, length])
            if word:
                words.setdefault(str(length), Counter())[word] += 1
    return {length: dict(count) for length, count in words.items()}


def noise(cells: Cells) -> dict[str, float]:
    """The standard deviation of ln PPL between seeds, pooled over rows, by length."""
    spreads: dict[int, list[float]] = {}
    for (_, length), own in cells.items():
        if len(own) > 1:
            spreads.setdefault(length, []).append(stdev(own.values()) ** 2)
    return {str(length): math.sqrt(fmean(own)) for length, own in sorted(spreads.items())}


def rotation(seeds: Seeds) -> list[dict[str, Any]]:
    """Theorem 3.5: means over layers by S, Student's over seeds, and how the share differs from that of the S before."""
    known = {(line["scale"], one["seed"]): line["layers"] for one in seeds for line in one["rotation"]}
    shares = {key: {name: fmean(layer[name] for layer in layers) for name in SHARES} for key, layers in known.items()}
    lines, before = [], None
    for scale in sorted({scale for scale, _ in shares}):
        own = {seed: values for (one, seed), values in shares.items() if one == scale}
        line = {name: vars(Mean.of([values[name] for values in own.values()])) for name in SHARES}
        steps = (
            []
            if before is None
            else [values["share"] - before[seed]["share"] for seed, values in own.items() if seed in before]
        )
        lines.append({"scale": scale, "seeds": len(own), **line, "more": vars(Mean.of(steps)) if steps else None})
        before = own
    return lines


def page(seeds: Seeds, cells: Cells, labels: Mapping[Row, str], summary: Mapping[str, Any]) -> str:
    lengths = sorted({length for _, length in cells})
    parts = [
        "# Entropy invariance over seeds of the training",
        WORDS["about"].format(seeds=", ".join(str(one["seed"]) for one in seeds)),
    ]
    parts += [f"![Perplexity by length]({FIGURE})"]
    parts += ["## Does a scale help?", WORDS["ratios"], _ratios(summary["compared"], labels, lengths)]
    counts = Counter(one["verdict"] for one in summary["compared"] if one["verdict"])
    parts += [f"Of {counts.total()} comparisons that the paper prints: {_counted(counts)}."]
    parts += ["## Perplexity", _perplexities(cells, labels, lengths)]
    if summary["noise"]:
        spread = [f"{100 * value:.0f} % at {int(length):,}" for length, value in summary["noise"].items()]
        parts += [f"Between seeds ln PPL has a standard deviation, pooled over rows, of {', '.join(spread)} tokens."]
    order = sum((Counter(count) for count in summary["pairs"].values()), Counter[str]())
    parts += ["## The order of rows", WORDS["order"], f"Of {order.total()} pairs: {_counted(order)}."]
    if summary["rotation"]:
        parts += ["## Theorem 3.5: does the rotation weigh more as S grows?", WORDS["rotation"], _rotation(summary["rotation"])]
    parts += ["## How it was obtained", "\n".join(map(_obtained, seeds))]
    return "\n\n".join(parts) + "\n"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[word]:,} {word}" for word in (CONFIRMED, REFUTED, UNDECIDED))


def _ratios(compared: Sequence[Mapping[str, Any]], labels: Mapping[Row, str], lengths: Sequence[int]) -> str:
    known = {(tuple(one["row"].values()), tuple(one["other"].values()), one["length"]): one for one in compared}
    lines: list[list[object]] = []
    for row, other in dict.fromkeys(key[:2] for key in known):
        line: list[object] = [labels[row], labels[other]]
        for length in lengths:
            one = known.get((row, other, length))
            theirs = "" if one is None or one["paper"] is None else f"{one['paper']:.2f}"
            line += ["" if one is None else f"{_interval(one)} {one['verdict'][:1].upper()}".strip(), theirs]
        lines.append(line)
    return table(["row", "over", *(word for n in lengths for word in (f"{n:,}", "paper"))], lines)


def _interval(one: Mapping[str, Any], digits: int = 2) -> str:
    ends = "" if one["low"] is None else f" [{one['low']:.{digits}f}, {one['high']:.{digits}f}]"
    return f"{one['value']:.{digits}f}{ends}"


def _perplexities(cells: Cells, labels: Mapping[Row, str], lengths: Sequence[int]) -> str:
    lines: list[list[object]] = []
    for row, label in labels.items():
        means = [Mean.of(list(cells[row, n].values())) if (row, n) in cells else None for n in lengths]
        shown = ["" if mean is None else _perplexity(mean) for mean in means]
        lines.append([label, max(len(own) for (one, _), own in cells.items() if one == row), *shown])
    return table(["row", "seeds", *(f"{n:,}" for n in lengths)], lines)


def _perplexity(mean: Mean) -> str:
    value, low, high = ("" if end is None else f"{math.exp(end):,.3g}" for end in (mean.value, mean.low, mean.high))
    return f"{value} [{low}, {high}]" if low else value


def _rotation(lines: Sequence[Mapping[str, Any]]) -> str:
    head = ["S", "seeds", *SHARES.values(), "S times content", "share more than at the S before"]
    rows = []
    for line in lines:
        more = "" if line["more"] is None else _interval(line["more"], 3)
        scaled = f"{line['scale'] * line['content']['value']:.1f}"
        rows.append([f"{line['scale']:g}", line["seeds"], *(_interval(line[name], 3) for name in SHARES), scaled, more])
    return table(head, rows)


def _obtained(document: Mapping[str, Any]) -> str:
    made = ", ".join(f"{key} {value}" for key, value in document["made_with"].items())
    steps = sorted({one["steps"] for one in document["models"].values()})
    models = f"{len(document['models'])} models of {' or '.join(f'{one:,}' for one in steps)} steps"
    return f"- seed {document['seed']}: {models}; {made}; `{document['command']}`"


def chart(cells: Cells, labels: Mapping[Row, str]) -> Any:
    """A panel a method, a curve a row; bands are Student's intervals over seeds."""
    methods = list(dict.fromkeys(row[0] for row in labels))
    figure, panels = draw.panels(len(methods), columns=4, width=3.3, height=3, titles=methods, share_y=True, key=1)
    for axes, method in zip(panels, methods, strict=True):
        for at, row in enumerate(row for row in labels if row[0] == method):
            own = sorted((length, Mean.of(list(values.values()))) for (one, length), values in cells.items() if one == row)
            x, means = [length for length, _ in own], [mean for _, mean in own]
            bands = [[math.exp(end) for mean in means if (end := getattr(mean, name)) is not None] for name in ("low", "high")]
            ends = bands if len(bands[0]) == len(means) else []
            draw.curve(axes, x, [math.exp(mean.value) for mean in means], *ends, label=labels[row], at=at)
        draw.length_axis(axes, sorted({length for _, length in cells}))
        axes.set_yscale("log")
        axes.legend(frameon=False, fontsize=6)
    panels[0].set_ylabel("perplexity")
    return figure
