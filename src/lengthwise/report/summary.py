"""The first words of the page: how far each method reaches, and what the best of them gains over the plain model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.report.section import Section, Subject
from lengthwise.report.styles import Style
from lengthwise.report.words import listed, percent, times, tokens_at

WORKS = 0.85  # a mean score below this means that the task is no longer done


@dataclass(frozen=True)
class Reach:
    """The longest length up to which a method never scored below `WORKS`."""

    method: str
    style: Style
    length: int | None  # None: it failed at the shortest length already
    share: float  # length of its bar, 0 to 1: doublings of the shortest length
    says: str


@dataclass(frozen=True)
class Finding:
    """What one task showed."""

    name: str
    figure: str  # the best reach, in large type
    headline: str
    reaches: tuple[Reach, ...]
    gain: str


def findings(section: Section, looks: Mapping[str, Style]) -> list[Finding]:
    return [_finding(section, subject, looks) for subject in section.subjects]


def _finding(section: Section, subject: Subject, looks: Mapping[str, Style]) -> Finding:
    reaches = tuple(_reach(section, subject, spec, looks[spec]) for spec in section.methods if section.cells_of(subject, spec))
    best = max(reach.length or 0 for reach in reaches)
    names = [reach.style.name for reach in reaches if reach.length == best]
    if best:
        figure = f"{best:,} tokens"
        headline = f"{times(best, section.train_length)}, with {listed(names) if len(names) < 4 else f'{len(names)} methods'}"
    else:
        shortest = min(cell.length for cell in section.cells if subject.covers(cell))
        figure, headline = "not reached", f"no method scores {percent(WORKS)}, not even at {tokens_at(shortest)}"
    return Finding(subject.name, figure, headline, reaches, _gain(section, subject, looks))


def _reach(section: Section, subject: Subject, spec: str, look: Style) -> Reach:
    cells = section.cells_of(subject, spec)
    # Two official files may be of one length
    failed = min((cell.length for cell in cells if cell.mean < WORKS), default=math.inf)
    reached = max((cell.length for cell in cells if cell.length < failed), default=None)
    lengths = [cell.length for cell in section.cells if subject.covers(cell)]
    half = min(lengths) / 2
    share = math.log2(reached / half) / math.log2(max(lengths) / half) if reached else 0.0
    return Reach(spec, look, reached, round(share, 4), _reached(reached, cells[0].length, cells[-1].length))


def _reached(length: int | None, shortest: int, longest: int) -> str:
    if length is None:
        return f"< {shortest:,}"
    return f"\u2265 {length:,}" if length == longest else f"{length:,}"


def _gain(section: Section, subject: Subject, looks: Mapping[str, Style]) -> str:
    plain = {(cell.length, cell.data): cell for cell in section.cells_of(subject, "none")}
    others = [cell for spec in section.methods if spec != "none" for cell in section.cells_of(subject, spec)]
    pairs = [(cell, plain[cell.length, cell.data]) for cell in others if (cell.length, cell.data) in plain]
    if not pairs:
        return "No gain can be told: " + ("only none was run." if not others else "none was not run at the same lengths.")
    cell, base = max(pairs, key=lambda pair: pair[0].mean - pair[1].mean)
    if cell.mean <= base.mean:
        return "No method scores above none at any length."
    doubt = "; their intervals overlap" if cell.low <= base.high else ""
    return (
        f"Biggest gain over none: from {percent(base.mean)} to {percent(cell.mean)} with {looks[cell.method].name} "
        f"at {tokens_at(cell.length, cell.data)}{doubt}."
    )
