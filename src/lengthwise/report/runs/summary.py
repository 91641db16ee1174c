"""The first words of the page: how far each method reaches, and what the best of them gains over the plain model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.report.formatting import listed, percent, times, tokens_at
from lengthwise.report.runs.group import ReportedTask, RunGroup
from lengthwise.report.styles import Style

WORKS = 0.85  # a mean score below this means that the task is no longer done


@dataclass(frozen=True)
class MethodReach:
    """The longest length up to which a method never scored below `WORKS`."""

    method: str
    style: Style
    length: int | None  # None: it failed at the shortest length already
    share: float  # length of its bar, 0 to 1: doublings of the shortest length
    says: str


@dataclass(frozen=True)
class Finding:
    """How far the methods reach in one task, in words and bars."""

    name: str
    figure: str  # the best reach, in large type
    headline: str
    reaches: tuple[MethodReach, ...]
    gain: str


def findings(group: RunGroup, styles: Mapping[str, Style]) -> list[Finding]:
    return [_finding(group, reported, styles) for reported in group.tasks]


def _finding(group: RunGroup, reported: ReportedTask, styles: Mapping[str, Style]) -> Finding:
    reaches = tuple(_reach(group, reported, spec, styles[spec]) for spec in group.methods if group.cells_of(reported, spec))
    best = max(reach.length or 0 for reach in reaches)
    names = [reach.style.name for reach in reaches if reach.length == best]
    if best:
        figure = f"{best:,} tokens"
        headline = f"{times(best, group.train_length)}, with {listed(names) if len(names) < 4 else f'{len(names)} methods'}"
    else:
        shortest = min(cell.length for cell in group.cells if reported.covers(cell))
        longer = any(cell.mean >= WORKS for cell in group.cells if reported.covers(cell))
        where = "at its shortest length" if longer else f"not even at {tokens_at(shortest)}"
        figure, headline = "not reached", f"no method scores {percent(WORKS)}{' ' if longer else ', '}{where}"
    return Finding(reported.title, figure, headline, reaches, _gain(group, reported, styles))


def _reach(group: RunGroup, reported: ReportedTask, spec: str, style: Style) -> MethodReach:
    cells = group.cells_of(reported, spec)
    # Two files may be of one length
    failed = min((cell.length for cell in cells if cell.mean < WORKS), default=math.inf)
    reached = max((cell.length for cell in cells if cell.length < failed), default=None)
    lengths = [cell.length for cell in group.cells if reported.covers(cell)]
    half = min(lengths) / 2
    share = math.log2(reached / half) / math.log2(max(lengths) / half) if reached else 0.0
    at_least = "\u2265 " if reached == cells[-1].length else ""
    says = f"< {cells[0].length:,}" if reached is None else f"{at_least}{reached:,}"
    return MethodReach(spec, style, reached, round(share, 4), says)


def _gain(group: RunGroup, reported: ReportedTask, styles: Mapping[str, Style]) -> str:
    plain = {(cell.length, cell.data): cell for cell in group.cells_of(reported, "none")}
    others = [cell for spec in group.methods if spec != "none" for cell in group.cells_of(reported, spec)]
    pairs = [(cell, plain[cell.length, cell.data]) for cell in others if (cell.length, cell.data) in plain]
    if not pairs:
        return "No gain can be told: " + ("only none was run." if not others else "none was not run at the same lengths.")
    cell, base = max(pairs, key=lambda pair: pair[0].mean - pair[1].mean)
    if cell.mean <= base.mean:
        return "No method scores above none at any length."
    doubt = "; their intervals overlap" if cell.low <= base.high else ""
    return (
        f"Biggest gain over none: from {percent(base.mean)} to {percent(cell.mean)} with {styles[cell.method].name} "
        f"at {tokens_at(cell.length, cell.data)}{doubt}."
    )
