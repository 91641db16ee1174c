"""The streams of a comparison, kept in a file: made once, grown where a longer length is asked for, never mixed with others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments._lib.processes import Once, share_out
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput

FORMAT = "lengthwise.experiments.streams/1"


@dataclass(frozen=True)
class Made:
    """What streams and their likelihoods depend on; another value of any of these makes others."""

    model: str  # digest of its parameters
    dtype: str
    train_length: int
    seed: int
    streams: int


# What the file holds beside what it was made with -> the same with streams that are long enough
Grown = Callable[[dict[str, Any]], dict[str, Any]]


def kept_streams(file: Path, made: Made, tokens: int, grown: Grown) -> Tensor:  # [made.streams + 1, tokens]
    """Those in `file`, made or grown where they are missing or too short; the last one is not scored, but calibrated on."""
    file.parent.mkdir(parents=True, exist_ok=True)

    def make() -> None:
        write_whole(file, json.dumps({"format": FORMAT, **asdict(made), **grown(_read(file, made))}) + "\n")

    share_out([Once(file.with_name(f".claim-{file.name}"), lambda: _least(_read(file, made)) >= tokens, make)])
    return torch.tensor([stream[:tokens] for stream in _read(file, made)["tokens"]])


def spare(tokens: int) -> int:
    """So many more are kept: decoded and read again, as calibration does, a text may have a few tokens less."""
    return tokens // 8 + 64


def _least(document: dict[str, Any]) -> int:
    return min(map(len, document.get("tokens", [])), default=0)


def _read(file: Path, made: Made) -> dict[str, Any]:
    """Empty where there is no file yet."""
    if not file.exists():
        return {}
    try:
        document = json.loads(file.read_text())
        document["tokens"] = [list(map(int, stream)) for stream in document["tokens"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{file} is not a file of streams; give another --out") from None
    mine = {"format": FORMAT, **asdict(made)}
    for key, now in mine.items():
        if (was := document.get(key)) != now:
            raise BadInput(f"{file} was begun with another {key}: {was} then, {now} now; give another --out")
    return {key: value for key, value in document.items() if key not in mine}
