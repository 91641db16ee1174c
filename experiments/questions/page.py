"""Pages of multi-document questions by the place of the gold document: Tables 5, 10 and 14, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments._lib import draw, page, results
from experiments._lib.markdown import marked, table, with_mark, words_beside

FORMAT = "lengthwise.experiments.questions/1"
WORDS = words_beside(__file__)
OVER_PLACES = ".over_places.json"
# Places of the gold document by the number of documents: the paper's, and as many as 512 tokens hold
POSITIONS = {3: [0, 1, 2], **{int(n): places for n, places in page.paper(__file__)["positions"].items()}}


def write_pages(folder: Path, out: Path) -> None:
    paper = page.paper(__file__)
    for name, document in page.read_all(folder, FORMAT):
        over_places = results.read(folder / f"{name}{OVER_PLACES}")
        documents = [n for n in POSITIONS if _cells(document, n)]
        material = next(iter(document["materials"].values()))
        draw.save(_figure(document, documents), out / f"{name}.svg")
        parts = [
            f"![Percent right by the place of the gold document]({name}.svg)",
            WORDS["means"],
            page.methods_told(document),
            page.undecided(document["cells"]),
        ]
        for n in documents:
            length = _cells(document, n)[0]["length"]
            parts += [f"## {n} documents, about {length:,} tokens (Table 14)", *_right(document, over_places, paper, n)]
        parts += ["## What alignment gains over the plain model, in points (Table 5)", page.by_chance(len(document["gains"]))]
        parts += [_gains(document, paper, n) for n in documents]
        parts += [WORDS["middle"], table(["method, documents", "middle less ends"], _middle(over_places))]
        parts += marked(over_places["middle"])
        parts += ["## Temperatures (Table 10)", page.temperatures(document)]
        head = [f"paper: {n} documents, about {size:,} tokens" for n, size in paper["table_10_tokens"].items()]
        parts += [table(["tau", *head], [[key, *row] for key, row in paper["table_10"].items()])]
        page.write(
            out / f"{name}.md", f"Questions over many documents: {page.model_name(document)}, {material}", document, parts
        )


def _cells(document: page.Document, documents: int) -> list[dict[str, Any]]:
    """Cells of so many documents, with the place of the gold one: their tasks are called DOCUMENTS-PLACE."""
    cells = [cell for cell in document["cells"] if cell["task"].startswith(f"{documents}-")]
    return [{**cell, "place": int(cell["task"].split("-")[1])} for cell in cells]


def _right(document: page.Document, over_places: page.Document, paper: dict[str, Any], documents: int) -> list[str]:
    cells, places = _cells(document, documents), POSITIONS[documents]
    known = {(cell["method"], cell["place"]): page.percent(cell, document["samples"]) for cell in cells}
    means = {
        row["method"]: f"{row['mean']:.1f} ({row['low']:.1f}-{row['high']:.1f})"
        for row in over_places["means"]
        if row["documents"] == documents
    }
    ours = [[name, *(known.get((name, at), "") for at in places), means.get(name, "")] for name in page.methods(cells)]
    rows = {key: row[str(documents)] for key, row in paper["table_14"].items() if str(documents) in row}
    theirs = [[key, *row, f"{_mean(row):.1f}"] for key, row in rows.items()]
    head = [*places, "mean"]
    return [table([f"{whose}, gold at", *head], some) for whose, some in (("ours", ours), ("paper", theirs)) if some]


def _gains(document: page.Document, paper: dict[str, Any], documents: int) -> str:
    places = POSITIONS[documents]
    gains = [gain for gain in document["gains"] if gain["documents"] == documents]
    known = {(gain["method"], gain["position"]): gain for gain in gains}
    rows = [[f"ours, {name}", *(page.points(known.get((name, at))) for at in (*places, None))] for name in page.methods(gains)]
    for model in dict.fromkeys(key.split(", ")[0] for key, row in paper["table_14"].items() if str(documents) in row):
        pair = (paper["table_14"][f"{model}, {method}"][str(documents)] for method in ("pmax", "none"))
        differences = [aligned - plain for aligned, plain in zip(*pair, strict=True)]
        rows.append([f"{model}, pmax", *(f"{value:+.1f}" for value in (*differences, _mean(differences)))])
    return table([f"{documents} documents, gold at", *places, "mean"], rows)


def _middle(over_places: page.Document) -> list[list[str]]:
    return [
        [f"{row['method']}, {row['documents']}", with_mark("{difference:+.1f} [{low:+.1f}, {high:+.1f}]".format(**row), row)]
        for row in over_places["middle"]
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _figure(document: page.Document, documents: list[int]) -> Any:
    titles = [f"{n} documents, about {_cells(document, n)[0]['length']:,} tokens" for n in documents]
    figure, panels = draw.panels(len(documents), titles=titles, share_y=True)
    for axes, n in zip(panels, documents, strict=True):
        page.curves(axes, [{**cell, "length": cell["place"]} for cell in _cells(document, n)])
        axes.set(xlabel="place of the gold document", ylabel="percent right", ylim=(-2, 102))
        axes.set_xticks(sorted({cell["place"] for cell in _cells(document, n)}))
    draw.key(figure, panels[0], columns=6)
    return figure
