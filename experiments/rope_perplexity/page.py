"""The page of a model: perplexity by position of every method, combinations against their parts, and temperatures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments._lib import draw
from experiments._lib.markdown import table, words_beside
from experiments._lib.page import read_all
from experiments._lib.paired import holm, p_of
from lengthwise.common.files import write_whole
from lengthwise.report.formatting import listed

FORMAT = "lengthwise.experiments.rope_methods/1"
GOLD, PLAIN = "re-encoding", "none"
# Curves of the figure, by the beginning of their names
DRAWN = {
    "re-encoding": {"color": draw.INK, "linestyle": "--", "zorder": 5},
    "none": {"color": draw.GREY},
    "streaming_llm": {"color": draw.COLOURS[0]},
    "window": {"color": draw.COLOURS[5]},
    "rerope:window={half},leak={leak}": {"color": draw.COLOURS[2]},
    "yarn:factor={factor}": {"color": draw.COLOURS[1]},
    "ntk:factor={factor}": {"color": draw.COLOURS[4]},
    "interpolation:factor={factor}": {"color": draw.COLOURS[3]},
}
WORDS = words_beside(__file__)
Numbers = Mapping[str, Any]


def write_pages(results: Path, out: Path) -> None:
    """A page and a figure for every model with results."""
    for name, document in read_all(results, FORMAT):
        write_whole(out / f"{name}.md", page(document, f"{name}.svg"))
        draw.save(chart(document), out / f"{name}.svg")


def page(document: Numbers, figure: str) -> str:
    rows, model = document["rows"], document["model"]
    lines = [f"model: {model['name']} (weights {model['weights']}), trained on {document['train_length']:,} tokens"]
    lines += [f"{key}: {value}" for key, value in document["made_with"].items()]
    lines += [f"{key}: {document[key]}" for key in ("dtype", "seed", "streams")]
    lines.append(f"command: `{document['command']}`")
    parts = ["# Length methods on a model with rotary positions", "\n".join(f"- {line}" for line in lines)]
    if document["missing"]:
        parts.append(f"**Unfinished**: {document['missing']:,} cells are missing. The same command goes on.")
    gold = next((row["spec"] for row in rows if row["method"] == GOLD), GOLD)
    resampled = listed(list(dict.fromkeys(row["whole"]["resampled"] for row in rows)))
    about = {"streams": document["streams"], "source": document["source"], "train": document["train_length"]}
    about |= {"gold": gold, "every": gold.removeprefix(GOLD) or " for every token", "resampled": resampled}
    parts.append(WORDS["about"].format(**about))
    parts.append(f"![Perplexity by position]({figure})")
    same = {entry["length"]: entry["methods"] for entry in document["unchanged"]}
    for length in dict.fromkeys(row["length"] for row in rows):
        own = [row for row in rows if row["length"] == length]
        parts += [f"## {length:,} tokens", _ranking(own, same.get(length, []), gold)]
        if length > document["train_length"]:
            parts += [_by_chance(own, document)]
            parts += _comparisons(document, length, {row["method"]: row["spec"] for row in own})
    if document["refused"]:
        parts += ["## Refused", "\n".join(f"- `{name}`: {why}" for name, why in document["refused"].items())]
    return "\n\n".join(parts) + "\n"


def _ranking(rows: Sequence[Numbers], same: Sequence[str], gold: str) -> str:
    """Columns against re-encoding only where there is one; methods that are exactly the plain model share its line."""
    specs = {row["method"]: row["spec"] for row in rows}
    edges = [f"{bucket['first']:,}-{bucket['last']:,}" for bucket in rows[0]["buckets"]]
    against = [f"over {gold}", "beyond training length"] if rows[0]["method"] == GOLD else []
    lines = []
    for row in rows:
        if row["method"] in same:
            continue
        named = [row["spec"], *(specs[name] for name in same)] if row["method"] == PLAIN else [row["spec"]]
        ratios = [_ratio(row["against"]), _ratio(row["beyond"])] if against else []
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f}"
        cells = map(_cell, (*row["buckets"], row["whole"]))
        lines.append([listed([f"`{name}`" for name in named]), *cells, *ratios, seconds])
    return table(["method", *edges, "all", *against, "seconds"], lines)


def _by_chance(rows: Sequence[Numbers], document: Numbers) -> str:
    """How many methods are told apart from re-encoding, and how many of them are after Holm's correction."""
    known = {row["spec"]: row["against"] for row in rows if row["against"] and row["against"]["low"] < row["against"]["high"]}
    if not known:
        return ""
    freedom = {spec: freedom_of(ratio, document) for spec, ratio in known.items()}
    logs = {spec: [math.log(ratio[key]) for key in ("ratio", "low", "high")] for spec, ratio in known.items()}
    corrected = holm([p_of(*ends, freedom[spec]) for spec, ends in logs.items()])
    sure = [f"`{spec}`" for (spec, ends), p in zip(logs.items(), corrected, strict=True) if p <= 0.05 and ends[0] < 0]
    better, worse = sum(high < 0 for _, _, high in logs.values()), sum(low > 0 for _, low, _ in logs.values())
    told = f"{listed(sure)} {'is' if len(sure) == 1 else 'are'}" if sure else "none is"
    return str(WORDS["chance"].format(n=len(known), better=better, worse=worse, chance=round(len(known) / 40), sure=told))


def freedom_of(ratio: Numbers, document: Numbers) -> int:
    """Degrees of freedom of an interval: streams less one, in every stretch where those were drawn anew."""
    stretch = re.search(r"stretch of (\d+)", ratio["resampled"])
    tokens = int(ratio["tokens"]) // int(document["streams"])
    return (int(document["streams"]) - 1) * (math.ceil(tokens / int(stretch[1])) if stretch else 1)


def _comparisons(document: Numbers, length: int, specs: Mapping[str, str]) -> list[str]:
    combined, laws, calibrated = (
        [pair for pair in document[name] if pair["length"] == length] for name in ("combinations", "temperatures", "calibrated")
    )
    parts = []
    if combined:
        head = ["combination", "part", "ratio"]
        parts += ["### Combinations against the better of their parts", _pairs(combined, specs, head)]
    if laws:
        names = list(dict.fromkeys(pair["temperature"] for pair in laws))
        known = {(pair["other"], pair["temperature"]): _ratio(pair["ratio"]) for pair in laws}
        bases = dict.fromkeys(pair["other"] for pair in laws)
        lines = [[f"`{specs[base]}`", *(known.get((base, name), "") for name in names)] for base in bases]
        about = "With the temperature over without it, in perplexity; below 1 it helps."
        parts += ["### Temperatures", about, table(["on", *names], lines)]
    if calibrated:
        about = "Perplexity over that of YaRN with the temperature it was given by hand."
        pairs = _pairs(calibrated, specs, ["method", "against", "ratio"])
        parts += ["### Calibrated against YaRN's factor", about, pairs]
    return parts


def _pairs(pairs: Sequence[Numbers], specs: Mapping[str, str], head: list[str]) -> str:
    ranked = sorted(pairs, key=lambda pair: pair["ratio"]["ratio"])
    lines = [[f"`{specs[pair['method']]}`", f"`{specs[pair['other']]}`", _ratio(pair["ratio"])] for pair in ranked]
    return table(head, lines, numbers=False)


def _cell(bucket: Numbers) -> str:
    return f"{_number(bucket['perplexity'])} [{_number(bucket['low'])}, {_number(bucket['high'])}]"


def _ratio(ratio: Numbers | None) -> str:
    return "" if ratio is None else f"{_fine(ratio['ratio'])} [{_fine(ratio['low'])}, {_fine(ratio['high'])}]"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _fine(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def chart(document: Numbers) -> Any:
    """Perplexity by position of some methods, a panel a length; the last token of each bucket is marked."""
    rows = [row for row in document["rows"] if row["method"] in DRAWN]
    lengths = [length for length in dict.fromkeys(row["length"] for row in rows) if length > document["train_length"]]
    lengths = lengths or list(dict.fromkeys(row["length"] for row in rows))
    titles = [f"{length:,} tokens in one forward" for length in lengths]
    figure, panels = draw.panels(len(lengths), columns=2, titles=titles, left=0.9)
    for axes, length in zip(panels, lengths, strict=True):
        for row in (row for name in DRAWN for row in rows if (row["method"], row["length"]) == (name, length)):
            ends = [bucket["last"] for bucket in row["buckets"]]
            values = [bucket["perplexity"] for bucket in row["buckets"]]
            label = row["method"].split("=")[0].removesuffix(":factor").removesuffix(":window")
            draw.curve(axes, ends, values, label=label, marker="o", **DRAWN[row["method"]])
            draw.length_axis(axes, ends, "position")
        axes.set(yscale="log", ylabel="perplexity")
        draw.train_length(axes, document["train_length"])
    draw.key(figure, panels[-1])
    return figure
