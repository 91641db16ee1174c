"""The length methods that experiments on rotary models compare: positions and temperatures alone, together, and calibrated.

A name is a spec with places to fill, because what suits 2,048 tokens does not suit 8,192:

    {factor}   length / training length           {leak}   2 factor - 1: the furthest key at the training length's distance
    {train}    training length                    {half}   half of it; {quarter} a quarter
    {group}    Self-Extend's, so that the furthest group beyond a quarter stands within the training length
    {pmax-layer} and so on: an alignment calibrated on top of what stands before it
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lengthwise as lw
from experiments._lib.alignments import ALIGNED
from experiments._lib.command import option
from experiments._lib.minutes import say
from experiments._lib.results import read, write_json
from lengthwise.errors import BadInput, require
from lengthwise.models.load import DTYPES
from lengthwise.tasks.perplexity import doubling

PLAIN = "none"
YARN = "yarn:factor={factor}"
YARN_BARE = f"{YARN},temperature=false"
INTERPOLATION, NTK = "interpolation:factor={factor}", "ntk:factor={factor}"
NARROW = ("window", "streaming_llm", "lm_infinite")
WIDE = ("rerope:window={half}", "rerope:window={half},leak={leak}", INTERPOLATION, NTK, "ntk:factor=2,dynamic=true", YARN)
ALONE = ("window:size={half}", "streaming_llm:window={half}", "eabf", "clex", "alibi", "nope")
# Rows that see no more keys than in training keep the first two at 1, so a narrow method needs no others
TEMPERATURES = ("log", "infoscale", "softmax_plus", "ssmax", "yarn_factor")
BASES = (INTERPOLATION, NTK, YARN_BARE)

# The most important first
STAGES = (
    (PLAIN, *NARROW, *WIDE, *TEMPERATURES, *ALONE, YARN_BARE),
    tuple(f"{position}+{temperature}" for position in (*NARROW, *WIDE) for temperature in TEMPERATURES[:2]),
    tuple(f"{base}{{{name}}}" for base in ("", *(f"{base}+" for base in BASES)) for name in ALIGNED),
    tuple(f"{position}+{temperature}" for position in WIDE for temperature in TEMPERATURES[2:]),
)
NAMES = tuple(name for stage in STAGES for name in stage)
REFUSED = "refused.json"
# Places as pages write them, for a training length W and a length of F times W
WRITTEN = {"{factor}": "F", "{train}": "W", "{half}": "W/2", "{quarter}": "W/4", "{leak}": "2F-1", "{group}": "G"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every experiment on rotary models takes."""

    out: Path = option(help="folder of the experiment")
    books: tuple[Path, ...] = option(
        (), "text files, a book each; without them the model's own stories, or the package's prose"
    )
    methods: tuple[str, ...] = option((), "specs with places to fill; all of ours if none", flag="--method")
    seed: int = option(0, "of what is drawn")
    dtype: str = option("auto", "of the model", choices=list(DTYPES))
    device: str | None = option(None, "cuda where there is one")
    minutes: float = option(math.inf, "stop after so long; the next call goes on")
    command: str = ""  # as typed


def filled(name: str, length: int, train_length: int) -> str:
    """The spec at one length; an alignment stays by its name, without braces."""
    factor = max(1.0, length / train_length)
    quarter = max(1, train_length // 4)
    values = {"factor": factor, "leak": 2 * factor - 1, "train": train_length, "half": train_length // 2, "quarter": quarter}
    values["group"] = max(1, -(-(length - quarter) // (train_length - quarter)))
    places = {**{place: f"{value:.10g}" for place, value in values.items()}, **{aligned: aligned for aligned in ALIGNED}}
    try:
        return name.format_map(places)
    except KeyError as unknown:
        raise BadInput(f"{name!r} has an unknown place {{{unknown.args[0]}}}; known are {', '.join(places)}") from None


def split_aligned(name: str) -> tuple[str, str | None]:
    """The base that an alignment is calibrated on top of, and the alignment's name; None where there is none."""
    match = re.search(r"(?:^|\+)\{([^}]*)\}(?=\+|$)", name)
    if match is None or match[1] not in ALIGNED:
        return name, None
    base = name[: match.start()]
    require(match.end() == len(name), f"an alignment must come last in {name!r}: it is calibrated on what stands before it")
    return base or PLAIN, match[1]


def written(name: str) -> str:
    """A name as pages write it."""
    for place, letter in WRITTEN.items():
        name = name.replace(place, letter)
    return name


def split_temperature(name: str) -> tuple[str, str | None]:
    """The method without its last temperature, and that temperature; None where it has none."""
    base, law = split_aligned(name)
    if law is not None:
        return base, law
    base, _, law = name.rpartition("+")
    return (base or PLAIN, law) if law in TEMPERATURES else (name, None)


def parts(name: str, known: Sequence[str]) -> list[str]:
    """The parts of a combination: both sides of every `+`, as far as they are `known`."""
    pieces = name.split("+")
    sides = [("+".join(pieces[:cut]), "+".join(pieces[cut:])) for cut in range(1, len(pieces))]
    return [side for side in dict.fromkeys(side for pair in sides for side in pair) if side in known]


@dataclass(frozen=True)
class Alignments:
    """Alignments on top of position methods, each calibrated once for a length when asked for, and kept in `folder`."""

    model: Any
    tokenizer: Any
    text: str  # not scored
    train_length: int
    folder: Path

    def method(self, name: str, length: int) -> object:
        """The method of that name at one length, as `lengthwise.extend` takes it."""
        base, aligned = split_aligned(name)
        spec = filled(base, length, self.train_length)
        if aligned is None:
            return spec
        file = self.folder / f"{re.sub(r'[^a-z0-9.]+', '-', spec.lower())}-{aligned}-{length}.json"
        if not file.exists():
            self._make(spec, aligned, length, file)
        return [spec, lw.Alignment.load(file)]

    def _make(self, base: str, aligned: str, length: int, file: Path) -> None:
        statistic, scope = ALIGNED[aligned]
        edges = [edge for edge in doubling(self.train_length, length) if edge > self.train_length]
        how = {"statistic": statistic, "scope": scope, "train_length": self.train_length, "text": self.text, "method": base}
        lw.calibrate(self.model, self.tokenizer, edges, **how, show_progress=False).save(file)


def refusal(spec: str, length: int) -> str:
    """The words that name a refused method in FOLDER/refused.json."""
    return f"{spec} at {length:,} tokens"


def read_refused(folder: Path) -> dict[str, str]:
    """Refused methods, and why, as of the last try."""
    file = folder / REFUSED
    return dict(read(file)) if file.exists() else {}


def accepted(folder: Path, spec: str, length: int, work: Callable[[], None]) -> bool:
    """Does the work, or notes in FOLDER/refused.json why the method does not go with the model: one must not cost the others.

    It is tried again by the next call, because a newer version may have what this one lacks; success takes a refusal back.
    """
    name, why = refusal(spec, length), dict[str, str]()
    try:
        work()
    except BadInput as error:
        say(f"refused: {error}")
        why = {name: str(error)}
    # Read after the work, meanwhile others may have noted theirs
    others = {other: told for other, told in read_refused(folder).items() if other != name}
    write_json(folder / REFUSED, others | why)
    return not why
