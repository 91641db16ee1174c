"""The methods that T5 experiments compare: the paper's, its alignments by layer and head, and hedged with truncation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import lengthwise as lw
from experiments._lib.processes import Once
from lengthwise.common.files import write_whole
from lengthwise.common.sequences import long_sequences
from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput, require
from lengthwise.methods.spec import HEDGE
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS
from lengthwise.methods.temperature.log import Log

ALIGNED = {f"{statistic}-{scope}": (statistic, scope) for scope in SCOPES for statistic in STATISTICS}
# The alignment, mixed with what truncation reads
HEDGED = {f"{HEDGE}-{name}": name for name in ALIGNED}
# What a user is advised to take: `lengthwise calibrate` as it is, hedged
DEFAULT = "hedge-pmax-model"
# The most important first; methods of one stage are run side by side
STAGES = (
    ("none", "truncate", "pmax-model", "pmax-layer", "hedge-pmax-model", "hedge-pmax-layer"),
    ("log", "entropy-model"),
    ("pmax-head", "entropy-layer", "entropy-head"),
)
NAMES = tuple(name for stage in STAGES for name in stage)


def stages(names: Sequence[str]) -> list[list[str]]:
    """The methods named, or all; specs that are not among ours come last."""
    ours = [[name for name in stage if name in (names or NAMES)] for stage in STAGES]
    return [stage for stage in [*ours, [name for name in names if name not in NAMES]] if stage]


def calibrated_once(
    model: Any, tokenizer: Any, names: Sequence[str], lengths: Sequence[int], train_length: int, folder: Path
) -> list[Once]:
    """The alignments that `names` need, on the package's prose, at all lengths beyond the training length."""
    wanted = [name for name in dict.fromkeys(map(behind, names)) if name in ALIGNED]
    beyond = sorted(length for length in lengths if length > train_length)
    if not wanted:
        return []
    require(bool(beyond), f"an alignment needs a length above the training length {train_length}; give --length or --calibrate")
    # Said now, and once: each alignment would be left out for it
    _check_prose(tokenizer, beyond[-1])
    folder.mkdir(parents=True, exist_ok=True)
    works = []
    for name in wanted:
        file, reason = alignment_file(folder, name), left_out_file(folder, name)
        make = partial(_calibrate, model, tokenizer, name, beyond, train_length, file, reason)
        works.append(Once(folder / f".claim-{name}", partial(_either, file, reason), make))
    return works


def contenders(names: Sequence[str], lengths: Sequence[int], train_length: int, folder: Path) -> dict[str, object]:
    """What `lengthwise.evaluate` takes: specs, and the alignments in `folder`; those that were left out are missing."""
    methods: dict[str, object] = {}
    for name in names:
        if behind(name) not in ALIGNED:
            methods[name] = name
        elif (file := alignment_file(folder, behind(name))).exists():
            alignment = _covering(file, lengths, train_length)
            methods[name] = [HEDGE, alignment] if hedged(name) else alignment
    return methods


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


def left_out(names: Sequence[str], folder: Path) -> dict[str, str]:
    """Alignments that could not be made, and why."""
    files = {name: left_out_file(folder, behind(name)) for name in names if behind(name) in ALIGNED}
    return {name: file.read_text().strip() for name, file in files.items() if file.exists()}


def alignment_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def left_out_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.left-out.txt"


def _check_prose(tokenizer: Any, longest: int) -> None:
    try:
        long_sequences(tokenizer, shipped_prose(), longest, 1, seed=0)
    except BadInput as error:
        what, _, _ = str(error).partition(";")
        raise BadInput(
            f"alignments are solved on the package's prose: {what}; give smaller lengths to --calibrate, "
            "and the last temperature is held beyond them"
        ) from None


def _either(*files: Path) -> bool:
    return any(file.exists() for file in files)


def _calibrate(
    model: Any, tokenizer: Any, name: str, lengths: Sequence[int], train_length: int, file: Path, reason: Path
) -> None:
    statistic, scope = ALIGNED[name]
    try:
        lw.calibrate(model, tokenizer, lengths, statistic=statistic, scope=scope, train_length=train_length).save(file)
    except BadInput as error:
        # One alignment that cannot be had must not cost the others; the page tells of it
        write_whole(reason, f"{error}\n")


def _covering(file: Path, lengths: Sequence[int], train_length: int) -> lw.Alignment:
    alignment = lw.Alignment.load(file)
    made = {entry.length for entry in alignment.temperatures}
    lacking = sorted(length for length in set(lengths) - made if length > train_length)
    require(
        not lacking, f"{file} was calibrated without length {lacking[:1]}; give another --out, or --calibrate {_listed(made)}"
    )
    return alignment


def _listed(lengths: Iterable[int]) -> str:
    return " ".join(map(str, sorted(lengths)))
