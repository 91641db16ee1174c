"""Pages of how sharp attention is by length: Tables 1 and 7, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments._lib import draw, page
from experiments._lib.markdown import table
from lengthwise.records.intervals import paired_interval

FORMAT = "lengthwise.experiments.dispersion/1"
WORDS = {"pmax": "P_max, the mean largest probability of a row", "entropy": "Entropy of a row, mean, in nats"}


def write_pages(folder: Path, out: Path) -> None:
    paper = page.paper(__file__)
    for name, document in page.read_all(folder, FORMAT):
        tasks = {task: [cell for cell in document["cells"] if cell["task"] == task] for task in document["materials"]}
        draw.save(_figure(tasks), out / f"{name}.svg")
        parts = [f"![P_max and entropy by length]({name}.svg)", "Means over all layers, heads and rows."]
        for statistic, words in WORDS.items():
            rows = [[task, *values] for task, values in paper["table_1"][statistic].items()]
            head = [f"paper, Table 1: {paper['model']}, none", *(f"{n:,}" for n in paper["lengths"])]
            parts += [f"## {words}", table(head, rows)]
            for task, cells in tasks.items():
                parts.append(page.by_length(f"ours, {task}", cells, lambda cell, key=statistic: f"{cell[key]:.3f}"))  # type: ignore[misc]
        parts += _logits(document, paper)
        parts += _temperatures(document)
        page.write(out / f"{name}.md", f"How sharp attention is: {page.model_name(document)}", document, parts)


def _logits(document: page.Document, paper: dict[str, Any]) -> list[str]:
    """The first layer's largest logit by length, and how straight its QQ plot is; results from before have none."""
    rows = document.get("logits", [])
    lengths, known = sorted({row["length"] for row in rows}), {(row["task"], row["length"]): row for row in rows}
    shown = "{top:.2f} ({sigma:.2f}, {qq_r:.3f})"
    ours = [[task, *(shown.format(**known[task, n]) for n in lengths)] for task in dict.fromkeys(row["task"] for row in rows)]
    head = "largest entry of the first layer's sorted, averaged logits (sigma, straightness of the QQ plot)"
    parts = ["## The largest logit (Table 7)", table([head, *(f"{n:,}" for n in lengths)], ours), _paper_logits(paper)]
    return parts if rows else []


def _paper_logits(paper: dict[str, Any]) -> str:
    rows = [[task, *values] for task, values in paper["table_7"].items()]
    return table([f"paper, Table 7: {paper['model']}", "short", "long"], rows)


def _temperatures(document: page.Document) -> list[str]:
    """Means over texts, each solved alone, with Student's intervals; results from before have none."""
    rows = document.get("temperatures", [])
    if not rows:
        return []
    lengths, known = sorted({row["length"] for row in rows}), {(row["task"], row["length"]): row for row in rows}
    solved = [
        [f"{task}, {statistic}", *(_mean(known[task, n][statistic]) for n in lengths)]
        for task in dict.fromkeys(row["task"] for row in rows)
        for statistic in WORDS
    ]
    words = "Means of the temperatures that keep a statistic in one text, and their 95 % intervals over texts by Student."
    return ["## Temperatures (Tables 8 to 11)", words, table(["task, statistic", *(f"{n:,}" for n in lengths)], solved)]


def _mean(values: list[float]) -> str:
    mean, low, high = paired_interval(values)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _figure(tasks: dict[str, list[page.Cell]]) -> Any:
    titles = [f"{task}: {statistic}" for statistic in WORDS for task in tasks]
    # Up to four tasks side by side; of more, half of them
    columns = -(-len(tasks) // 2) if len(tasks) > 4 else max(2, len(tasks))
    figure, panels = draw.panels(len(titles), columns=columns, width=4.4, titles=titles)
    places = ((statistic, cells) for statistic in WORDS for cells in tasks.values())
    for axes, (statistic, cells) in zip(panels, places, strict=True):
        page.curves(axes, cells, 1, (statistic,))
        draw.length_axis(axes, sorted({cell["length"] for cell in cells}))
    draw.key(figure, panels[0], columns=8)
    return figure
