"""Pages of temperatures that were fitted to answers: what they gain over the plain model, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table
from experiments._lib.page import by_chance, read_all
from lengthwise.common.files import write_whole
from lengthwise.records.intervals import paired_interval

FORMAT = "lengthwise.experiments.answers/1"
ABOUT = """Percent right, or nats a token of a novel. In brackets the difference to the model as it is (`none`) with its 95 %
interval, paired by prompt. Fits saw other prompts than are asked."""
COST = """Long forwards are those over one input of the length; a step back counts as two. *Expects* is what prompts say that
were neither fitted nor are asked above: nats of an answer, plain and fitted."""
HEADS = """Temperatures of heads, a row a layer: those below 1 (blue) sharpen, those above (orange) flatten."""


def write_pages(folder: Path, out: Path) -> None:
    for name, document in read_all(folder, FORMAT):
        shown = sum(len(by_method) - 1 for by_length in document["scores"].values() for by_method in by_length.values())
        parts = [
            f"# Temperatures fitted to answers: {document['model']['name']}",
            f"{ABOUT} {by_chance(shown)}",
            _scores(document),
        ]
        parts += ["## What the fits cost", COST, _costs(document)]
        fitted = next((told["tau"] for fit, told in document["fits"].items() if fit.startswith("answers-head")), {})
        # A fit that found nothing better than 1 has nothing to draw
        if heads := {n: tau for n, tau in fitted.items() if len(set(_flat(tau))) > 1}:
            draw.save(_figure(heads), out / f"{name}.svg")
            parts += ["## Heads", f"{HEADS}\n\n![Temperatures of heads]({name}.svg)"]
        made = [f"- {key}: {value}" for key, value in document["made_with"].items()]
        write_whole(out / f"{name}.md", "\n\n".join([*parts, "\n".join([*made, f"- command: `{document['command']}`"])]) + "\n")


def _scores(document: Mapping[str, Any]) -> str:
    asked = [(what, n, by_method) for what, by_length in document["scores"].items() for n, by_method in by_length.items()]
    methods = list(dict.fromkeys(method for *_, by_method in asked for method in by_method))
    head = ["", *(f"{what}, {int(n):,} ({len(next(iter(by_method.values())))})" for what, n, by_method in asked)]
    rows = [[f"`{m}`", *(_cell(what, by_method, m) for what, _, by_method in asked)] for m in methods]
    return table(head, rows)


def _cell(what: str, scores: Mapping[str, Sequence[float]], method: str) -> str:
    mine, plain = scores[method], scores["none"]
    nats = what == "novel"
    mean = -fmean(mine) if nats else 100 * fmean(mine)
    told = f"{mean:.3f}" if nats else f"{mean:.0f}"
    differences = [m - p for m, p in zip(mine, plain, strict=True)]
    if method == "none" or not all(map(math.isfinite, differences)):
        return told
    difference, low, high = paired_interval(differences)
    if nats:
        return f"{told} ({-difference:+.3f} [{-high:+.3f}, {-low:+.3f}])"
    return f"{told} ({100 * difference:+.0f} [{100 * low:+.0f}, {100 * high:+.0f}])"


def _costs(document: Mapping[str, Any]) -> str:
    rows = []
    for fit, told in document["fits"].items():
        for n, forwards in told["forwards"].items():
            taus = _flat(told["tau"][n])
            around = f"{taus[0]:.3f}" if len(taus) == 1 else f"{min(taus):.2f} to {max(taus):.2f} ({len(taus)})"
            rows.append([f"`{fit}`", f"{int(n):,}", around, f"{forwards:,}", _expects(told["expects"].get(n))])
        rows[-1][0] += f", {told['seconds']:.0f} s in all"
    return table(("fit", "tokens", "tau", "long forwards", "expects"), rows, numbers=False)


def _expects(expects: Mapping[str, Mapping[str, float]] | None) -> str:
    plain, fitted = (expects or {}).get("plain", {}), (expects or {}).get("fitted", {})
    return ", ".join(f"{name} {plain[name]:.2f} -> {fitted[name]:.2f}" for name in plain)


def _flat(tau: Any) -> list[float]:
    return [value for one in tau for value in _flat(one)] if isinstance(tau, list) else [tau]


def _figure(heads: Mapping[str, Sequence[Sequence[float]]]) -> Any:
    figure, panels = draw.panels(len(heads), titles=[f"{int(n):,} tokens" for n in heads], key=0)
    for axes, taus in zip(panels, heads.values(), strict=True):
        widest = max(abs(math.log(tau)) for tau in _flat(list(taus))) or 1
        logs = [[math.log(tau) for tau in layer] for layer in taus]
        axes.imshow(logs, cmap="RdYlBu_r", vmin=-widest, vmax=widest, aspect="auto")
        for layer, row in enumerate(taus):
            for head, tau in enumerate(row):
                ink = "white" if abs(math.log(tau)) > 0.7 * widest else draw.INK
                axes.text(head, layer, f"{tau:.2f}", ha="center", va="center", fontsize=draw.SMALL - 1, color=ink)
        axes.set(xlabel="head", ylabel="layer", xticks=range(len(taus[0])), yticks=range(len(taus)))
        axes.grid(visible=False)
    return figure
