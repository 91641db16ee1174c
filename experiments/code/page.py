"""Pages of code completion and code key retrieval: Tables 6, 11, 12 and 13 and section 5.4, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments._lib import draw, page
from experiments._lib.markdown import table, words_beside

FORMAT = "lengthwise.experiments.code/1"
WORDS = words_beside(__file__)
BUCKET = 1000  # tokens
COMPLETION, SIMILARITY, KEY = "code_completion", "code_completion_es", "code_key_retrieval"
TITLES = {
    COMPLETION: "Code completion, exact match (Tables 6 and 12)",
    SIMILARITY: "Code completion, edit similarity (Tables 6 and 13)",
    KEY: "Code key retrieval (section 5.4)",
}


def write_pages(results: Path, out: Path) -> None:
    paper = page.paper(__file__)
    for name, document in page.read_all(results, FORMAT):
        tasks = {task: [cell for cell in document["cells"] if cell["task"] == task] for task in TITLES}
        tasks = {task: cells for task, cells in tasks.items() if cells}
        draw.save(_figure(tasks), out / f"{name}.svg")
        parts = [f"![Percent right and similar, by length]({name}.svg)", "Percent with its 95 % interval."]
        parts += [page.methods_told(document), page.undecided(document["cells"])]
        parts += [WORDS["paper"].format(model=paper["model"], theirs=paper["train_length"], ours=document["train_length"])]
        for task, cells in tasks.items():
            parts += [f"## {TITLES[task]}", *_tables(task, cells, document["samples"], paper)]
        points = {task: f"{TITLES[task]}: points" for task in tasks}
        parts += [part for key in ("gains", "pmax_over") for part in page.gains(document, key, points)]
        rows = [[f"paper, {method}", *row] for method, row in paper["table_11"].items()]
        parts += ["## Temperatures (Table 11)", page.temperatures(document)]
        parts += [table(["tau", *(f"{n:,}" for n in paper["table_11_lengths"])], rows)]
        page.write(out / f"{name}.md", f"Code by length: {page.model_name(document)}", document, parts)


def _tables(task: str, cells: list[page.Cell], samples: int, paper: dict[str, Any]) -> list[str]:
    """Ours by length; the paper's for the same buckets, or its one length of key retrieval."""
    if task == KEY:
        rows = [[f"paper, {method}", f"{value:g}"] for method, value in paper["key"].items()]
        ours = page.by_length("percent right", cells, lambda cell: page.percent(cell, samples))
        return [ours, table([f"{paper['model']}, {paper['key_length']:,} tokens", "percent right"], rows)]
    tables, decimals = ("table_12", 0) if task == COMPLETION else ("table_13", 1)
    lengths = sorted({cell["length"] for cell in cells})
    rows = [
        [f"paper, {method}", *(dict(zip(paper["buckets"], row, strict=True)).get(n // BUCKET, "") for n in lengths)]
        for method, row in paper[tables].items()
    ]
    ours = page.by_length("ours", cells, lambda cell: page.percent(cell, samples, decimals), lambda n: f"{n // BUCKET}k")
    return [ours, table([paper["model"], *(f"{n // BUCKET}k" for n in lengths)], rows)]


def _figure(tasks: dict[str, list[page.Cell]]) -> Any:
    figure, panels = draw.panels(len(tasks), titles=[TITLES[task] for task in tasks])
    for axes, cells in zip(panels, tasks.values(), strict=True):
        page.curves(axes, cells)
        draw.length_axis(axes, sorted({cell["length"] for cell in cells}))
        axes.set_ylabel("percent")
    draw.key(figure, panels[-1], columns=6)
    return figure
