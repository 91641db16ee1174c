"""What the experiment must show of the embedded model, with what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from experiments.attention_alignment.contenders import ALIGNED
from experiments.attention_alignment.paired import paired
from experiments.attention_alignment.results import Results
from lengthwise.records import Cell, Record

LONG, MIDDLE = 15000, 4096
# Tokens by which the number must miss what truncation reads, to be out of its sight for certain
MARGIN = 100


@dataclass(frozen=True)
class Shown:
    claim: str
    measured: str
    holds: bool | None  # None where it was not measured, or where there is nothing to hold


def must_show(results: Results) -> list[Shown]:
    return [*_at_home(results), *_passkey(results), *_line(results), *_harmless(results), *_official(results)]


def _at_home(results: Results) -> Iterator[Shown]:
    inside = [n for n in results.lengths if n <= results.train_length]
    for task, least in (("passkey-novels", 99), ("passkey", 99), ("line", 95), ("topic", 95)):
        if task in results.tasks:
            yield from (_bounded(results, "none", task, length, at_least=least) for length in inside)


def _passkey(results: Results) -> Iterator[Shown]:
    for task in ("passkey-novels", "passkey"):
        if task in results.tasks:
            yield _bounded(results, "none", task, LONG, below=20)
            yield _bounded(results, "pmax-model", task, LONG, at_least=95)
            yield _truncated(list(results.answers("truncate", task, LONG).values()), task, results.train_length)


def _truncated(records: list[Record], task: str, train_length: int) -> Shown:
    claim = f"{task} at {LONG:,}, truncate: near 0 unless the number stands near the end"
    if not records:
        return Shown(claim, "not measured", None)
    unseen = [r for r in records if r.depth is not None and r.tokens * (1 - r.depth) > train_length + MARGIN]
    right, lucky = sum(r.score for r in records), sum(r.score for r in unseen)
    measured = f"{right:.0f} of {len(records)} right; {lucky:.0f} of the {len(unseen)} whose number it cannot see"
    return Shown(claim, measured, lucky <= 0.02 * len(unseen))


def _line(results: Results) -> Iterator[Shown]:
    claim = f"line at {MIDDLE:,}, pmax-model: at least 30 points above none"
    ours, plain = (results.scores(method, ["line"], [MIDDLE]) for method in ("pmax-model", "none"))
    pair = paired(ours, plain)
    if pair is None:
        yield Shown(claim, "not measured", None)
        return
    means = [100 * sum(one.values()) / len(one) for one in (plain, ours)]
    interval = f"{100 * pair.difference:+.0f} points [{100 * pair.low:+.0f}, {100 * pair.high:+.0f}], p {pair.p:.1g}"
    yield Shown(claim, f"{means[0]:.0f} -> {means[1]:.0f}: {interval}, {pair.n} samples", pair.difference >= 0.3)


def _harmless(results: Results) -> Iterator[Shown]:
    """An alignment is exactly 1 up to the training length, so not one answer may change."""
    claim = "alignments at or under the training length: never more than 2 points below none"
    asked, changed, worst = 0, 0, 0.0
    for method in ALIGNED:
        for task in results.tasks:
            for length in (n for n in results.lengths if n <= results.train_length):
                ours, plain = results.answers(method, task, length), results.answers("none", task, length)
                both = [(ours[index], plain[index]) for index in ours if index in plain]
                asked += len(both)
                changed += sum(mine.prediction != other.prediction for mine, other in both)
                fall = sum(other.score - mine.score for mine, other in both) / max(1, len(both))
                worst = max(worst, 100 * fall)
    if asked == 0:
        yield Shown(claim, "not measured", None)
        return
    yield Shown(claim, f"{changed} of {asked} answers differ; largest fall {worst:.1f} points", worst <= 2)


def _official(results: Results) -> Iterator[Shown]:
    for cell in sorted((cell for cell in results.cells.values() if cell.data), key=lambda cell: (cell.data, cell.method)):
        yield Shown(f"official LongEval, {cell.data}, {cell.method}", f"{_said(cell)}, about {cell.length:,} tokens", None)


def _bounded(results: Results, method: str, task: str, length: int, *, at_least: float = 0, below: float = math.inf) -> Shown:
    """Percent."""
    wanted = f"at least {at_least}" if at_least else f"below {below}"
    claim, cell = f"{task} at {length:,}, {method}: {wanted}", results.cell(method, task, length)
    if cell is None:
        return Shown(claim, "not measured", None)
    return Shown(claim, _said(cell), at_least <= 100 * cell.mean < below)


def _said(cell: Cell) -> str:
    return f"{100 * cell.mean:.0f} [{100 * cell.low:.0f}, {100 * cell.high:.0f}], {cell.n} samples"
