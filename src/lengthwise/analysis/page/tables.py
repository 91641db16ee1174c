"""An analysis as tables: rounded ones for people, and all of it as CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis.page.accounts import ACCOUNTS
from lengthwise.analysis.records import Analysis

MOST = 12  # heads shown of those that disperse

LAYERS_AND_HEADS = "Layers and heads are counted from 1."


@dataclass(frozen=True)
class Table:
    """Of short texts, the first column naming the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def by_length(analysis: Analysis) -> Table:
    """The paper's Table 1: means over layers, heads and rows."""
    rows = [
        (f"{one.length:,}", *(f"{one.mean(name):.4g}" for name in ("p_max", "entropy", "l_max"))) for one in analysis.lengths
    ]
    return Table(("length", "P_max", "entropy", "largest logit"), tuple(rows))


def first_layer(analysis: Analysis) -> Table:
    """The paper's Table 7 and what the propositions take."""
    rows = [
        (
            f"{one.length:,}",
            f"{one.top:.3f}",
            f"{one.logit_mean:.3f}",
            f"{one.sigma:.3f}",
            f"{one.top_p:.4f}",
            "-" if one.qq_r is None else f"{one.qq_r:.4f}",
        )
        for one in analysis.lengths
    ]
    return Table(("length", "largest entry", "mean", "sigma", "its P_max", "QQ r"), tuple(rows))


def temperatures(analysis: Analysis) -> Table:
    rows = [
        (f"{row.length:,}", *(_tau(getattr(row, name)) for name in (*ACCOUNTS, "log_law"))) for row in analysis.temperatures
    ]
    return Table(("length", *(style.name for style in ACCOUNTS.values()), "log law"), tuple(rows))


def dispersing(analysis: Analysis) -> Table:
    rows = [
        (
            f"layer {one.layer}, head {one.head}",
            f"{one.p_max_train:.3f}",
            f"{one.p_max_longest:.3f}",
            f"{one.fall:.3f}",
            f"{one.entropy_train:.2f}",
            f"{one.entropy_longest:.2f}",
        )
        for one in analysis.heads[:MOST]
    ]
    short, long = f"{analysis.train_length:,}", f"{analysis.lengths[-1].length:,}"
    head = ("head", f"P_max at {short}", f"P_max at {long}", "fall", f"entropy at {short}", f"entropy at {long}")
    return Table(head, tuple(rows))


def sights(analysis: Analysis) -> Table:
    rows = [
        (f"layer {one.layer}, head {one.head}", f"{one.sight_train:.1f}", f"{one.sight_longest:.1f}") for one in analysis.sights
    ]
    lengths = analysis.train_length, analysis.lengths[-1].length
    return Table(("head", *(f"sight at {n:,}" for n in lengths)), tuple(rows))


def notes(analysis: Analysis) -> list[str]:
    """Why a temperature is missing, or not to be trusted, one sentence each."""
    names = {name: style.name for name, style in ACCOUNTS.items()}
    return [f"{row.length:,} tokens, {names[name]}: {why}." for row in analysis.temperatures for name, why in row.why.items()]


def csv_tables(analysis: Analysis) -> dict[str, str]:
    """File name -> contents, at full precision."""
    found = {
        "sharpness.csv": _csv(("length", "layer", "head", "p_max", "entropy", "l_max"), _sharpness(analysis)),
        "logits.csv": _csv(("length", "head", "rank", "normal_quantile", "logit"), _logits(analysis)),
        "gaussian.csv": _csv(("length", "head", "keys", "largest", "mean", "sigma", "p_max", "qq_r"), _gaussian(analysis)),
        "temperatures.csv": _csv(("length", *ACCOUNTS, "log_law"), _temperatures(analysis)),
        "heads.csv": _csv(
            ("layer", "head", "p_max_train", "p_max_longest", "fall", "entropy_train", "entropy_longest"),
            (
                (a.layer, a.head, a.p_max_train, a.p_max_longest, a.fall, a.entropy_train, a.entropy_longest)
                for a in analysis.heads
            ),
        ),
    }
    if analysis.sights:
        curves = ((one.layer, one.head, d - one.radius, value) for one in analysis.sights for d, value in enumerate(one.bias))
        seen = ((one.layer, one.head, one.sight_train, one.sight_longest) for one in analysis.sights)
        found["bias.csv"] = _csv(("layer", "head", "distance", "bias"), curves)
        found["sights.csv"] = _csv(("layer", "head", "sight_train", "sight_longest"), seen)
    return found


def _sharpness(analysis: Analysis) -> Iterable[Sequence[Any]]:
    for one in analysis.lengths:
        for layer, heads in enumerate(one.p_max):
            for head, p_max in enumerate(heads):
                yield one.length, layer + 1, head + 1, p_max, one.entropy[layer][head], one.l_max[layer][head]


def _logits(analysis: Analysis) -> Iterable[Sequence[Any]]:
    for one in analysis.lengths:
        for head, vector in (("all", one.logits), *((str(k + 1), own) for k, own in enumerate(one.head_logits))):
            for rank, quantile, logit in zip(one.ranks, one.quantiles, vector, strict=True):
                yield one.length, head, rank + 1, quantile, logit


def _gaussian(analysis: Analysis) -> Iterable[Sequence[Any]]:
    for one in analysis.lengths:
        yield one.length, "all", one.keys, one.top, one.logit_mean, one.sigma, one.top_p, one.qq_r
        own = zip(one.head_logits, one.head_mean, one.head_sigma, one.head_qq_r, strict=True)
        for head, (vector, mean, sigma, r) in enumerate(own):
            yield one.length, head + 1, one.keys, vector[0], mean, sigma, "", r


def _temperatures(analysis: Analysis) -> Iterable[Sequence[Any]]:
    return ((row.length, *(getattr(row, name) for name in (*ACCOUNTS, "log_law"))) for row in analysis.temperatures)


def _tau(tau: float | None) -> str:
    return "-" if tau is None else f"{tau:.3f}"


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([f"{value:.7g}" if isinstance(value, float) else value for value in row] for row in rows)
    return out.getvalue()
