"""The page: perplexity by alpha in pairs with alpha 0, Student's over seeds, misalignment, and RULER's needles.

    d_s = mean over streams of (nll - nll with alpha 0), of seed s        change = exp(mean d_s) - 1

Runs of one seed see the same rows in the same order with the same e.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.page import by_chance, read_all
from experiments._lib.results import read as read
from experiments._lib.student import Mean
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.misalignment_lora/1"
PAGE, FIGURE, CHANGES = "misalignment_lora.md", "misalignment_lora.svg", "changes.json"  # the last is made with the page
MADE_OF = {"misalignment_lora": ("smollm2_135m-code", "smollm2_135m-novels")}
APART = ("l_misalign", "kl", "nats_1", "nats_2", "right_1", "right_2")  # of needles at L and 2 L, right in points
LENGTHS = (1, 2, 4)  # at which perplexity is measured, in training lengths
WORDS = words_beside(__file__)
PAPER = read(Path(__file__).with_name("paper.json"))
Numbers = Mapping[str, Any]
Kind = tuple[int, float, str]  # length trained at, alpha, comparison


def write_pages(results: Path, out: Path) -> None:
    documents = [document for _, document in read_all(results, FORMAT)]
    parts = ["# Does the misalignment loss help a decoder that is fine-tuned by LoRA? (Output Alignment, Tables 2 to 5)"]
    shown = sum(_comparisons(document) for document in documents)
    parts += [f"{WORDS['about']} {by_chance(shown, 'changes')}", f"![Change of perplexity by alpha]({FIGURE})"]
    parts += [part for document in documents for part in section(document)]
    parts += ["## The paper", _paper()]
    write_whole(out / PAGE, "\n\n".join(parts) + "\n")
    draw.save(chart(documents), out / FIGURE)
    kept = {
        what: [one for document in documents for one in of(document)] for what, of in (("changes", ratios), ("apart", apart))
    }
    write_whole(out / CHANGES, json.dumps(kept, indent=1) + "\n")


def kinds_of(document: Numbers) -> dict[Kind, dict[int, Numbers]]:
    """Results by kind and seed, those without the loss first."""
    found: dict[Kind, dict[int, Numbers]] = {}
    for one in sorted(document["results"], key=lambda one: (one["factor"], one["compare"] == "kl", one["alpha"])):
        found.setdefault((one["factor"], one["alpha"], one["compare"]), {})[one["seed"]] = one
    return found


def less(own: Mapping[int, Numbers], other: Mapping[int, Numbers], number: Any) -> Mean | None:
    """The mean difference over the seeds that both have; None where there is none, or a number is missing."""
    pairs = [(number(own[seed]), number(other[seed])) for seed in own if seed in other]
    if not pairs or any(a is None or b is None for a, b in pairs):
        return None
    return Mean.of([a - b for a, b in pairs])


def changes(kinds: Mapping[Kind, dict[int, Numbers]], kind: Kind) -> list[Mean | None]:
    """Differences of nats from alpha 0 at every length."""
    plain = kinds.get((kind[0], 0.0, "sce"), {})
    return [less(kinds[kind], plain, lambda one, at=at: _nats(one, at)) for at in range(len(LENGTHS))]


def ratios(document: Numbers) -> list[dict[str, Any]]:
    """Perplexity over that of alpha 0, with its interval, by kind and length."""
    kinds, found = kinds_of(document), []
    for factor, alpha, compare in (kind for kind in kinds if kind[1]):
        about = {"name": document["name"], "corpus": document["corpus"], "factor": factor, "alpha": alpha}
        # Keys of result files have no spaces
        about["compare"] = compare.replace(" ", "-")
        for n, mean in zip(LENGTHS, changes(kinds, (factor, alpha, compare)), strict=True):
            if mean is not None and mean.low is not None and mean.high is not None:
                ends = {"ratio": mean.value, "low": mean.low, "high": mean.high}
                found.append({**about, "at": n, **{name: round(math.exp(nats), 6) for name, nats in ends.items()}})
    return found


def apart(document: Numbers) -> list[dict[str, Any]]:
    """What else differs from alpha 0, as the table has it, by kind."""
    kinds, found = kinds_of(document), []
    for factor, alpha, compare in (kind for kind in kinds if kind[1]):
        about = {"corpus": document["corpus"], "factor": factor, "alpha": alpha, "compare": compare.replace(" ", "-")}
        for name, mean in zip(APART, _apart(kinds, (factor, alpha, compare)), strict=True):
            if mean is not None:
                found.append({**about, "measure": name, **asdict(mean)})
    return found


def named(alpha: float, compare: str) -> str:
    """A kind as pages write it."""
    return f"alpha {alpha:g}" + {"sce": "", "kl": ", KL"}.get(compare, f", {compare.removeprefix('sce ')}")


def _nats(one: Numbers, at: int) -> float | None:
    return fmean(one["nll"][at]) if one["nll"][at] else None


def _needles(one: Numbers, name: str, factor: str) -> float:
    return fmean(value for task in one[name][factor] for value in task)


def _comparisons(document: Numbers) -> int:
    """How many intervals of changes the table of a document shows."""
    kinds = kinds_of(document)
    found = [mean for kind in kinds if kind[0] and kind[1] for mean in [*changes(kinds, kind), *_apart(kinds, kind)]]
    return sum(mean is not None and mean.low != mean.high for mean in found)


def section(document: Numbers) -> list[str]:
    kinds, length = kinds_of(document), document["settings"]["train_length"]
    before = next(iter(kinds.get((0, 0.0, "sce"), {}).values()), None)
    parts = [f"## {document['name']} on {document['corpus']}"]
    if before is not None:
        sure = ", ".join(f"{_nats(before, at) or math.inf:.3f} at {n * length:,}" for at, n in enumerate(LENGTHS))
        found = [(_needles(before, "ruler", n), 100 * _needles(before, "right", n)) for n in before["ruler"]]
        told = ", ".join(f"{nats:.2f} ({right:.0f} %)" for nats, right in found)
        apart = f"L_misalign {before['sce'] or math.inf:.3f}, its KL {before['kl'] or math.inf:.4f}"
        parts.append(f"Before training, nats: {sure} tokens; {apart}; answers of needles (right) at 1 and 2 L {told}.")
    head = ["trained at", "loss", "seeds", *(f"{n} L" for n in LENGTHS), *(f"change at {n} L" for n in LENGTHS)]
    head += ["L_misalign less", "KL less", "needles' nats less, 1 L", "2 L", "right, 1 L", "2 L"]
    lines = [_line(kinds, kind) for kind in kinds if kind[0]]
    parts += [table(head, lines), _obtained(document)]
    return parts


def _line(kinds: Mapping[Kind, dict[int, Numbers]], kind: Kind) -> list[object]:
    factor, alpha, compare = kind
    own = kinds[kind]
    losses = [[_nats(one, at) for one in own.values()] for at in range(len(LENGTHS))]
    known = [[x for x in column if x is not None] for column in losses]
    line: list[object] = [f"{factor} L", named(alpha, compare)]
    line += [len(own), *(f"{math.exp(fmean(column)):.3f}" if column else "not finite" for column in known)]
    line += [_percent(change) if alpha else "" for change in changes(kinds, kind)]
    told = [_told(mean, digits) if alpha else "" for mean, digits in zip(_apart(kinds, kind), (3, 4, 2, 2, 1, 1), strict=True)]
    right = [f"{100 * fmean(_needles(one, 'right', n) for one in own.values()):.0f} %" for n in ("1", "2")]
    return [*line, *told[:4], *(f"{share} {change}".strip() for share, change in zip(right, told[4:], strict=True))]


def _apart(kinds: Mapping[Kind, dict[int, Numbers]], kind: Kind) -> list[Mean | None]:
    """Differences from alpha 0 of both measures, and of the needles' nats and percent right at both lengths."""
    own, plain = kinds[kind], kinds.get((kind[0], 0.0, "sce"), {})
    measures = [less(own, plain, lambda one, name=name: one[name]) for name in ("sce", "kl")]
    measures += [less(own, plain, lambda one, n=n: _needles(one, "ruler", n)) for n in ("1", "2")]
    return measures + [less(own, plain, lambda one, n=n: 100 * _needles(one, "right", n)) for n in ("1", "2")]


def _percent(mean: Mean | None) -> str:
    if mean is None:
        return ""
    ends = [None if end is None else 100 * math.expm1(end) for end in (mean.value, mean.low, mean.high)]
    return f"{ends[0]:+.2f} %" + ("" if ends[1] is None else f" [{ends[1]:+.2f}, {ends[2]:+.2f}]")


def _told(mean: Mean | None, digits: int) -> str:
    if mean is None:
        return ""
    # Seeds that agree to the last question tell nothing of their spread
    ends = "" if mean.low is None or mean.low == mean.high else f" [{mean.low:+.{digits}f}, {mean.high:+.{digits}f}]"
    return f"{mean.value:+.{digits}f}{ends}"


def _obtained(document: Numbers) -> str:
    made, settings = ", ".join(f"{key} {value}" for key, value in document["made_with"].items()), document["settings"]
    rates = ", ".join(f"{one['rate']:g} {one['nll'] or math.inf:.4f}" for one in document["trials"])
    steps = sorted({one["steps"] for one in document["results"] if one["steps"]})
    seconds = sum(one["seconds"] for one in document["results"])
    lines = [
        f"- weights {settings['model']}, `{settings['method']}`, L = {settings['train_length']:,}, {settings['dtype']}; {made}",
        f"- LoRA of rank {settings['rank']}, {' or '.join(map(str, steps))} steps of one row read twice; text: "
        f"{', '.join(document['texts'])}, the last {document['held_out']} held out, {settings['streams']} streams each",
        f"- learning rates tried without the loss, nats at 2 L on text held back: {rates or 'none, one was given'}",
        f"- {len(document['results'])} runs, {seconds:,.0f} s in sum, several at once; `{document['command']}`",
    ]
    return "\n".join(lines)


def _paper() -> str:
    lines = [
        [*key.split("; "), *(f"{value:g}" for value in values), *(f"{100 * (v / values[0] - 1):+.1f} %" for v in values[1:])]
        for key, values in PAPER["after 50 steps"].items()
    ]
    return table(["trained at", "adjustment", "corpus", "alpha 0", "0.1", "0.5", "change with 0.1", "0.5"], lines)


def chart(documents: Sequence[Numbers]) -> Any:
    """Change of perplexity from alpha 0: a panel a text and length trained at, a colour a length."""
    cases = [(document, factor) for document in documents for factor in sorted({k[0] for k in kinds_of(document)} - {0})]
    titles = [f"{document['name']}, {document['corpus']}, at {factor} L" for document, factor in cases]
    figure, panels = draw.panels(
        max(1, len(cases)), columns=2, width=4.4, share_y=True, titles=titles or ["nothing is measured yet"]
    )
    for axes, (document, factor) in zip(panels, cases, strict=False):
        kinds = kinds_of(document)
        own = [kind for kind in kinds if kind[0] == factor and kind[1]]
        axes.axhline(0, color=draw.GREY, linewidth=0.9)
        for at, length in enumerate(LENGTHS):
            axes.plot([], [], "o", color=draw.colour(at), label=f"perplexity at {length} L")
            for place, kind in enumerate(own):
                mean = changes(kinds, kind)[at]
                if mean is not None:
                    x = place + 0.15 * (at - 1)
                    axes.plot(x, 100 * math.expm1(mean.value), "o", markersize=4, color=draw.colour(at))
                    if mean.low is not None and mean.high is not None:
                        axes.plot([x, x], [100 * math.expm1(end) for end in (mean.low, mean.high)], color=draw.colour(at))
        names = [named(alpha, compare) for _, alpha, compare in own]
        axes.set_xticks(range(len(own)), names)
        axes.set_ylabel("change, percent")
    draw.key(figure, panels[0], columns=len(LENGTHS))
    return figure
