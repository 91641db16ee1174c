"""The page: Table 1 with intervals, the paper's numbers beside ours, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.common.markdown import table
from experiments.entropy_invariance.cells import Cell, Exam
from experiments.entropy_invariance.paper import table_1
from experiments.entropy_invariance.rows import ROWS, Row
from experiments.entropy_invariance.verdicts import Cells, agreement, verdicts

ABOUT = """Masked-token prediction by GAU-alpha, 6 layers, trained at length 64 on Chinese novels; {count} tokens of each of
{documents} held-out chapters are hidden, one at a time. In brackets 95 % intervals: documents drawn again for perplexity,
Wilson's for accuracy. The paper's models were trained on patents and began with pretrained layers, so levels differ and only
the order of rows can be compared; its released baselines carry faults, ours are the methods as their own papers define them."""


def page(cells: Cells, exam: Exam, missing: Sequence[Row]) -> str:
    lengths = sorted({length for _, length in cells})
    parts = ["# Entropy invariance: Table 1", ABOUT.format(count=exam.count, documents=len(exam.documents))]
    if missing:
        names = ", ".join(sorted({f"`{row.configuration.name}`" for row in missing}))
        parts.append(f"**Unfinished**: {len(missing)} rows wait for models that are not trained: {names}.")
    parts += ["## What came out", *_answers(cells, lengths)]
    parts += ["## Perplexity", _table(cells, lengths, perplexity=True), "## Accuracy", _table(cells, lengths, perplexity=False)]
    parts += ["## Does a scale help?", _verdicts(cells)]
    return "\n\n".join(parts) + "\n"


def _answers(cells: Cells, lengths: Sequence[int]) -> list[str]:
    lines = []
    for length in lengths:
        best = min((cell for (_, at), cell in cells.items() if at == length), key=lambda cell: cell.score.perplexity)
        line = f"{length:,} tokens: best is {best.row.label}, perplexity {_interval(best, True)}"
        if (found := agreement(cells, length)) is not None:
            line += f"; rank correlation with the paper over {found[1]} rows {found[0]:.2f}"
        lines.append(f"- {line}")
    words = Counter(one.word for one in verdicts(cells))
    lines.append("- Effects of scales: " + ", ".join(f"{count} {word}" for word, count in words.most_common()))
    return ["\n".join(lines)]


def _table(cells: Cells, lengths: Sequence[int], perplexity: bool) -> str:
    printed = table_1()
    rows = []
    for row in (row for row in ROWS if any((row, length) in cells for length in lengths)):
        line = [row.label]
        for length in lengths:
            cell, paper = cells.get((row, length)), printed.get((row.method, row.cos, row.info, length))
            ours = "" if cell is None else _interval(cell, perplexity)
            theirs = "" if paper is None else (paper.perplexity if perplexity else paper.accuracy)
            line += [ours, theirs]
        rows.append(line)
    return table(["row", *(word for length in lengths for word in (f"{length:,}", "paper"))], rows)


def _verdicts(cells: Cells) -> str:
    rows = [
        [
            one.row.label,
            f"{one.length:,}",
            f"{one.ours.ratio:.3g} ({one.ours.low:.3g} to {one.ours.high:.3g})",
            "" if one.paper is None else " against ".join(one.paper),
            one.word,
        ]
        for one in verdicts(cells)
    ]
    return table(["row", "tokens", "perplexity over the plain method's", "paper", "verdict"], rows)


def _interval(cell: Cell, perplexity: bool) -> str:
    score = cell.score
    if perplexity:
        return f"{score.perplexity:.3g} ({score.perplexity_low:.3g} to {score.perplexity_high:.3g})"
    return f"{score.accuracy:.2f} ({score.accuracy_low:.2f} to {score.accuracy_high:.2f})"
