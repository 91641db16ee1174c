"""An analysis as tables: rounded ones for people, and all of it as CSV for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lengthwise.analysis.records import Analysis
from lengthwise.common.csv_text import csv_text
from lengthwise.report.article import Table

MOST = 12  # heads shown of those that disperse
# Columns of estimates of the temperature: derived from the first layer's logits, or measured on the whole model
ESTIMATES = {
    "proposition_1": "Proposition 1 (P_max)",
    "proposition_2": "Proposition 2 (entropy)",
    "pmax": "Algorithm 1 (P_max)",
    "entropy": "Algorithm 1 (entropy)",
}


def by_length(analysis: Analysis) -> Table:
    """The paper's Table 1: means over layers, heads and rows."""
    rows = [(f"{n.length:,}", *(f"{n.mean(name):.4g}" for name in ("p_max", "entropy", "l_max"))) for n in analysis.lengths]
    return Table(("length", "P_max", "entropy", "largest logit"), tuple(rows))


def first_layer(analysis: Analysis) -> Table:
    """The paper's Table 7 and what the propositions take."""
    rows = []
    for n in analysis.lengths:
        qq_r = "-" if n.qq_r is None else f"{n.qq_r:.4f}"
        rows.append((f"{n.length:,}", f"{n.top:.3f}", f"{n.logit_mean:.3f}", f"{n.sigma:.3f}", f"{n.top_p:.4f}", qq_r))
    return Table(("length", "largest entry", "mean", "sigma", "its P_max", "QQ r"), tuple(rows))


def temperatures(analysis: Analysis) -> Table:
    """Every estimate of the temperature at every length; a dash where it has none."""
    rows = []
    for row in analysis.temperatures:
        taus = [getattr(row, name) for name in (*ESTIMATES, "log_law")]
        rows.append((f"{row.length:,}", *("-" if tau is None else f"{tau:.3f}" for tau in taus)))
    return Table(("length", *ESTIMATES.values(), "log law"), tuple(rows))


def dispersing(analysis: Analysis) -> Table:
    """The heads whose P_max falls most."""
    rows = []
    for head in analysis.heads[:MOST]:
        p_max = (f"{value:.3f}" for value in (head.p_max_train, head.p_max_longest, head.fall))
        entropy = (f"{value:.2f}" for value in (head.entropy_train, head.entropy_longest))
        rows.append((f"layer {head.layer}, head {head.head}", *p_max, *entropy))
    short, long = f"{analysis.train_length:,}", f"{analysis.lengths[-1].length:,}"
    columns = ("head", f"P_max at {short}", f"P_max at {long}", "fall", f"entropy at {short}", f"entropy at {long}")
    return Table(columns, tuple(rows))


def sights(analysis: Analysis) -> Table:
    """How far every head would look by its learned bias alone."""
    rows = [(f"layer {s.layer}, head {s.head}", f"{s.sight_train:.1f}", f"{s.sight_longest:.1f}") for s in analysis.sights]
    lengths = analysis.train_length, analysis.lengths[-1].length
    return Table(("head", *(f"sight at {n:,}" for n in lengths)), tuple(rows))


def answers(analysis: Analysis) -> Table:
    """What the answers to every task want at every length."""
    rows = []
    for a in analysis.answers:
        every = [slope for layer in a.heads for slope in layer]
        sharper = f"{sum(slope < 0 for slope in every)} of {len(every)}"
        slope = f"{a.slope:+.3g} [{a.low:+.3g}, {a.high:+.3g}]"
        wants = a.wants if analysis.can_do(a.task) else "not known"
        rows.append((f"{a.length:,}", a.task, f"{a.nats:.3g}", slope, wants, sharper, f"{a.agreement:.2f}"))
    head = ("length", "task", "nats of an answer", "slope in ln g", "wanted", "heads that want sharper", "heads agree")
    return Table(head, tuple(rows))


def notes(analysis: Analysis) -> list[str]:
    """Why a temperature is missing, or not to be trusted, one sentence each."""
    return [
        f"{row.length:,} tokens, {ESTIMATES[name]}: {why}." for row in analysis.temperatures for name, why in row.why.items()
    ]


def csv_tables(analysis: Analysis) -> dict[str, str]:
    """File name -> contents, at full precision."""
    heads = ("p_max_train", "p_max_longest", "fall", "entropy_train", "entropy_longest")
    temperatures = ("length", *ESTIMATES, "log_law")
    tables = {
        "sharpness.csv": _csv(("length", "layer", "head", "p_max", "entropy", "l_max"), _sharpness(analysis)),
        "logits.csv": _csv(("length", "head", "rank", "normal_quantile", "logit"), _logits(analysis)),
        "gaussian.csv": _csv(("length", "head", "keys", "largest", "mean", "sigma", "p_max", "qq_r"), _gaussian(analysis)),
        "temperatures.csv": _csv(temperatures, _fields(temperatures, analysis.temperatures)),
        "heads.csv": _csv(("layer", "head", *heads), _fields(("layer", "head", *heads), analysis.heads)),
    }
    if analysis.answers:
        tables["answers.csv"] = _csv(("length", "task", "layer", "head", "slope"), _slopes(analysis))
    if analysis.sights:
        columns = ("layer", "head", "sight_train", "sight_longest")
        curves = ((s.layer, s.head, d - s.radius, value) for s in analysis.sights for d, value in enumerate(s.bias))
        tables["bias.csv"] = _csv(("layer", "head", "distance", "bias"), curves)
        tables["sights.csv"] = _csv(columns, _fields(columns, analysis.sights))
    return tables


def _sharpness(analysis: Analysis) -> Iterable[Sequence[Any]]:
    for n in analysis.lengths:
        for layer, heads in enumerate(n.p_max):
            for head, p_max in enumerate(heads):
                yield n.length, layer + 1, head + 1, p_max, n.entropy[layer][head], n.l_max[layer][head]


def _slopes(analysis: Analysis) -> Iterable[Sequence[Any]]:
    for a in analysis.answers:
        for layer, heads in enumerate(a.heads):
            for head, slope in enumerate(heads):
                yield a.length, a.task, layer + 1, head + 1, slope


def _logits(analysis: Analysis) -> Iterable[Sequence[Any]]:
    for n in analysis.lengths:
        for head, vector in (("all", n.logits), *((str(k + 1), logits) for k, logits in enumerate(n.head_logits))):
            for rank, quantile, logit in zip(n.ranks, n.quantiles, vector, strict=True):
                yield n.length, head, rank + 1, quantile, logit


def _gaussian(analysis: Analysis) -> Iterable[Sequence[Any]]:
    for n in analysis.lengths:
        yield n.length, "all", n.keys, n.top, n.logit_mean, n.sigma, n.top_p, n.qq_r
        heads = zip(n.head_logits, n.head_mean, n.head_sigma, n.head_qq_r, strict=True)
        for head, (vector, mean, sigma, r) in enumerate(heads):
            yield n.length, head + 1, n.keys, vector[0], mean, sigma, "", r


def _fields(names: Sequence[str], records: Iterable[Any]) -> Iterable[Sequence[Any]]:
    return ([getattr(record, name) for name in names] for record in records)


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return csv_text(head, ([f"{value:.7g}" if isinstance(value, float) else value for value in row] for row in rows))
