"""Pages of one method against another: every task and length beyond the training length, on the same samples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from experiments._lib import draw, page
from experiments._lib.markdown import MARKED, marked, table, with_mark, words_beside
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.attention_alignment/1"
WORDS = words_beside(__file__)
OTHERS = {"truncate": "truncation", "none": "the model as it is"}
HOLDS = {True: "yes", False: "**no**", None: ""}


def write_pages(results: Path, out: Path) -> None:
    for name, document in page.read_all(results, FORMAT):
        method, over = document["default"], document["over"]
        rows = [
            [row["task"], _at(row["length"]), with_mark(row["difference"], row), row["said"], f"{row['p']:.2g}", row["n"]]
            for row in document["verdicts"]
        ]
        claims = [[row["claim"], row["measured"], HOLDS[row["holds"]]] for row in document["must_show"]]
        draw.save(_figure(document), out / f"{name}.svg")
        parts = [
            f"# {method} against {told(over)}",
            f"![Differences in points at all lengths of a task together, with 95 % intervals]({name}.svg)",
            table(["claim", "measured", "holds"], claims, numbers=False),
            WORDS["compared"],
            table(["task", "tokens", f"{method} - {over}", "it is", "p", "samples"], rows),
            *marked(document["verdicts"]),
        ]
        write_whole(out / f"{name}.md", "\n\n".join(parts) + "\n")


def told(method: str) -> str:
    """What a method is called in sentences."""
    return OTHERS.get(method, method)


def _at(length: int | None) -> str:
    return "all" if length is None else f"{length:,}"


def _figure(document: page.Document) -> Any:
    """Tasks at all their lengths together, in points; perplexity is a ratio, and left to the table."""
    rows, hollow = [], []
    for row in document["verdicts"]:
        if row["length"] is None and "points" in row["difference"]:
            value, low, high = map(float, re.findall(r"[+-]\d+\.\d+", row["difference"]))
            if "mark" in row:
                hollow.append((value, len(rows)))
            rows.append((with_mark(row["task"], row), value, low, high))
    figure, (axes,) = draw.panels(
        1, width=7.5, height=0.9 + 0.28 * len(rows), left=max(2.2, 0.069 * max(len(row[0]) for row in rows))
    )
    draw.intervals(axes, rows)
    if hollow:
        style = {"color": draw.colour(0), "markerfacecolor": "white", "markersize": 4, "zorder": 3}
        axes.plot(*zip(*hollow, strict=True), "o", **style, label=MARKED)
        draw.key(figure, axes)
    axes.axvline(0, color=draw.GREY, linewidth=0.9)
    axes.set_xlabel(f"{document['default']} less {document['over']}, points")
    return figure
