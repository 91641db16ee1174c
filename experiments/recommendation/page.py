"""The page: what was recommended, against the best of its candidates on new questions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib.markdown import table
from experiments._lib.page import read_all
from lengthwise.common.files import write_whole
from lengthwise.records.intervals import paired_interval

FORMAT = "lengthwise.experiments.recommendation/1"
ABOUT = """Every candidate of a recommendation, the race's losers too, on questions (or places of another text) that neither
chose nor confirmed: percent right, or nats a token where a text was given. *Lost* is how far the recommended method is behind
the best candidate of this table, with the 95 % interval of the paired difference; the best of up to fourteen is chosen by the
same answers, so chance alone makes it look better than it is, and few answers tell little. Times are of the recommendation."""
HEAD = ("model", "tokens", "asked", "recommended", "score", "best", "score", "lost", "plain", "truncated", "seconds")


def write_pages(results: Path, out: Path) -> None:
    found = sorted((one for _, one in read_all(results, FORMAT)), key=lambda one: (one["model"]["name"], one["length"]))
    rows = [_row(document) for document in found]
    commands = [f"- `{document['command']}`" for document in found]
    made = [f"- {key}: {', '.join(dict.fromkeys(one['made_with'][key] for one in found))}" for key in found[0]["made_with"]]
    parts = ["# What was recommended, and what would have been best", ABOUT, table(HEAD, rows), "## Every candidate"]
    parts += [_scores(document) for document in found]
    write_whole(out / "recommendation.md", "\n\n".join([*parts, "\n".join([*made, *dict.fromkeys(commands)])]) + "\n")


def _row(document: Mapping[str, Any]) -> list[str]:
    scores, mine = document["scores"], document["recommended"]
    best = max(scores, key=lambda name: fmean(scores[name]))
    length = f"{document['length']:,} ({document['length'] / document['train_length']:.3g} x)"
    told = [_told(document, scores[name]) if name in scores else "" for name in (mine, best, "none", "truncate")]
    names = (", ".join(document["asked"]), f"`{mine}`", told[0], f"`{best}`", told[1])
    time = f"{document['seconds']:.0f} of {60 * document['minutes']:.0f}"
    lost = "nothing" if mine == best else _lost(document, scores[mine], scores[best])
    return [document["model"]["name"], length, *names, lost, *told[2:], time]


def _told(document: Mapping[str, Any], scores: Sequence[float]) -> str:
    mean = fmean(scores)
    return f"{-mean:.3f}" if is_text(document) else f"{100 * mean:.0f}"


def _lost(document: Mapping[str, Any], mine: Sequence[float], best: Sequence[float]) -> str:
    differences = [b - m for m, b in zip(mine, best, strict=True)]
    mean, low, high = paired_interval(differences) if all(map(math.isfinite, differences)) else (math.inf,) * 3
    if is_text(document):
        return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
    return f"{100 * mean:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def is_text(document: Mapping[str, Any]) -> bool:
    return bool(document["measure"] == "nats a token")


def _scores(document: Mapping[str, Any]) -> str:
    told = ", ".join(f"`{name}` {_told(document, scores)}" for name, scores in document["scores"].items())
    n, asked = len(document["scores"]["none"]), ", ".join(document["asked"])
    return f"**{document['model']['name']}, {document['length']:,} tokens**, {n} answers ({asked}): {told}"
