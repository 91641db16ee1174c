"""How numbers stand in our tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments._lib.markdown import table
from experiments.attention_alignment.must_show import Shown
from experiments.attention_alignment.paired import Paired
from lengthwise.records import Cell

Temperatures = Mapping[str, Mapping[int, Sequence[float]]]  # method -> length -> one, one a layer or one a head


def cell_told(cell: Cell | None, samples: int, decimals: int = 0) -> str:
    """Percent and its 95 % interval; how many samples it has, where they are fewer than asked for."""
    if cell is None:
        return ""
    few = f", n {cell.n}" if cell.n < samples else ""
    mean, low, high = (f"{100 * value:.{decimals}f}" for value in (cell.mean, cell.low, cell.high))
    return f"{mean} ({low}-{high}{few})"


def points_told(pair: Paired | None) -> str:
    """A difference in points and its 95 % interval."""
    if pair is None:
        return ""
    return f"{100 * pair.difference:+.1f} [{100 * pair.low:+.1f}, {100 * pair.high:+.1f}]"


def pair_told(pair: Paired | None) -> str:
    return "" if pair is None else f"{points_told(pair)} p {pair.p:.2g}"


def temperatures_told(temperatures: Temperatures, train_length: int) -> str:
    lengths = sorted({n for row in temperatures.values() for n in row})
    rows = [[name, *(_span(row.get(n, [])) for n in lengths)] for name, row in temperatures.items()]
    return f"Exactly 1 up to {train_length:,} tokens; of layers and heads the lowest and the highest.\n\n" + table(
        ["ours: tau", *(f"{n:,}" for n in lengths)], rows
    )


def must_show_told(shown: Sequence[Shown]) -> str:
    words = {True: "yes", False: "**no**", None: ""}
    return table(["claim", "measured", "holds"], [[one.claim, one.measured, words[one.holds]] for one in shown], numbers=False)


def _span(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{low:.3f}" if len(values) == 1 else f"{low:.2f}-{high:.2f}"
