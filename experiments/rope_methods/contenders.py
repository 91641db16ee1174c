"""The methods of the comparison: every position method and temperature alone, together, and calibrated.

A name is a spec with places to fill, because what suits 2,048 tokens does not suit 8,192:

    {factor}   length / training length           {leak}   2 factor - 1: the furthest key at the training length's distance
    {train}    training length                    {half}   half of it
    {pmax-layer} and so on: an alignment calibrated on top of what stands before it
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments._lib import specs
from lengthwise.errors import require
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS

PLAIN = "none"
YARN = "yarn:factor={factor}"
YARN_BARE = f"{YARN},temperature=false"
INTERPOLATION, NTK = "interpolation:factor={factor}", "ntk:factor={factor}"
NARROW = ("window", "streaming_llm", "lm_infinite")
WIDE = ("rerope:window={half}", "rerope:window={half},leak={leak}", INTERPOLATION, NTK, "ntk:factor=2,dynamic=true", YARN)
ALONE = ("window:size={half}", "streaming_llm:window={half}", "eabf", "clex", "alibi", "nope")
# Rows that see no more keys than in training keep the first two at 1, so a narrow method needs no others
TEMPERATURES = ("log", "infoscale", "softmax_plus", "ssmax", "yarn_factor")
ALIGNED = {f"{statistic}-{scope}": (statistic, scope) for scope in SCOPES for statistic in STATISTICS}
BASES = (INTERPOLATION, NTK, YARN_BARE)

# The most important first
STAGES = (
    (PLAIN, *NARROW, *WIDE, *TEMPERATURES, *ALONE, YARN_BARE),
    tuple(f"{position}+{temperature}" for position in (*NARROW, *WIDE) for temperature in TEMPERATURES[:2]),
    tuple(f"{base}{{{name}}}" for base in ("", *(f"{base}+" for base in BASES)) for name in ALIGNED),
    tuple(f"{position}+{temperature}" for position in WIDE for temperature in TEMPERATURES[2:]),
)
NAMES = tuple(name for stage in STAGES for name in stage)


def filled(name: str, length: int, train_length: int) -> str:
    """The spec at one length; an alignment stays by its name, without braces."""
    factor = max(1.0, length / train_length)
    values = {"factor": factor, "leak": 2 * factor - 1, "train": train_length, "half": train_length // 2}
    return specs.filled(name, {**values, **{one: one for one in ALIGNED}})


def split_aligned(name: str) -> tuple[str, str | None]:
    """What an alignment is calibrated on top of, and its name; None where there is none."""
    found = re.search(r"(?:^|\+)\{([^}]*)\}(?=\+|$)", name)
    if found is None or found[1] not in ALIGNED:
        return name, None
    base = name[: found.start()]
    require(found.end() == len(name), f"an alignment must come last in {name!r}: it is calibrated on what stands before it")
    return base or PLAIN, found[1]


def parts(name: str, known: Sequence[str]) -> list[str]:
    """What a combination is made of: both sides of every `+`, as far as they are `known`."""
    pieces = name.split("+")
    sides = [("+".join(pieces[:cut]), "+".join(pieces[cut:])) for cut in range(1, len(pieces))]
    return [side for side in dict.fromkeys(side for pair in sides for side in pair) if side in known]
