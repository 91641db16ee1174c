"""Keys that name a value in a result file, as pages, the scorecard and scripts/check_numbers.py write them.

cells[task=line&length=15000]/mean        of the one entry of `cells` that fits; a dot goes into an entry: [row.cos=None]
curves{target=sum&seed=0}/losses/34       of every entry that fits, a list; a number is a place in a list
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

CHOICE = re.compile(r"(?P<name>[^\[{]*)(?:\[(?P<one>.*)\]|\{(?P<every>.*)\})")
STEP = re.compile(r"/(?![^\[{]*[\]}])")


def look_up(node: Any, key: str) -> Any:
    """What stands in a document under a key."""
    step, *rest = STEP.split(key, maxsplit=1)
    chosen = CHOICE.fullmatch(step)
    name = chosen["name"] if chosen else step
    if name:
        node = node[int(name)] if isinstance(node, list) else node[name]
    if chosen:
        found = _fitting(node, chosen["one"] or chosen["every"] or "")
        if chosen["every"] is not None:
            return [look_up(entry, *rest) if rest else entry for entry in found]
        if len(found) != 1:
            raise KeyError(f"{len(found)} entries fit {step}, not 1")
        node = found[0]
    return look_up(node, *rest) if rest else node


def _fitting(entries: Sequence[Mapping[str, Any]], choice: str) -> list[Mapping[str, Any]]:
    wanted = [pair.split("=", 1) for pair in choice.split("&")]
    found = [entry for entry in entries if all(_field(entry, name) == value for name, value in wanted)]
    if not found:
        raise KeyError(f"no entry fits {choice}")
    return found


def _field(entry: Mapping[str, Any], name: str) -> str:
    return str(reduce(lambda node, part: node.get(part, "") if isinstance(node, Mapping) else "", name.split("."), entry))
