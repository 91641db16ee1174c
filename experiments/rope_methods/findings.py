"""What the numbers say: the best method, the combinations that beat their parts, and where temperatures help."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments._lib.likelihood_cells import Array
from experiments.rope_methods.contenders import ALIGNED, PLAIN, TEMPERATURES, YARN, YARN_BARE, parts, split_aligned
from experiments.rope_methods.results import Results, Row
from lengthwise.report.formatting import listed
from lengthwise.tasks.perplexity import Ratio

TARGET = 1.02  # times the perplexity of re-encoding


@dataclass(frozen=True)
class Best:
    """The method with the lowest perplexity at one length, and the plain model beside it."""

    length: int
    row: Row
    plain: Row | None
    reached: bool | None  # whether it is within the target; None while re-encoding is not finished


@dataclass(frozen=True)
class Against:
    """One method against another on the same tokens."""

    length: int
    method: str
    other: str
    ratio: Ratio  # all tokens
    within: Ratio  # tokens told from no more than the training length

    @property
    def verdict(self) -> str:
        """better or worse where the whole interval says so."""
        return verdict(self.ratio)


def verdict(ratio: Ratio) -> str:
    if ratio.low == ratio.high == 1:
        return "the same"
    return "better" if ratio.high < 1 else "worse" if ratio.low > 1 else "no difference"


def best(results: Results, length: int) -> Best | None:
    rows = {row.method: row for row in results.rows(length)}
    ours = [row for row in rows.values() if row.method in results.methods(length) and row.method != PLAIN]
    if not ours:
        return None
    first = min(ours, key=lambda row: row.whole.perplexity)
    reached = None if first.against is None else first.against.ratio <= TARGET
    return Best(length, first, rows.get(PLAIN), reached)


def unchanged(results: Results, length: int) -> list[str] | None:
    """The methods that are exactly the plain model on every token; None where that is not asked of them."""
    plain = results.nll(PLAIN, length) if PLAIN in results.methods(length) else None
    if plain is None or length > results.train_length:
        return None
    others = [name for name in results.methods(length) if name != PLAIN]
    return [name for name in others if np.array_equal(plain, _measured(results, name, length))]


def changed(results: Results, length: int) -> list[Against]:
    """The other ones against the plain model."""
    same = unchanged(results, length)
    others = [name for name in results.methods(length) if same is not None and name not in (PLAIN, *same)]
    return [_against(results, length, name, PLAIN) for name in others]


def combinations(results: Results, length: int) -> list[Against]:
    """Every combination against the better of its parts."""
    known = results.methods(length)
    found = []
    for name in known:
        if of_it := parts(name, known):
            strongest = min(of_it, key=lambda part: results.cells[part, length].perplexity)
            found.append(_against(results, length, name, strongest))
    return found


def temperatures(results: Results, length: int) -> dict[str, dict[str, Against]]:
    """Position method -> temperature -> with it against without it; `none` is the plain model."""
    known = results.methods(length)
    table: dict[str, dict[str, Against]] = {}
    for name in known:
        base, law = _with_temperature(name)
        if law is not None and base in known:
            table.setdefault(base, {})[law] = _against(results, length, name, base)
    return table


def calibrated(results: Results, length: int) -> list[Against]:
    """Every alignment against YaRN with the temperature it was given by hand."""
    known = results.methods(length)
    if YARN not in known:
        return []
    names = [name for name in known if name == YARN_BARE or split_aligned(name)[1] is not None]
    return [_against(results, length, name, YARN) for name in names]


def _measured(results: Results, name: str, length: int) -> Array:
    nll = results.nll(name, length)
    assert nll is not None
    return nll


def _against(results: Results, length: int, method: str, other: str) -> Against:
    within = results.ratio(method, other, length, results.train_length)
    return Against(length, method, other, results.ratio(method, other, length), within)


def _with_temperature(name: str) -> tuple[str, str | None]:
    """What stands without the last temperature, and that temperature."""
    base, law = split_aligned(name)
    if law is not None:
        return base, law
    base, _, law = name.rpartition("+")
    return (base or PLAIN, law) if law in TEMPERATURES else (name, None)


def said_of_temperatures(table: dict[str, dict[str, Against]], spec_of: dict[str, str]) -> list[str]:
    """One sentence a temperature: on which position methods it helps, and on which it does not."""
    sentences = []
    for law in (*TEMPERATURES, *ALIGNED):
        cells = {base: row[law] for base, row in table.items() if law in row}
        if not cells:
            continue
        told = []
        for word, phrase in (("better", "helps on"), ("worse", "harms"), ("no difference", "changes nothing for certain on")):
            if some := [base for base, one in cells.items() if one.verdict == word]:
                told.append(f"{phrase} {listed([_times(cells[base], spec_of.get(base, base)) for base in some])}")
        if same := [base for base, one in cells.items() if one.verdict == "the same"]:
            told.append(f"is 1 throughout on {listed([f'`{spec_of.get(base, base)}`' for base in same])}")
        sentences.append(f"`{law}` {'; '.join(told)}.")
    return sentences


def _times(one: Against, base: str) -> str:
    """What is gained at length may be paid for by short inputs."""
    paid = f", but {times(one.within)} up to the training length" if one.ratio.ratio < 1 < one.within.low else ""
    return f"`{base}` ({times(one.ratio)}{paid})"


def times(ratio: Ratio) -> str:
    return f"x {ratio.ratio:.3f}" if ratio.ratio < 10 else f"x {ratio.ratio:,.0f}"
