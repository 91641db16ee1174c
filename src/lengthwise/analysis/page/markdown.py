"""analysis.md: what was found, the tables, and the figures beside them."""

from __future__ import annotations

from lengthwise.analysis.page import tables
from lengthwise.analysis.page.figures import figures
from lengthwise.analysis.page.findings import findings
from lengthwise.analysis.page.provenance import command, facts
from lengthwise.analysis.page.tables import Table
from lengthwise.analysis.records import Analysis
from lengthwise.report.formatting import markdown_row, plain

CAPTIONS = {
    "sharpness": "P_max is how much of its attention a row gives to its strongest key, the entropy how widely it spreads; "
    "means over layers, heads and rows of the plain model.",
    "heads": "By how much the P_max of a head falls from the training length to the longest.",
    "temperatures": "What tau must be for attention to stay as sharp as at training length: derived from the first layer's "
    "logits (Proposition 1 keeps P_max, Proposition 2 the entropy), measured on the whole model (Algorithm 1), and by the log "
    "law, which knows the length alone.",
    "qq": "The logits of every row of the first layer, sorted, then averaged over rows and heads: what the propositions are "
    "derived from. They assume that these are Gaussian (QQ r near 1) and that the largest does not change with the length.",
    "bias": "Sight is the mean distance in tokens that a row would look at by its learned bias alone (softmax of the bias over "
    "the keys it sees). Near-sighted heads come first.",
}
NO_BIAS = "This model has no learned bias over distances: its positions are rotations, absolute, or none."


def markdown(analysis: Analysis, folder: str | None = None) -> str:
    """`folder` is where the figures lie, as seen from the page; without it the page has none."""
    shown: dict[str, list[str]] = {}
    for figure in figures(analysis) if folder else ():
        own = shown.setdefault(figure.name.partition("_")[0], [])
        own += [f"![{plain(figure.title)}]({folder}/{figure.name}.svg)", "", plain(figure.caption), ""]
    parts = [f"# Attention of {plain(str(analysis.model['name']))} by length, trained on {analysis.train_length:,} tokens", ""]
    parts += [f"- {plain(one)}" for one in findings(analysis)]
    parts += ["", tables.LAYERS_AND_HEADS, ""]
    parts += ["## How sharp attention is", "", CAPTIONS["sharpness"], "", *_table(tables.by_length(analysis))]
    parts += shown.get("sharpness", [])
    parts += ["## Which heads disperse most", "", CAPTIONS["heads"], "", *_table(tables.dispersing(analysis))]
    parts += shown.get("heads", [])
    parts += ["## Temperatures", "", CAPTIONS["temperatures"], "", *_table(tables.temperatures(analysis))]
    parts += [line for note in tables.notes(analysis) for line in (plain(note), "")]
    parts += shown.get("temperatures", [])
    parts += ["## Logits of the first layer", "", CAPTIONS["qq"], "", *_table(tables.first_layer(analysis))]
    parts += shown.get("qq", [])
    parts += ["## Learned bias", ""]
    parts += [CAPTIONS["bias"], "", *_table(tables.sights(analysis))] if analysis.sights else [NO_BIAS, ""]
    parts += shown.get("bias", [])
    parts += ["## How this was obtained", "", *(f"- {plain(name)}: {plain(value)}" for name, value in facts(analysis)), ""]
    return "\n".join([*parts, f"    {command(analysis)}", ""])


def _table(of: Table) -> list[str]:
    rule = ["---" if of.head[0] == "head" else "--:", *["--:"] * (len(of.head) - 1)]
    return [markdown_row(of.head), markdown_row(rule), *map(markdown_row, of.rows), ""]
