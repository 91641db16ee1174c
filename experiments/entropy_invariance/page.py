"""The rows of all tables, the paper's numbers, and the page: every table with intervals and the paper's numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.page import by_chance, read_all
from experiments._lib.results import read
from lengthwise.common.files import write_whole

FORMAT = "lengthwise.experiments.entropy_invariance/2"
SEED_FORMAT = "lengthwise.experiments.entropy_seeds/1"
MODELS = "models.json"
MADE_OF = dict.fromkeys(("tables", "alone"), ("models",))
LENGTHS = (128, 256, 512, 1024, 2048, 4096)
# CosScale's S, another one with windowed attention, and those of Table 9
SCALE, WINDOW_SCALE = 128.0, 16.0
SCALES = (8.0, 16.0, 32.0, 64.0, 96.0, 128.0, 256.0, 600.0)
METHODS = ("pi", "alibi", "pose", "streaming_llm", "yarn16", "yarn32", "window", "lm_infinite", "rerope", "gau")
RELEASED = ("pi", "alibi", "streaming_llm", "yarn16", "yarn32")
LAWS = {"infoscale": "InfoScale", "softmax_plus": "softmax plus"}
SHORT = {"infoscale": "info", "softmax_plus": "plus"}
PAPER = read(Path(__file__).with_name("paper.json"))["rows"]
WORDS = words_beside(__file__)
Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A row of the tables."""

    method: str
    cos: float | None = None  # S of a model trained with CosScale
    law: str | None = None  # temperature at evaluation
    released: bool = False  # with the faults of the code that the paper's numbers come from

    @property
    def label(self) -> str:
        name = f"{self.method} as released" if self.released else self.method
        cos = [f"CosScale {self.cos:g}"] if self.cos is not None else []
        return " + ".join([name, *cos, *([LAWS[self.law]] if self.law else [])])

    def printed(self, length: int, accuracy: bool = False) -> str:
        """The paper's number, which is that of the released code; a limit such as >500 is none. Empty if it prints none."""
        extra = [f"cos{self.cos:g}"] if self.cos is not None else []
        extra += [SHORT[self.law]] if self.law else []
        numbers = PAPER.get(f"{self.method} {'+'.join(extra) or 'plain'}")
        known = numbers is not None and length in LENGTHS
        return str(numbers[accuracy].split()[LENGTHS.index(length)]) if known else ""

    def number(self, length: int) -> float | None:
        """The paper's perplexity; a limit is beyond all numbers, and as large as any other limit."""
        printed = self.printed(length)
        return None if not printed else math.inf if printed.startswith(">") else float(printed)


def fourfold(method: str, released: bool = False) -> tuple[Row, ...]:
    """Plain, with CosScale, with InfoScale, with both."""
    scale = WINDOW_SCALE if method == "window" else SCALE
    return tuple(Row(method, cos, law, released) for law in (None, "infoscale") for cos in (None, scale))


TABLES: dict[str, tuple[Row, ...]] = {
    "1": tuple(row for method in METHODS[:-1] for row in fourfold(method)),
    "10": fourfold("gau"),
    "2": tuple(Row("gau", SCALE, law) for law in LAWS),
    "3": tuple(Row("gau", None, law) for law in LAWS),
    "9": tuple(Row("gau", scale) for scale in SCALES),
    "released": tuple(row for method in RELEASED for row in fourfold(method, released=True)),
}
# The rows that carry conclusions, measured for several seeds of the training
SEEDS = "seeds"
FOURFOLD = tuple(row for method in ("gau", "window", "rerope", "yarn16") for row in fourfold(method))
SEEDED = (*FOURFOLD, Row("gau", 32.0), Row("gau", 64.0))
# Some stand in several tables
ROWS = tuple(dict.fromkeys(row for rows in TABLES.values() for row in rows))
ORDERED = (*TABLES["1"], *TABLES["10"])


def write_pages(results: Path, out: Path) -> None:
    """A page and a figure for every result file of this experiment."""
    models = read(results / MODELS) if (results / MODELS).exists() else {}
    for name, document in read_all(results, FORMAT):
        write_whole(out / f"{name}.md", page(document, models, f"{name}.svg"))
        draw.save(chart(cells_of(document)), out / f"{name}.svg")


def cells_of(document: Numbers) -> dict[tuple[Row, int], Numbers]:
    return {(row_of(cell), cell["length"]): cell for cell in document["cells"]}


def row_of(numbers: Numbers) -> Row:
    return Row(numbers["method"], numbers["cos"], numbers["law"], numbers["released"])


def page(document: Numbers, models: Numbers, figure: str) -> str:
    cells, exam = cells_of(document), document["exam"]
    together = "one at a time" if exam["tokens_each"] is None else f"one in {exam['tokens_each']} tokens at a time"
    parts = ["# Entropy invariance: Tables 1, 2, 3, 9 and 10"]
    parts.append(WORDS["about"].format(count=exam["count"], documents=len(exam["documents"]), together=together))
    parts.append("\n".join(f"- {key}: {value}" for key, value in document["made_with"].items()))
    if document["missing"]:
        parts.append(f"**Unfinished**: {document['missing']} cells are missing. The same commands go on.")
    parts.append(f"![Perplexity by length]({figure})")
    laws = list(dict.fromkeys([*TABLES["2"], *TABLES["3"]]))
    at = sorted({length for _, length in cells})
    sections = [
        ("Tables 1 and 10: perplexity", "", _table(cells, ORDERED, False)),
        ("Tables 1 and 10: accuracy", "", _table(cells, ORDERED, True)),
        ("Does a scale help?", f"{WORDS['ratios']} {_counted(document['scales'])}", _ratios(document["scales"])),
        ("Tables 2 and 3: InfoScale against softmax plus", "", _both(cells, laws)),
        ("InfoScale's perplexity over softmax plus's", _counted(document["laws"]), _ratios(document["laws"])),
        ("Table 9: which S", "", _both(cells, TABLES["9"])),
        ("The best S", WORDS["best"], _best(document["best_scales"])),
        ("As released", WORDS["faults"], _released(cells, document["explanations"], at)),
        ("Models", WORDS["trained"], _models(models)),
    ]
    parts += [part for title, about, body in sections if body for part in (f"## {title}", about, body) if part]
    return "\n\n".join(parts) + "\n"


def _both(cells: Mapping[tuple[Row, int], Numbers], rows: Sequence[Row]) -> str:
    return "\n\n".join(body for body in (_table(cells, rows, accuracy) for accuracy in (False, True)) if body)


def _table(cells: Mapping[tuple[Row, int], Numbers], rows: Sequence[Row], accuracy: bool) -> str:
    at = sorted({length for _, length in cells})
    lines = []
    for row in rows:
        if any((row, length) in cells for length in at):
            pairs = [(_interval(cells.get((row, length)), accuracy), row.printed(length, accuracy)) for length in at]
            lines.append([row.label, *(word for pair in pairs for word in pair)])
    head = ["ACC" if accuracy else "PPL", *(word for length in at for word in (f"{length:,}", "paper"))]
    return table(head, lines) if lines else ""


def _counted(pairs: Sequence[Numbers]) -> str:
    return by_chance(len(pairs), "ratios", 1)


def _ratios(pairs: Sequence[Numbers]) -> str:
    """A line a row, a column a length, and the paper's ratio beside it."""
    at = sorted({pair["length"] for pair in pairs})
    known = {(row_of(pair["row"]), pair["length"]): pair for pair in pairs}
    lines = []
    for row in dict.fromkeys(row for row, _ in known):
        line: list[object] = [row.label]
        for length in at:
            pair = known.get((row, length))
            ours, theirs = (row.number(length), row_of(pair["other"]).number(length)) if pair else (None, None)
            paper = f"{ours / theirs:.2f}" if ours and theirs and math.isfinite(ours) and math.isfinite(theirs) else ""
            line += ["" if pair is None else _ratio(pair["ours"]), paper]
        lines.append(line)
    return table(["row", *(word for length in at for word in (f"{length:,}", "paper"))], lines) if lines else ""


def _best(best: Sequence[Numbers]) -> str:
    lines = []
    for one in best:
        over = "" if one["against_128"] is None else _ratio(one["against_128"])
        lines.append([f"{one['length']:,}", f"{one['ours']:g}", over, ", ".join(f"{scale:g}" for scale in one["paper"])])
    return table(["tokens", "best S", "its perplexity over S = 128's", "paper's best S"], lines) if lines else ""


def _released(cells: Mapping[tuple[Row, int], Numbers], explanations: Sequence[Numbers], at: Sequence[int]) -> str:
    lines = []
    for one in explanations:
        row = row_of(one["row"])
        defined = replace(row, released=False)
        for kind, own, distance in (("as defined", defined, one["defined"]), ("as released", row, one["released"])):
            numbers = [_number(cells[own, n]["perplexity"]) if (own, n) in cells else "" for n in at]
            lines.append([defined.label, kind, *numbers, f"{distance:.2f}"])
        lines.append(["", "the paper", *(row.printed(length) for length in at), ""])
    return table(["row", "PPL", *(f"{length:,}" for length in at), "distance"], lines) if lines else ""


def _models(models: Numbers) -> str:
    lines = [
        [f"`{name}`", f"{one['steps']:,}", *(f"{one[kind]:.3f}" if kind in one else "" for kind in ("training", "held out"))]
        for name, one in models.items()
    ]
    return table(["model", "steps", "training", "held out"], lines) if lines else ""


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _ratio(ratio: Numbers) -> str:
    return f"{_number(ratio['ratio'])} ({_number(ratio['low'])} to {_number(ratio['high'])})"


def _interval(cell: Numbers | None, accuracy: bool) -> str:
    if cell is None:
        return ""
    name = "accuracy" if accuracy else "perplexity"
    value, low, high = (f"{cell[key]:.2f}" if accuracy else _number(cell[key]) for key in (name, f"{name}_low", f"{name}_high"))
    return f"{value} ({low} to {high})"


def chart(cells: Mapping[tuple[Row, int], Numbers]) -> Any:
    """Perplexity by length, a panel a method: plain, with either scale, with both; bands are 95 % intervals."""
    methods = [method for method in METHODS if any(row.method == method for row, _ in cells)]
    figure, panels = draw.panels(len(methods), columns=5, width=3, height=2.8, titles=methods, share_y=True)
    lengths = sorted({length for _, length in cells})
    for axes, method in zip(panels, methods, strict=True):
        for place, (row, label) in enumerate(zip(fourfold(method), ("plain", "CosScale", "InfoScale", "both"), strict=True)):
            own = [cells[row, length] for length in lengths if (row, length) in cells]
            bands = ([cell[key] for cell in own] for key in ("perplexity", "perplexity_low", "perplexity_high"))
            draw.curve(axes, [cell["length"] for cell in own], *bands, label=label, at=place)
        draw.length_axis(axes, lengths)
        axes.set_yscale("log")
    panels[0].set_ylabel("perplexity")
    draw.key(figure, panels[-1], columns=min(4, 2 * len(methods)))
    return figure
