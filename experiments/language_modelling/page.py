"""Pages of language modelling by length: Tables 3 and 8, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments._lib import draw, page
from experiments._lib.markdown import table, words_beside
from experiments._lib.paired import paired

FORMAT = "lengthwise.experiments.language_modelling/1"
WORDS = words_beside(__file__)
EXPLODES = 2  # times the perplexity at the training length; the paper's models have more than 10


def write_pages(results: Path, out: Path) -> None:
    paper = page.paper(__file__)
    lengths = [f"{n:,}" for n in paper["lengths"]]
    for name, document in page.read_all(results, FORMAT):
        cells, train = document["cells"], document["train_length"]
        ratios = [{**cell, **cell["ratio"]} for cell in cells if cell["ratio"]]
        # Truncation's, and all at the training length, are 1 by definition
        told = sum(cell["method"] != "truncate" and cell["length"] > train for cell in ratios)
        draw.save(_figure(ratios, train), out / f"{name}.svg")
        parts = [
            f"![Perplexity by length, over that at the training length]({name}.svg)",
            WORDS["asked"].format(**document),
            page.methods_told(document),
            "## Perplexity (Table 3)",
            table_3(cells, train),
            page.by_length("perplexity", cells, lambda cell: _interval(cell, "perplexity")),
            page.by_chance(told, "ratios", 1),
            page.by_length(
                f"over that at {train:,} tokens, which truncation gives", ratios, lambda cell: _interval(cell, "ratio")
            ),
            table(["paper, Table 3", *lengths], [[key, *row] for key, row in paper["table_3"].items()]),
            "## Temperatures (Table 8)",
            page.temperatures(document),
            table(["paper, Table 8", *lengths], [[key, *row] for key, row in paper["table_8"].items()]),
        ]
        page.write(out / f"{name}.md", f"Language modelling by length: {page.model_name(document)}", document, parts)


def table_3(cells: list[dict[str, Any]], train: int) -> str:
    """Whether the paper's Table 3 is seen at the longest length: the plain model explodes, and P_max alignment mends it."""
    plain, aligned = ({cell["length"]: cell for cell in cells if cell["method"] == name} for name in ("none", "pmax-model"))
    longest = max(plain.keys() & aligned.keys(), default=train)
    if longest == train or train not in plain:
        return ""
    rise = plain[longest]["perplexity"] / plain[train]["perplexity"]
    pair = paired(*(dict(enumerate(by_length[longest]["nll"])) for by_length in (aligned, plain)))
    assert pair is not None
    moved = "lowers" if pair.high < 0 else "raises" if pair.low > 0 else "does not change"
    said = "is seen" if rise >= EXPLODES and pair.high < 0 else "is **not reproduced**"
    change = f"{pair.difference:+.3f} nats a token [{pair.low:+.3f}, {pair.high:+.3f}]"
    numbers = {"said": said, "rise": rise, "train": train, "longest": longest, "moved": moved, "change": change, "n": pair.n}
    return str(WORDS["table_3"].format(**numbers))


def _interval(cell: Mapping[str, Any], key: str) -> str:
    return f"{cell[key]:.4g} [{cell['low']:.4g}, {cell['high']:.4g}]"


def _figure(ratios: list[dict[str, Any]], train: int) -> Any:
    figure, (axes,) = draw.panels(1, width=7.5, height=4.2)
    page.curves(axes, ratios, 1, ("ratio", "low", "high"))
    draw.length_axis(axes, sorted({cell["length"] for cell in ratios}))
    axes.set_ylabel(f"perplexity over that at {train:,} tokens")
    draw.key(figure, axes)
    return figure
