"""The page of the retrieval experiment: our tables, the paper's beside them, the scopes, and what must be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments._lib.markdown import table
from experiments.attention_alignment import paper
from experiments.attention_alignment.facts import about, told
from experiments.attention_alignment.must_show import Shown
from experiments.attention_alignment.results import Results
from experiments.attention_alignment.scopes import Comparison, by_default, verdict
from experiments.attention_alignment.tables import cell_told, must_show_told, pair_told, temperatures_told

PAPERS = """The paper's figures are those of other models, of 0.8 to 13 billion parameters, on other inputs: they show the same
effect, and are not to be reached or beaten cell by cell. Its sizes count topics, lines and characters of filler; the tokens are
about those that the log temperatures of its Table 9 imply."""


def page(
    results: Results,
    facts: Mapping[str, Any],
    temperatures: Mapping[str, Mapping[int, list[float]]],
    compared: Sequence[Comparison],
    shown: Sequence[Shown],
) -> str:
    parts = ["# Retrieval by length", told(facts)]
    if facts["missing"]:
        parts.append(f"**Unfinished**: {facts['missing']:,} answers are missing. The same command goes on.")
    parts.append(about(results.train_length))
    parts += sections(results, facts["samples"], temperatures)
    parts += ["## Which scope?", *_scopes(compared)]
    parts += ["## Must show", must_show_told(shown)]
    return "\n\n".join(parts) + "\n"


def sections(results: Results, samples: int, temperatures: Mapping[str, Mapping[int, list[float]]]) -> list[str]:
    """Tables 4 and 9, ours and the paper's; `samples` are those of a whole cell."""
    parts = [part for task in results.tasks for part in (f"## {task}", _ours(results, task, samples))]
    parts += ["## The paper's Table 4", PAPERS, *map(_table_4, paper.SIZES)]
    parts += ["## Temperatures", temperatures_told(temperatures, results.train_length)]
    return [*parts, "The paper's Table 9:", *map(_table_9, paper.SIZES)]


def _ours(results: Results, task: str, samples: int) -> str:
    methods = [
        m for m in results.methods if any(key.task == task and key.method == m and not key.data for key in results.cells)
    ]
    lengths = [n for n in results.lengths if any(results.cell(m, task, n) for m in methods)]
    rows = [[m, *(cell_told(results.cell(m, task, n), samples) for n in lengths)] for m in methods]
    return table(["ours", *(f"{n:,}" for n in lengths)], rows)


def _table_4(task: str) -> str:
    rows = [["about tokens", *(f"{n:,}" for n in paper.tokens(task))]]
    rows += [[f"{model}, {method}", *map(str, row[task])] for (model, method), row in paper.TABLE_4.items()]
    return table([f"{task}: {paper.UNITS[task]}", *(f"{size:,}" for size in paper.SIZES[task])], rows)


def _table_9(task: str) -> str:
    rows = [["about tokens", *(f"{n:,}" for n in paper.tokens(task))]]
    rows += [[f"{model}, {method}", *(f"{tau:.2f}" for tau in row[task])] for (model, method), row in paper.TABLE_9.items()]
    return table([f"{task}: {paper.UNITS[task]}", *(f"{size:,}" for size in paper.SIZES[task])], rows)


def _scopes(compared: Sequence[Comparison]) -> list[str]:
    if not compared:
        return ["Not measured: no two scopes have answered the same samples yet."]
    keys = ["layer - model", "head - model", "head - layer"]
    head = ["statistic, task, tokens", "model", "layer", "head", *keys]
    rows = []
    for one in compared:
        name = f"{one.statistic}, {one.task}, {' and '.join(f'{n:,}' for n in one.lengths)}"
        means = [f"{100 * one.means[scope]:.1f}" if scope in one.means else "" for scope in ("model", "layer", "head")]
        rows.append([name, *means, *(pair_told(one.against.get(key)) for key in keys)])
    about = "Differences in points on the same samples, their 95 % interval (Agresti and Min) and McNemar's exact p."
    return [about, table(head, rows), "\n".join(f"- {said}" for said in verdict(compared)), by_default(compared)]
