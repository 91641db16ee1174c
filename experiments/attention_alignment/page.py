"""The page of the retrieval experiment: our tables, the paper's beside them, the scopes, and what must be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.attention_alignment import paper
from experiments.attention_alignment.facts import told
from experiments.attention_alignment.must_show import Shown
from experiments.attention_alignment.paired import Paired
from experiments.attention_alignment.results import Results
from experiments.attention_alignment.scopes import Comparison, by_default, verdict
from experiments.common.markdown import table
from lengthwise.records import Cell

ABOUT = """Percent right with its 95 % interval. `none` is the model as it is, `truncate` reads the last {train} tokens, `log`
is the log law, `pmax-model` the paper's P_max alignment and `entropy-model` its entropy alignment; `-layer` and `-head` align
every layer or every head by itself. Alignments were solved for once, on the package's prose and not on the task; the paper
calibrates on each task, on a grid of 0.05."""
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
    parts.append(ABOUT.format(train=results.train_length))
    for task in results.tasks:
        parts += [f"## {task}", _ours(results, task, facts["samples"])]
    parts += ["## The paper's Table 4", PAPERS, *map(_table_4, paper.SIZES)]
    parts += ["## Temperatures", _temperatures(temperatures, results.train_length)]
    parts += ["The paper's Table 9:", *map(_table_9, paper.SIZES)]
    parts += ["## Which scope?", *_scopes(compared)]
    parts += ["## Must show", _must_show(shown)]
    return "\n\n".join(parts) + "\n"


def _ours(results: Results, task: str, samples: int) -> str:
    methods = [
        m for m in results.methods if any(key.task == task and key.method == m and not key.data for key in results.cells)
    ]
    lengths = [n for n in results.lengths if any(results.cell(m, task, n) for m in methods)]
    rows = [[m, *(_cell(results.cell(m, task, n), samples) for n in lengths)] for m in methods]
    return table(["ours", *(f"{n:,}" for n in lengths)], rows)


def _cell(cell: Cell | None, samples: int) -> str:
    if cell is None:
        return ""
    few = f", n {cell.n}" if cell.n < samples else ""
    return f"{100 * cell.mean:.0f} ({100 * cell.low:.0f}-{100 * cell.high:.0f}{few})"


def _table_4(task: str) -> str:
    rows = [["about tokens", *(f"{n:,}" for n in paper.tokens(task))]]
    rows += [[f"{model}, {method}", *map(str, row[task])] for (model, method), row in paper.TABLE_4.items()]
    return table([f"{task}: {paper.UNITS[task]}", *(f"{size:,}" for size in paper.SIZES[task])], rows)


def _table_9(task: str) -> str:
    rows = [["about tokens", *(f"{n:,}" for n in paper.tokens(task))]]
    rows += [[f"{model}, {method}", *(f"{tau:.2f}" for tau in row[task])] for (model, method), row in paper.TABLE_9.items()]
    return table([f"{task}: {paper.UNITS[task]}", *(f"{size:,}" for size in paper.SIZES[task])], rows)


def _temperatures(temperatures: Mapping[str, Mapping[int, list[float]]], train_length: int) -> str:
    lengths = sorted({n for row in temperatures.values() for n in row})
    rows = [[name, *(_span(row.get(n, [])) for n in lengths)] for name, row in temperatures.items()]
    return f"Exactly 1 up to {train_length:,} tokens; of layers and heads the lowest and the highest.\n\n" + table(
        ["ours: tau", *(f"{n:,}" for n in lengths)], rows
    )


def _span(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{low:.3f}" if len(values) == 1 else f"{low:.2f}-{high:.2f}"


def _scopes(compared: Sequence[Comparison]) -> list[str]:
    if not compared:
        return ["Not measured: no two scopes have answered the same samples yet."]
    keys = ["layer - model", "head - model", "head - layer"]
    head = ["statistic, task, tokens", "model", "layer", "head", *keys]
    rows = []
    for one in compared:
        name = f"{one.statistic}, {one.task}, {' and '.join(f'{n:,}' for n in one.lengths)}"
        means = [f"{100 * one.means[scope]:.1f}" if scope in one.means else "" for scope in ("model", "layer", "head")]
        rows.append([name, *means, *(_pair(one.against.get(key)) for key in keys)])
    about = "Differences in points on the same samples, their 95 % interval (Agresti and Min) and McNemar's exact p."
    return [about, table(head, rows), "\n".join(f"- {said}" for said in verdict(compared)), by_default(compared)]


def _pair(pair: Paired | None) -> str:
    if pair is None:
        return ""
    return f"{100 * pair.difference:+.1f} [{100 * pair.low:+.1f}, {100 * pair.high:+.1f}] p {pair.p:.2g}"


def _must_show(shown: Sequence[Shown]) -> str:
    words = {True: "yes", False: "**no**", None: ""}
    return table(["claim", "measured", "holds"], [[one.claim, one.measured, words[one.holds]] for one in shown], numbers=False)
