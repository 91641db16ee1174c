"""The page of question answering: Tables 14, 5 and 10, ours and the paper's, and the lost-in-the-middle curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments._lib.markdown import table
from experiments.attention_alignment.by_place import gain, mean, middle_gain, numbers, task_of, tokens
from experiments.attention_alignment.facts import about, told
from experiments.attention_alignment.paper_questions import POSITIONS, TABLE_10, TABLE_10_TOKENS, TABLE_14, gains
from experiments.attention_alignment.paper_questions import mean as papers_mean
from experiments.attention_alignment.results import Results
from experiments.attention_alignment.tables import Temperatures, cell_told, points_told, temperatures_told

PLAIN = "none"
MEANS = """Means over places are taken question by question, and their intervals are over questions: the same question is asked
at every place. Gains are on the same questions, with 95 % intervals: at one place Agresti and Min's, over places Student's."""
PAPERS = "The paper's models, of 0.8 to 11 billion parameters, answer Natural Questions: compare the effect, not the level."


def page(results: Results, facts: Mapping[str, Any], temperatures: Temperatures, figure: str) -> str:
    parts = ["# Multi-document question answering", told(facts)]
    if facts["missing"]:
        parts.append(f"**Unfinished**: {facts['missing']:,} answers are missing. The same command goes on.")
    parts.append(about(results.train_length))
    return "\n\n".join([*parts, *sections(results, facts["samples"], temperatures, figure)]) + "\n"


def sections(results: Results, samples: int, temperatures: Temperatures, figure: str) -> list[str]:
    parts = [f"![Percent right by the place of the gold document]({figure})", MEANS, PAPERS]
    for documents in numbers(results):
        parts += [f"## Table 14: {documents} documents, about {tokens(results, documents):,} tokens"]
        parts += [_ours(results, documents, samples), _table_14(documents)]
    parts += ["## Table 5: what alignment gains over the plain model, in points"]
    for documents in numbers(results):
        parts += [_gains(results, documents)]
    parts += [_middle(results)]
    parts += ["## Table 10: temperatures", temperatures_told(temperatures, results.train_length), _table_10()]
    return [part for part in parts if part]


def _ours(results: Results, documents: int, samples: int) -> str:
    length, positions = tokens(results, documents), POSITIONS[documents]
    rows = []
    for method in results.methods:
        cells = [results.cell(method, task_of(documents, at), length) for at in positions]
        if any(cells):
            rows.append([method, *(cell_told(cell, samples) for cell in cells), _mean(results, method, documents)])
    return table(["ours, gold at", *positions, "mean"], rows)


def _mean(results: Results, method: str, documents: int) -> str:
    found = mean(results, method, documents)
    return "" if found is None else f"{100 * found.mean:.1f} ({100 * found.low:.1f}-{100 * found.high:.1f})"


def _table_14(documents: int) -> str:
    rows = [
        [f"{model}, {method}", *row[documents], f"{papers_mean(model, method, documents):.1f}"]
        for (model, method), row in TABLE_14.items()
    ]
    return table(["paper, gold at", *POSITIONS[documents], "mean"], rows)


def _gains(results: Results, documents: int) -> str:
    positions = POSITIONS[documents]
    rows = []
    for method in (name for name in results.methods if name != PLAIN):
        found = [gain(results, method, PLAIN, documents, [at]) for at in positions]
        if any(found):
            whole = gain(results, method, PLAIN, documents)
            rows.append([f"ours, {method}", *map(points_told, found), points_told(whole)])
    for model in dict.fromkeys(model for model, _ in TABLE_14):
        of_paper = gains(model, documents)
        rows.append([f"{model}, pmax", *(f"{one:+.1f}" for one in of_paper), f"{sum(of_paper) / len(of_paper):+.1f}"])
    return table([f"{documents} documents, gold at", *positions, "mean"], rows)


def _middle(results: Results) -> str:
    """The paper's hypothesis: alignment helps most in the middle."""
    lines = []
    for documents in numbers(results):
        for method in ("pmax-model", "pmax-layer"):
            if (found := middle_gain(results, method, PLAIN, documents)) is not None:
                less = "more" if found.low > 0 else "less" if found.high < 0 else "neither more nor less for certain"
                lines.append(f"- {documents} documents, {method}: {points_told(found)} points: {less}")
    head = "Does it gain more in the middle than at the two ends, as the paper expects? The difference of the two gains:"
    return "\n".join([head, "", *lines]) if lines else ""


def _table_10() -> str:
    head = [f"paper: {n} documents, about {size:,} tokens" for n, size in TABLE_10_TOKENS.items()]
    return table(["tau", *head], [[f"{model}, {method}", *row] for (model, method), row in TABLE_10.items()])
