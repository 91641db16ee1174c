"""The page: every table with intervals, the paper's numbers beside ours, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from experiments._lib.markdown import table
from experiments.entropy_invariance.cells import Cell, Exam
from experiments.entropy_invariance.configuration import Configuration
from experiments.entropy_invariance.findings import Findings
from experiments.entropy_invariance.losses import Loss
from experiments.entropy_invariance.order import agreement
from experiments.entropy_invariance.rows import TABLES, Row
from experiments.entropy_invariance.verdicts import Cells, Verdict, lengths
from lengthwise.tasks.perplexity import Ratio

ABOUT = """Masked-token prediction by GAU-alpha, 6 layers, trained at length 64 on Chinese novels; {count} tokens of each of
{documents} held-out chapters are hidden, {together}. In brackets 95 % intervals: documents drawn again for perplexity,
Wilson's for accuracy, a little narrow as it takes tokens one by one. The paper's models were trained on patents and began with
pretrained layers, so levels differ and only the order of rows can be compared; its released baselines carry faults, ours are
the methods as their own papers define them."""
ORDER = """Two rows at one length are a pair. It is confirmed or refuted where our interval of their ratio of perplexities, on
the same hidden tokens, excludes 1, and undecided where it does not; pairs that the paper prints as equal are left out. Ranks
are ours / the paper's among the rows measured, 1 the best."""
SCALES = "The best S of each length is chosen by the same tokens as its interval, which therefore flatters it a little."
MODELS = "Cross-entropy in nats at the last step: of the training batches, with dropout, and of held-out windows of 64 tokens."
RELEASED = """Rows with the faults of the code that the paper's numbers come from, beside the method as defined and the paper.
Distance: the mean over the lengths of how far ln(perplexity / plain GAU's), at most 500 each, is from the paper's."""


@dataclass(frozen=True)
class Origin:
    """Where the cells come from."""

    exam: Exam
    machine: Mapping[str, str]  # what measured them
    losses: Mapping[Configuration, Sequence[Loss]]
    missing: int  # cells


def page(cells: Cells, origin: Origin, findings: Findings) -> str:
    exam = origin.exam
    about = ABOUT.format(count=exam.count, documents=len(exam.documents), together=exam.together)
    parts = ["# Entropy invariance: Tables 1, 2, 3, 9 and 10", about]
    parts.append("\n".join(f"- {key}: {value}" for key, value in origin.machine.items()))
    if origin.missing:
        parts.append(f"**Unfinished**: {origin.missing} cells are missing. The same commands go on.")
    parts += ["## What came out", _answers(cells, findings)]
    main = [*TABLES["1"], *TABLES["10"]]
    parts += ["## Tables 1 and 10: perplexity", _table(cells, main, perplexity=True)]
    parts += ["## Tables 1 and 10: accuracy", _table(cells, main, perplexity=False)]
    parts += ["## Does a scale help?", "Perplexity over the plain method's.", _verdicts(findings.scales)]
    parts += ["## The order of methods", ORDER, _standings(findings, lengths(cells))]
    laws = list(dict.fromkeys([*TABLES["2"], *TABLES["3"]]))
    parts += ["## Tables 2 and 3: InfoScale against softmax plus", _both(cells, laws)]
    parts += ["InfoScale's perplexity over softmax plus's:", _verdicts(findings.laws)] if findings.laws else []
    parts += ["## Table 9: which S", _both(cells, TABLES["9"]), *([SCALES, _best(findings)] if findings.best_scales else [])]
    parts += ["## As released", RELEASED, _nearer(findings), _released(cells, findings)]
    parts += ["## Models", MODELS, _models(origin.losses)] if origin.losses else []
    return "\n\n".join(part for part in parts if part) + "\n"


def _models(losses: Mapping[Configuration, Sequence[Loss]]) -> str:
    rows = []
    for one, curve in losses.items():
        last = {point.kind: point for point in curve}
        numbers = (f"{last[kind].loss:.3f}" if kind in last else "" for kind in ("training", "held out"))
        rows.append([f"`{one.name}`", f"{max(point.step for point in curve):,}", *numbers])
    return table(["model", "steps", "training", "held out"], rows)


def _answers(cells: Cells, findings: Findings) -> str:
    lines = []
    for length in lengths(cells):
        own = [cell for (row, at), cell in cells.items() if at == length and not row.released]
        if not own:
            continue
        best = min(own, key=lambda cell: cell.score.perplexity)
        line = f"{length:,} tokens: best is {best.row.label}, perplexity {_interval(best, True)}"
        if (found := agreement(cells, length)) is not None:
            line += f"; rank correlation with the paper over {found[1]} rows {found[0]:.2f}"
        lines.append(f"- {line}")
    for name, verdicts in (("Effects of scales", findings.scales), ("InfoScale against softmax plus", findings.laws)):
        if verdicts:
            words = Counter(one.word for one in verdicts).most_common()
            lines.append(f"- {name}: " + ", ".join(f"{count} {word}" for word, count in words))
    pairs = [sum(getattr(one, word) for one in findings.standings) // 2 for word in ("confirmed", "refuted", "undecided")]
    lines.append("- Pairs of rows in the paper's order: {} confirmed, {} refuted, {} undecided".format(*pairs))
    return "\n".join(lines)


def _both(cells: Cells, rows: Sequence[Row]) -> str:
    return "\n\n".join(_table(cells, rows, perplexity) for perplexity in (True, False))


def _table(cells: Cells, rows: Sequence[Row], perplexity: bool) -> str:
    at = lengths(cells)
    lines = [
        [row.label, *(word for length in at for word in _pair(cells, row, length, perplexity))]
        for row in rows
        if any((row, length) in cells for length in at)
    ]
    head = ["PPL" if perplexity else "ACC", *(word for length in at for word in (f"{length:,}", "paper"))]
    return table(head, lines) if lines else "Nothing is measured yet."


def _pair(cells: Cells, row: Row, length: int, perplexity: bool) -> list[str]:
    cell, paper = cells.get((row, length)), row.printed(length)
    theirs = "" if paper is None else (paper.perplexity if perplexity else paper.accuracy)
    return ["" if cell is None else _interval(cell, perplexity), theirs]


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    """A line a row, a column a length."""
    at = sorted({one.length for one in verdicts})
    cells = {(one.row, one.length): one for one in verdicts}
    lines = []
    for row in dict.fromkeys(one.row for one in verdicts):
        own = [cells.get((row, length)) for length in at]
        lines.append([row.label, *("" if one is None else f"{_ratio(one.ours)} {one.word}" for one in own)])
    return table(["row", *(f"{length:,}" for length in at)], lines) if lines else ""


def _standings(findings: Findings, at: Sequence[int]) -> str:
    lines = []
    for one in findings.standings:
        ranks = [one.ranks.get(length) for length in at]
        shown = ["" if rank is None else " / ".join("-" if x is None else f"{x:g}" for x in rank) for rank in ranks]
        lines.append([one.row.label, one.confirmed, one.refuted, one.undecided, *shown])
    return table(["row", "confirmed", "refuted", "undecided", *(f"rank at {length:,}" for length in at)], lines)


def _best(findings: Findings) -> str:
    lines = [
        [
            f"{one.length:,}",
            f"{one.ours:g}",
            "" if one.against_128 is None else _ratio(one.against_128),
            ", ".join(f"{scale:g}" for scale in one.paper),
        ]
        for one in findings.best_scales
    ]
    return table(["tokens", "best S", "its perplexity over S = 128's", "paper's best S"], lines) if lines else ""


def _nearer(findings: Findings) -> str:
    words = ("released", "defined")
    names = [[replace(one.row, released=False).label for one in findings.explanations if one.word == word] for word in words]
    return "\n".join(
        f"- Nearer to the paper as {word}: {', '.join(own)}" for word, own in zip(words, names, strict=True) if own
    )


def _released(cells: Cells, findings: Findings) -> str:
    at = lengths(cells)
    lines = []
    for one in findings.explanations:
        kinds = (("as defined", replace(one.row, released=False), one.defined), ("as released", one.row, one.released))
        for kind, row, distance in kinds:
            own = [cells.get((row, length)) for length in at]
            numbers = ["" if cell is None else _number(cell.score.perplexity) for cell in own]
            lines.append([replace(row, released=False).label, kind, *numbers, f"{distance:.2f}"])
        printed = [one.row.printed(length) for length in at]
        lines.append(["", "the paper", *("" if cell is None else cell.perplexity for cell in printed), ""])
    return table(["row", "PPL", *(f"{length:,}" for length in at), "distance"], lines) if lines else "Nothing is measured yet."


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _ratio(ratio: Ratio) -> str:
    return f"{_number(ratio.ratio)} ({_number(ratio.low)} to {_number(ratio.high)})"


def _interval(cell: Cell, perplexity: bool) -> str:
    score = cell.score
    if perplexity:
        return f"{_number(score.perplexity)} ({_number(score.perplexity_low)} to {_number(score.perplexity_high)})"
    return f"{score.accuracy:.2f} ({score.accuracy_low:.2f} to {score.accuracy_high:.2f})"
