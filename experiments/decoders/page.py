"""The pages: one that tells which method for which need, over all models, and one a model with every cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from statistics import fmean, variance
from typing import Any

import numpy as np

from experiments._lib import draw
from experiments._lib.markdown import table
from experiments._lib.page import PAIRED, by_chance, points, read_all
from experiments._lib.paired import holm, paired, sign_test
from experiments._lib.results import write_json
from experiments._lib.rotary_methods import filled, written
from lengthwise.common.files import write_whole
from lengthwise.errors import require
from lengthwise.records.intervals import mean_interval, wilson
from lengthwise.tasks.perplexity import compared
from lengthwise.tasks.ruler import NAMES as RULER_TASKS

FORMAT = "lengthwise.experiments.decoders/1"
COMPARED_FILE = "compared.json"  # made with the pages
MADE_OF = {"decoders": sorted(f.stem for f in Path(__file__).parent.glob("results/*.json") if f.name != COMPARED_FILE)}
PLAIN, TRUNCATED, BASE, INFOSCALE = "none", "truncate", "streaming_llm", "infoscale"
DRAWN = (
    PLAIN,
    TRUNCATED,
    "yarn:factor={factor}",
    "rerope:window={half}",
    "self_extend:group={group},window={quarter}",
)
ABOUT = """W is the training length, F the length over it, G (4 F - 1) / 3, rounded up. Perplexity is that of the tokens beyond
the training length, over `streaming_llm`'s on the same tokens. Seconds, gigabytes (above the weights) and milliseconds are of
one prompt and of a token after it."""
COMPARED = """Percent right with 95 % intervals (Wilson's). **Bold** is better than the model as it is by McNemar's exact test
on the same prompts, corrected for the methods tried at that length (Holm); *italic* is worse."""
COUNTED = """How many prompts are better and how many worse follows, and the p-value of these counts alone (sign test).
`all` counts every prompt of the tasks that both were asked."""

Document = Mapping[str, Any]
Numbers = Mapping[str, Any]


def write_pages(results: Path, out: Path) -> None:
    found = together([document for _, document in read_all(results, FORMAT)])
    for name, document in found:
        write_whole(out / f"{name}.md", model_page(name, document))
        if drawn(document):
            draw.save(chart(document), out / f"{name}.svg")
    write_whole(out / "decoders.md", overview(found))
    compared_with = {"ruler": ruler_differences, "perplexity": over_base}
    kept = {what: [{"model": n, **row} for n, doc in found for row in rows(doc)] for what, rows in compared_with.items()}
    if any(kept.values()):
        write_json(out / COMPARED_FILE, kept)


def together(documents: Sequence[Document]) -> list[tuple[str, Document]]:
    """The results of each model, which may stand in several files; of a cell in two of them the one with more answers."""
    models: dict[str, dict[str, Any]] = {}
    # The fullest names the methods first, so that a table has its order
    for document in sorted(documents, key=lambda document: -len(document["answers"])):
        known = models.setdefault(Path(document["model"]["name"]).stem, {**document, "cells": {}, "commands": []})
        same = [(one["model"]["weights"], one["settings"]["seed"], one["settings"]["dtype"]) for one in (known, document)]
        require(same[0] == same[1], f"results of {document['model']['name']} with other weights, seed or dtype")
        for cell in document["answers"]:
            key = (cell["method"], cell["task"], cell["length"])
            known["cells"][key] = max(known["cells"].get(key, cell), cell, key=lambda one: len(one["scores"]))
        for kind in ("reads", "costs"):
            known[kind] = list({(line["method"], line["length"]): line for line in [*known[kind], *document[kind]]}.values())
        known |= {key: {**known[key], **document[key]} for key in ("refused", "tasks")}
        known["answers"], known["commands"] = list(known["cells"].values()), [*known["commands"], document["command"]]
    return sorted(models.items())


def overview(found: Sequence[tuple[str, Document]]) -> str:
    """What an impatient reader needs: the best of each length, and what it costs."""
    parts = ["# Which length method for which decoder"]
    for name, document in found:
        rows = []
        for length in sorted({*lengths_of(document), *(line["length"] for line in document["reads"])}):
            keys = {
                cell["method"]: cell for cell in document["answers"] if (cell["task"], cell["length"]) == ("passkey", length)
            }
            beyond = one_each(document, [*keys], length) if length > document["train_length"] else []
            some = [method for method in beyond if method not in (PLAIN, TRUNCATED) and any(keys[method]["scores"])]
            best = sorted(some, key=lambda method: -fmean(keys[method]["scores"]))[:3]
            most = max((len(cell["scores"]) for cell in keys.values()), default=0)
            told = ", ".join(f"`{written(method)}` {_percent(keys[method]['scores'], most)}" for method in best)
            plain = [_percent(keys[name]["scores"]) if name in keys else "" for name in (PLAIN, TRUNCATED)]
            ruler = {method: ruler_means(document, method, length) for method in keys}
            shown = sorted((m for m in ruler if ruler[m]), key=lambda method: -fmean(ruler[method]))[:3]
            by_ruler = ", ".join(f"`{written(method)}` {100 * fmean(ruler[method]):.0f}" for method in shown)
            rows.append(
                [f"{length:,} ({length / document['train_length']:g} x)", *plain, told, by_ruler, _best_reads(document, length)]
            )
        head = (
            "tokens",
            "as it is",
            "truncated",
            "the three that find most pass keys",
            "the three with the highest RULER mean",
            "the three with the lowest perplexity, over `streaming_llm`'s",
        )
        parts += [f"## [{name}]({name}.md), trained on {document['train_length']:,} tokens", table(head, rows, numbers=False)]
    return "\n\n".join(parts) + "\n"


def asked(document: Document, task: str) -> bool:
    return any(cell["task"] == task for cell in document["answers"])


def drawn(document: Document) -> bool:
    """Pass keys over length, where there are two lengths."""
    return len({cell["length"] for cell in document["answers"] if cell["task"] == "passkey"}) > 1


def model_page(name: str, document: Document) -> str:
    tried = {cell["method"] for cell in document["answers"]} - {PLAIN}
    parts = [f"# {name}: every method by length", ABOUT, *([COMPARED] if tried else [])]
    if asked(document, "passkey"):
        parts += [f"![Pass keys found]({name}.svg)"] if drawn(document) else []
        parts += ["## Pass keys found", _by_length(document, "passkey")]
    if tasks := [task for task in RULER_TASKS if asked(document, task)]:
        parts += ["## RULER", *_ruler_tables(document, tasks)]
        parts += ["## RULER: differences on the same prompts", *told] if (told := _ruler_differences(document)) else []
    if document["reads"]:
        parts += ["## Perplexity beyond the training length, over `streaming_llm`'s", _perplexity(document)]
    if any(line["method"].endswith(INFOSCALE) for line in document["reads"]):
        parts += ["## What InfoScale adds: perplexity over that of the same method without it"]
        parts += [by_chance(len(infoscale_ratios(document)), "ratios", 1), _infoscale(document)]
    if document["costs"]:
        parts += ["## What it costs", _costs(document)]
    if asked(document, "passkey"):
        parts += ["## Pass keys by depth, beyond the training length", _by_depth(document)]
    if document["refused"]:
        parts.append("\n".join(["Refused:", "", *(f"- `{spec}`: {why}" for spec, why in document["refused"].items())]))
    model = document["model"]
    lines = [f"model: {model['name']} (weights {model['weights']}), {document['settings']['dtype']}"]
    lines += [f"{key}: {value}" for key, value in document["made_with"].items()]
    lines += [f"seed {document['settings']['seed']}"]
    lines += [f"pass keys in {document['tasks']['passkey']}"] if "passkey" in document["tasks"] else []
    lines += [f"command: `{command}`" for command in document["commands"]]
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in lines)]) + "\n"


def lengths_of(document: Document) -> list[int]:
    return sorted({cell["length"] for cell in document["answers"]})


def methods_of(cells: Sequence[Numbers]) -> list[str]:
    return list(dict.fromkeys(cell["method"] for cell in cells))


def one_each(document: Document, names: Sequence[str], length: int) -> list[str]:
    """The names without those that are the method of an earlier name at this length."""
    first = {filled(name, length, document["train_length"]): name for name in reversed(names)}
    return [name for name in names if name in first.values()]


def _percent(scores: Sequence[float], most: int = 0) -> str:
    """With how many there are, where that is fewer than `most`."""
    mean, low, high = (f"{100 * value:.0f}" for value in mean_interval(scores))
    return f"{mean} ({low}-{high})" + (f" of {len(scores)}" if len(scores) < most else "")


def _by_length(document: Document, task: str) -> str:
    train = document["train_length"]
    cells = {(cell["method"], cell["length"]): cell for cell in document["answers"] if cell["task"] == task}
    lengths, names = sorted({length for _, length in cells}), methods_of(list(cells.values()))
    most = max(len(cell["scores"]) for cell in cells.values())
    # Two names may be one method at a length, which then is compared once
    marks = {n: _marks({filled(name, n, train): cell for (name, at), cell in cells.items() if at == n}) for n in lengths}

    def told(name: str, n: int) -> str:
        mark = marks[n].get(filled(name, n, train), "")
        return f"{mark}{_percent(cells[name, n]['scores'], most)}{mark}" if (name, n) in cells else ""

    rows = [[f"`{written(name)}`", *(told(name, n) for n in lengths)] for name in names]
    return table([f"method, of {most}", *(f"{n:,}" for n in lengths)], rows)


def _marks(cells: Mapping[str, Numbers]) -> dict[str, str]:
    """Bold for better than plain, italic for worse, corrected for how many are compared."""
    if PLAIN not in cells:
        return {}
    plain = dict(enumerate(cells[PLAIN]["scores"]))
    pairs = {name: paired(dict(enumerate(cell["scores"])), plain) for name, cell in cells.items() if name != PLAIN}
    known = {name: pair for name, pair in pairs.items() if pair is not None}
    adjusted = zip(known.items(), holm([pair.p for pair in known.values()]), strict=True)
    return {name: "**" if pair.difference > 0 else "*" for (name, pair), p in adjusted if p < 0.05}


def ruler_means(document: Document, method: str, length: int) -> list[float]:
    """The means of the tasks; empty where not all 13 were asked."""
    cells = [cell for cell in document["answers"] if (cell["method"], cell["length"]) == (method, length)]
    means = [fmean(cell["scores"]) for cell in cells if cell["task"] in RULER_TASKS]
    return means if len(means) == len(RULER_TASKS) else []


def _ruler_tables(document: Document, asked: Sequence[str]) -> list[str]:
    """A table a length: the mean, then task by task."""
    parts = []
    for length in lengths_of(document):
        cells = {(c["method"], c["task"]): c for c in document["answers"] if c["length"] == length and c["task"] in asked}
        if not cells:
            continue
        here = [task for task in asked if any(known == task for _, known in cells)]
        rows = []
        for name in one_each(document, list(dict.fromkeys(method for method, _ in cells)), length):
            own = [cells.get((name, task)) for task in here]
            whole = [cell["scores"] for cell in own if cell is not None]
            mean = _mean_of_tasks(whole) if len(whole) == len(here) else ""
            rows.append(
                [f"`{written(name)}`", mean, *("" if cell is None else f"{100 * fmean(cell['scores']):.0f}" for cell in own)]
            )
        counts = sorted({len(cell["scores"]) for cell in cells.values()})
        n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        parts.append(f"{length:,} tokens, {n} samples a task; the mean counts each of these {len(here)} tasks once.")
        parts.append(table(["method", "mean", *(task.removeprefix("ruler_") for task in here)], rows))
    return parts


def ruler_differences(document: Document) -> list[dict[str, Any]]:
    """Every method less the plain model by task, and less each before it over all tasks that both were asked (task None).

    Each task has as many prompts, so that the mean over prompts is that over tasks; what tasks differ by widens the interval.
    """
    rows = []
    for length in lengths_of(document):
        cells = [cell for cell in document["answers"] if cell["length"] == length and cell["task"] in RULER_TASKS]
        for over, method in combinations(one_each(document, methods_of(cells), length), 2):
            own, others = (
                {cell["task"]: cell["scores"] for cell in cells if cell["method"] == name} for name in (method, over)
            )
            both = [task for task in RULER_TASKS if task in own and task in others]
            for task, some in [*((task, [task]) for task in both if over == PLAIN), (None, both)]:
                pair = paired(_by_prompt(own, some), _by_prompt(others, some))
                if pair is not None:
                    about = {"method": method, "over": over, "length": length, "task": task, "tasks": len(some)}
                    rows.append({**about, **asdict(pair), "sign_p": sign_test(pair.better, pair.worse)})
    return rows


def _by_prompt(scores: Mapping[str, Sequence[float]], tasks: Sequence[str]) -> dict[tuple[str, int], float]:
    return {(task, at): score for task in tasks for at, score in enumerate(scores[task])}


def _ruler_differences(document: Document) -> list[str]:
    """A table a length: a column a method, a row a task, then all of them less each other method."""
    rows = ruler_differences(document)
    told = {(row["length"], row["over"], row["method"], row["task"]): _difference(row) for row in rows}
    parts = [f"{PAIRED} {COUNTED} {by_chance(len(rows))}"]
    for length in dict.fromkeys(row["length"] for row in rows):
        here = [row for row in rows if row["length"] == length]
        names = methods_of(here)
        places = dict.fromkeys((row["task"] is None, row["over"], row["task"]) for row in here)
        lines = [
            [f"all, less `{written(over)}`" if last else task.removeprefix("ruler_")]
            + [told.get((length, over, name, task), "") for name in names]
            for last, over, task in sorted(places, key=lambda place: place[0])
        ]
        parts.append(table([f"{length:,} tokens, less `{PLAIN}`", *(f"`{written(name)}`" for name in names)], lines))
    return parts if rows else []


def _difference(row: Numbers) -> str:
    tasks = f", {row['tasks']} tasks" if row["task"] is None else ""
    return f"{points(row)}, {row['better']}:{row['worse']} p {row['sign_p']:.2g}{tasks}"


def _mean_of_tasks(scores: Sequence[Sequence[float]]) -> str:
    """With Wilson's interval of as many samples, drawn from all tasks alike, as would leave the mean as uncertain.

    A normal one around the mean reaches past 0 and 100 and holds the truth 88 times of 100 where few are right or few wrong.
    """
    mean = fmean(fmean(own) for own in scores)
    uncertain = sum(variance(own) / len(own) for own in scores if len(own) > 1) / len(scores) ** 2
    # Tasks that never differ do not make the mean certain
    samples = mean * (1 - mean) / uncertain if uncertain else sum(map(len, scores))
    low, high = wilson(mean, samples)
    return f"{100 * mean:.0f} ({100 * low:.0f}-{100 * high:.0f})"


def _perplexity(document: Document) -> str:
    return _ratios(document, _over_base(document))


def _infoscale(document: Document) -> str:
    return _ratios(document, scaled(document))


def scaled(document: Document) -> list[tuple[str, str]]:
    """Methods that read with InfoScale, each with the same without it."""
    names = [name for name in methods_of(document["reads"]) if name.endswith(INFOSCALE)]
    return [(name, name.removesuffix(INFOSCALE).rstrip("+") or PLAIN) for name in names]


def infoscale_ratios(document: Document) -> list[dict[str, Any]]:
    """What InfoScale does to perplexity beyond the training length: the table, as results keep it."""
    return _kept_ratios(document, scaled(document))


def over_base(document: Document) -> list[dict[str, Any]]:
    """Every method's perplexity beyond the training length over `streaming_llm`'s."""
    return _kept_ratios(document, _over_base(document))


def _over_base(document: Document) -> list[tuple[str, str]]:
    return [(name, BASE) for name in methods_of(document["reads"])]


def _kept_ratios(document: Document, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    lengths = sorted({line["length"] for line in document["reads"]})
    found = [(name, over, n, perplexity_ratio(document, name, over, n)) for name, over in pairs for n in lengths]
    known = [({"method": name, "other": over, "length": n}, r) for name, over, n, r in found if r is not None]
    return [{**about, "ratio": r.ratio, "low": r.low, "high": r.high, "resampled": r.resampled} for about, r in known]


def _ratios(document: Document, pairs: Sequence[tuple[str, str]]) -> str:
    """A row a pair, a column a length: the first's perplexity over the second's, of tokens beyond the training length."""

    def shown(name: str, other: str, length: int) -> str:
        ratio = perplexity_ratio(document, name, other, length)
        return "" if ratio is None else f"{ratio.ratio:.3f} ({ratio.low:.3f}-{ratio.high:.3f})"

    lengths = sorted({line["length"] for line in document["reads"] if line["length"] > document["train_length"]})
    beyond = [length for length in lengths if any(shown(*pair, length) for pair in pairs)]
    rows = [[f"`{written(name)}`", *(shown(name, other, length) for length in beyond)] for name, other in pairs]
    return table(["method", *(f"{length:,}" for length in beyond)], rows)


def perplexity_ratio(document: Document, name: str, other: str, length: int) -> Any:
    """One method's perplexity over another's, with its interval; None where one of them did not read that far."""
    reads = {line["method"]: line["nll"] for line in document["reads"] if line["length"] == length}
    if not {name, other} <= set(reads) or length <= document["train_length"]:
        return None
    first = document["train_length"] // document["stretch"]
    return compared(*(np.asarray(reads[one])[:, first:] for one in (name, other)))


def _best_reads(document: Document, length: int) -> str:
    found = {name: perplexity_ratio(document, name, BASE, length) for name in methods_of(document["reads"]) if name != BASE}
    best = sorted((name for name in found if found[name] is not None), key=lambda name: found[name].ratio)[:3]
    return ", ".join(f"`{written(name)}` {found[name].ratio:.2f}" for name in best)


def _costs(document: Document) -> str:
    costs = {(line["method"], line["length"]): line for line in document["costs"]}
    lengths = sorted({length for _, length in costs})
    head = [f"{what}, {length:,}" for length in lengths for what in ("s", "GB", "ms a token")]
    keys = ("seconds", "gigabytes", "milliseconds")
    rows = [
        [f"`{written(name)}`", *(f"{costs[name, n][key]:.2f}" if (name, n) in costs else "" for n in lengths for key in keys)]
        for name in methods_of(document["costs"])
    ]
    return table(["method", *head], rows)


def _by_depth(document: Document) -> str:
    train = document["train_length"]
    cells = [cell for cell in document["answers"] if cell["task"] == "passkey" and cell["length"] > train]
    depths = sorted({depth for cell in cells for depth in cell["depths"]})
    rows = []
    for name in methods_of(cells):
        own = [pair for cell in cells if cell["method"] == name for pair in zip(cell["depths"], cell["scores"], strict=True)]
        rows.append([f"`{written(name)}`", *(_percent([score for at, score in own if at == depth]) for depth in depths)])
    return table(["method", *depths], rows)


def chart(document: Document) -> Any:
    figure, (axes,) = draw.panels(1, width=6, height=3.8)
    cells = [cell for cell in document["answers"] if cell["task"] == "passkey"]
    for at, name in enumerate(name for name in DRAWN if any(cell["method"] == name for cell in cells)):
        own = sorted((cell for cell in cells if cell["method"] == name), key=lambda cell: cell["length"])
        bands = zip(*([100 * value for value in mean_interval(cell["scores"])] for cell in own), strict=True)
        draw.curve(axes, [cell["length"] for cell in own], *map(list, bands), label=written(name), at=at)
    draw.length_axis(axes, lengths_of(document))
    draw.train_length(axes, document["train_length"])
    axes.set(ylabel="pass keys found, percent", ylim=(0, 103))
    draw.key(figure, axes, columns=2)
    return figure
