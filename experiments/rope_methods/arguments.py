"""The command line that the scripts here have in common."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.errors import require
from lengthwise.models.load import DTYPES

SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend"}


@dataclass(frozen=True)
class Call:
    """What was asked for."""

    model: str
    out: Path
    lengths: tuple[int, ...]
    methods: tuple[str, ...] = ()  # all of ours when empty
    seed: int = 0
    train_length: int | None = None
    dtype: str = "auto"
    device: str | None = None
    minutes: float = math.inf  # of this process
    page: bool = False  # measure nothing, write the page of what there is
    command: str = ""  # as typed

    def __post_init__(self) -> None:
        shortest = min(self.lengths, default=0)
        require(shortest >= 1, f"a length must be at least 1 token, not {shortest}")


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    methods = "specs with places to fill; all of ours if none"
    parser.add_argument("model", metavar="MODEL", help="directory, hub name or GGUF file of a causal language model")
    parser.add_argument("--length", dest="lengths", type=int, help="tokens of a forward", **SEVERAL)
    parser.add_argument("--method", dest="methods", default=[], help=methods, **SEVERAL)
    parser.add_argument("--out", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-length", type=int, help="the model's own if not given")
    parser.add_argument("--dtype", choices=list(DTYPES), default="auto")
    parser.add_argument("--device", help="cuda where there is one")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long; the next call goes on")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page of what there is")
    return parser


def given(parser: argparse.ArgumentParser, arguments: Sequence[str] | None, lengths: Sequence[int]) -> dict[str, Any]:
    """As keywords; lists as tuples without repetition, and the call that measures what a page shows as `command`."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    found = vars(parser.parse_args(typed))
    found = {key: tuple(dict.fromkeys(value)) if isinstance(value, list) else value for key, value in found.items()}
    command = shlex.join(word for word in typed if word != "--page")
    return {**found, "lengths": tuple(sorted(found["lengths"] or lengths)), "command": command}
