"""Which curves stand in which picture: positions alone, temperatures alone, combinations, and calibrated ones."""

from __future__ import annotations

from collections.abc import Callable

from experiments.rope_methods.chart import chart
from experiments.rope_methods.contenders import PLAIN, TEMPERATURES, YARN, YARN_BARE, split_aligned
from experiments.rope_methods.results import GOLD, Results

MOST = 10  # curves of one picture beside the two references

GROUPS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "positions": ("Position methods alone", lambda name: "+" not in name and not _temperature(name)),
    "temperatures": ("Temperatures alone", lambda name: "+" not in name and _temperature(name)),
    "combinations": (
        "Positions and temperatures together",
        lambda name: "+" in name and not _calibrated(name) and name != YARN_BARE,
    ),
    "calibrated": ("Calibrated temperatures, and YaRN", lambda name: _calibrated(name) or name in (YARN, YARN_BARE)),
}


def charts(results: Results, length: int) -> dict[str, str]:
    """File name -> SVG; of a group with many methods the best."""
    found = {}
    references = [name for name in (GOLD, PLAIN) if name in (GOLD, *results.methods(length))]
    references = [name for name in references if results.nll(name, length) is not None]
    order = [row.method for row in results.rows(length)]
    for group, (title, belongs) in GROUPS.items():
        members = [name for name in order if name not in (GOLD, PLAIN) and belongs(name)]
        if members:
            lines = {_shown(results, name, length): results.nll(name, length) for name in [*references, *members[:MOST]]}
            few = f", the best {MOST} of {len(members)}" if len(members) > MOST else ""
            whole = {name: nll for name, nll in lines.items() if nll is not None}
            words = f"{title}{few}: perplexity by position, {length:,} tokens in one forward"
            found[f"{group}-{length}.svg"] = chart(words, whole, len(references), results.train_length)
    return found


def _shown(results: Results, name: str, length: int) -> str:
    return results.reencoding.name if name == GOLD else results.spec(name, length)


def _temperature(name: str) -> bool:
    return name in TEMPERATURES or _calibrated(name)


def _calibrated(name: str) -> bool:
    return split_aligned(name)[1] is not None
