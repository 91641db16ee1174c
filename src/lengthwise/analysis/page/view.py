"""What the page shows of an analysis."""

from __future__ import annotations

from typing import Any

from lengthwise.analysis.page import tables
from lengthwise.analysis.page.figures import figures
from lengthwise.analysis.page.findings import findings
from lengthwise.analysis.page.provenance import command, facts
from lengthwise.analysis.records import Analysis

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


def view(analysis: Analysis) -> dict[str, Any]:
    by_name = {figure.name: figure for figure in figures(analysis)}
    return {
        "train_length": analysis.train_length,
        "lengths": [one.length for one in analysis.lengths],
        "findings": findings(analysis),
        "captions": CAPTIONS,
        "no_bias": NO_BIAS,
        "sharpness": (by_name["sharpness"], tables.by_length(analysis)),
        "heads": (by_name["heads"], tables.dispersing(analysis)),
        "temperatures": (by_name.get("temperatures"), tables.temperatures(analysis), tables.notes(analysis)),
        "qq": (by_name["qq"], tables.first_layer(analysis)),
        "bias": ([figure for name, figure in by_name.items() if name.startswith("bias")], tables.sights(analysis)),
        "counted": tables.LAYERS_AND_HEADS,
        "facts": facts(analysis),
        "command": command(analysis),
    }
