"""The methods that T5 experiments compare: the paper's, its alignments by layer and head, and hedged with truncation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import lengthwise as lw
from lengthwise.methods.spec import HEDGE
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS
from lengthwise.methods.temperature.log import Log

ALIGNED = {f"{statistic}-{scope}": (statistic, scope) for scope in SCOPES for statistic in STATISTICS}
# The alignment, mixed with what truncation reads
HEDGED = {f"{HEDGE}-{name}": name for name in ALIGNED}
# Where answers are fitted, which takes minutes: in between a temperature is interpolated
FITTED = (2048, 4096, 15000)
# What a user is advised to take: `lengthwise calibrate` as it is, hedged
DEFAULT = "hedge-pmax-model"
# The most important first; methods of one stage are run side by side
STAGES = (
    ("none", "truncate", "pmax-model", "pmax-layer", "hedge-pmax-model", "hedge-pmax-layer"),
    ("log", "entropy-model", "answers-head", "hedge-answers-head"),
    ("pmax-head", "entropy-layer", "entropy-head"),
)
NAMES = tuple(name for stage in STAGES for name in stage)


def stages(names: Sequence[str]) -> list[list[str]]:
    """The methods named, or all; specs that are not among ours come last."""
    ours = [[name for name in stage if name in (names or NAMES)] for stage in STAGES]
    return [stage for stage in [*ours, [name for name in names if name not in NAMES]] if stage]


def contenders(
    model: Any, tokenizer: Any, names: Sequence[str], lengths: Sequence[int], train_length: int, folder: Path
) -> dict[str, object]:
    """What `lengthwise.evaluate` takes for these names; alignments are solved once for all, on the package's prose
    or, those of answers, on its tasks."""
    beyond = sorted(length for length in lengths if length > train_length)
    solved = {}
    for name in dict.fromkeys(map(behind, names)):
        if name in ALIGNED:
            file, (statistic, scope) = alignment_file(folder, name), ALIGNED[name]
            if not file.exists():
                how: Any = {"statistic": statistic, "scope": scope, "train_length": train_length}
                few = [length for length in beyond if length in FITTED] if statistic == "answers" else []
                lw.calibrate(model, tokenizer, few or beyond, **how).save(file)
            solved[name] = lw.Alignment.load(file)
    methods: dict[str, object] = {name: solved.get(behind(name), name) for name in names}
    return {name: [HEDGE, method] if hedged(name) and behind(name) in ALIGNED else method for name, method in methods.items()}


def behind(name: str) -> str:
    """The method that a hedged one, of ours or `hedge+SPEC`, reads the whole input with; any other name stands for itself."""
    first, _, rest = name.partition("+")
    return rest.strip() or "none" if first.strip() == HEDGE else HEDGED.get(name, name)


def hedged(name: str) -> bool:
    return behind(name) != name


def temperatures(lengths: Sequence[int], train_length: int, folder: Path) -> dict[str, dict[int, list[float]]]:
    """tau at these lengths of the log law and of the alignments in `folder`: one number, one a layer or one a head."""
    beyond = [length for length in lengths if length > train_length]
    sharpness = Log(train_length).inverse_temperature(torch.tensor(beyond)).tolist()
    taus = {"log": {n: [1 / g] for n, g in zip(beyond, sharpness, strict=True)}}
    for name in ALIGNED:
        if (file := alignment_file(folder, name)).exists():
            alignment = lw.Alignment.load(file)
            solved = [n for n in beyond if n <= alignment.temperatures[-1].length]
            taus[name] = {n: alignment.tau(n).flatten().tolist() for n in solved}
    return taus


def alignment_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
