"""Pages of retrieval by length: Tables 4 and 9, ours beside the paper's, and which scope of alignment is better."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from experiments._lib import draw, page
from experiments._lib.markdown import table, words_beside
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.retrieval/1"
WORDS = words_beside(__file__)
TASKS = ("passkey-novels", "passkey", "line", "line-told", "topic", "ruler_niah_multikey_1")
OVERVIEW = (512, 4096, 15000)  # tokens
CASES = 50  # in a file of LongEval
OFFICIAL = "official"  # begins the names of rows over several of these files, of which every case is another
PAIRS = ("layer - model", "head - model", "head - layer")


def write_pages(results: Path, out: Path) -> None:
    documents = dict(page.read_all(results, FORMAT))
    if len(documents) > 1:
        write_whole(out / "overview.md", "\n\n".join(_overview(documents)) + "\n")
    for name, document in documents.items():
        tasks = {task: cells_of(document, task) for task in TASKS if cells_of(document, task)}
        draw.save(_figure(document, by_length(tasks) or by_length(official_of(document)) or tasks), out / f"{name}.svg")
        parts = [f"![Percent right by length]({name}.svg)", "Percent right with its 95 % interval (Wilson)."]
        parts += [page.methods_told(document), page.undecided(cell for cells in tasks.values() for cell in cells)]
        for task, cells in tasks.items():
            parts += [f"## {task}", page.by_length("ours", cells, partial(page.percent, samples=document["samples"]))]
        parts += _official(document) + _gains(document) + _scopes(document) + _claims(document)
        parts += ["## Temperatures (Table 9)", page.temperatures(document), *_paper()]
        page.write(out / f"{name}.md", f"Retrieval by length: {page.model_name(document)}", document, parts)


def _overview(documents: dict[str, page.Document]) -> list[str]:
    """Every model beside the others, task by task, at the training length and beyond."""
    parts = [
        "# Retrieval: all models",
        "Percent right with its 95 % interval (Wilson); a model's own page says how it was asked.",
    ]
    for task in TASKS:
        cells = {name: cells_of(document, task) for name, document in documents.items()}
        methods = page.methods(cell for some in cells.values() for cell in some)
        rows = []
        for name, some in cells.items():
            known = {(cell["method"], cell["length"]): page.percent(cell, 0) for cell in some}
            for length in [n for n in OVERVIEW if any(n == at for _, at in known) and by_length({task: some})]:
                rows.append([f"[{name}]({name}.md), {length:,}", *(known.get((method, length), "") for method in methods)])
        parts += [f"## {task}", table(["model, tokens", *methods], rows)] if rows else []
    return parts


def cells_of(document: page.Document, task: str) -> list[page.Cell]:
    """Cells of generated samples; official files have a name of their own in `data`."""
    return [cell for cell in document["cells"] if cell["task"] == task and not cell["data"]]


def official_of(document: page.Document) -> dict[str, list[page.Cell]]:
    """Cells of LongEval's own files, by task."""
    cells = [cell for cell in document["cells"] if cell["data"]]
    return {f"LongEval's cases: {task}": [cell for cell in cells if cell["task"] == task] for task in ("line", "topic")}


def by_length(tasks: dict[str, list[page.Cell]]) -> dict[str, list[page.Cell]]:
    """Those that were asked at several lengths, which curves and the overview need."""
    return {task: cells for task, cells in tasks.items() if len({cell["length"] for cell in cells}) > 1}


def _figure(document: page.Document, tasks: dict[str, list[page.Cell]]) -> Any:
    figure, panels = draw.panels(len(tasks), columns=2, titles=list(tasks), share_y=True)
    for axes, cells in zip(panels, tasks.values(), strict=True):
        page.curves(axes, cells)
        draw.length_axis(axes, sorted({cell["length"] for cell in cells}))
        draw.train_length(axes, document["train_length"])
        axes.set_ylabel("percent right")
    if not any(cell["mean"] for cells in tasks.values() for cell in cells):
        # Intervals alone would fill the panel, and look like a result
        panels[0].set_ylim(-2, 102)
    draw.key(figure, panels[0])
    return figure


def _official(document: page.Document) -> list[str]:
    cells = sorted((cell for cell in document["cells"] if cell["data"]), key=lambda cell: (cell["task"], cell["length"]))
    files = {cell["data"]: f"{Path(cell['data']).stem}, about {cell['length']:,} tokens" for cell in cells}
    known = {(cell["method"], cell["data"]): page.percent(cell, CASES) for cell in cells}
    rows = [[method, *(known.get((method, file), "") for file in files)] for method in page.methods(cells)]
    return ["## Official LongEval cases", table(["percent right", *files.values()], rows)] if cells else []


def _gains(document: page.Document) -> list[str]:
    """Every method against the plain model, and P_max against every other, on the same samples."""
    tasks = {task: f"{task}: points" for task in TASKS}
    return [*page.gains(document, "gains", tasks), *page.gains(document, "pmax_over", tasks)]


def _scopes(document: page.Document) -> list[str]:
    """One temperature for the model, a layer or a head, on the same samples."""
    rows = []
    for scopes in document["scopes"]:
        lengths = [f"{n:,}" for n in scopes["lengths"]]
        tokens = " and ".join(lengths) if len(lengths) < 4 else f"{lengths[0]} to {lengths[-1]}"
        name = f"{scopes['statistic']}, {scopes['task']}, {tokens}"
        means = [
            f"{100 * scopes['means'][scope]:.1f}" if scope in scopes["means"] else "" for scope in ("model", "layer", "head")
        ]
        pairs = [scopes["against"].get(key) for key in PAIRS]
        rows.append([name, *means, *(f"{page.points(pair)} p {pair['p']:.2g}" if pair else "" for pair in pairs)])
    note = f"{page.PAIRED} p is that of the same test."
    note = f"{note} {page.by_chance(sum(len(scopes['against']) for scopes in document['scopes']))}"
    ours = [scopes for scopes in document["scopes"] if not scopes["task"].startswith(OFFICIAL)]
    if any(pair["n"] > document["samples"] for scopes in ours for pair in scopes["against"].values()):
        note = f"{note} {WORDS['scopes']}"
    head = ["statistic, task, tokens", "model", "layer", "head", *PAIRS]
    return ["## One temperature, one a layer, or one a head?", note, table(head, rows)] if rows else []


def _claims(document: page.Document) -> list[str]:
    holds = {True: "yes", False: "**no**", None: ""}
    rows = [[claim["claim"], claim["measured"], holds[claim["holds"]]] for claim in document.get("must_show", [])]
    return ["## Claims", table(["claim", "measured", "holds"], rows, numbers=False)] if rows else []


def _paper() -> list[str]:
    paper = page.paper(__file__)
    parts = []
    for title, tables, digits in (
        ("Table 4: percent right", "table_4", "{:g}"),
        ("Table 9: temperatures", "table_9", "{:.2f}"),
    ):
        parts += [f"## The paper's {title}", *([WORDS["paper"]] if digits == "{:g}" else [])]
        for task, sizes in paper["sizes"].items():
            rows = [["about tokens", *(f"{n:,}" for n in paper["tokens"][task])]]
            rows += [[name, *(digits.format(value) for value in row[task])] for name, row in paper[tables].items()]
            parts.append(table([f"{task}: {paper['units'][task]}", *(f"{size:,}" for size in sizes)], rows))
    return parts
