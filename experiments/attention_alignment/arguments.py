"""The command line that the scripts here have in common."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.attention_alignment import contenders, material
from lengthwise.errors import require
from lengthwise.models.load import DTYPES

LENGTHS = (512, 1024, 2048, 4096, 8192, 15000)


@dataclass(frozen=True)
class Call:
    """What was asked for."""

    out: Path
    model: str = "embedded"
    lengths: tuple[int, ...] = LENGTHS
    samples: int = 100  # of each task and length
    methods: tuple[str, ...] = ()  # all of ours when empty
    tasks: tuple[str, ...] = ()  # all there are when empty
    data: Path | None = None
    seed: int = 0
    train_length: int | None = None
    dtype: str = "auto"
    device: str | None = None
    command: str = ""  # as typed

    def __post_init__(self) -> None:
        require(self.samples >= 1, f"--samples must be at least 1, not {self.samples}")
        require(min(self.lengths, default=0) >= 1, f"a length must be at least 1 token, not {min(self.lengths, default=None)}")


def parser_of(doc: str | None, samples: int = Call.samples) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    ours, tasks = ", ".join(contenders.NAMES), ", ".join(material.NAMES)
    parser.add_argument("model", nargs="?", default="embedded", metavar="MODEL", help="directory, hub name, or embedded")
    parser.add_argument("--length", dest="lengths", type=int, default=None, help="tokens", **several)
    parser.add_argument("--method", dest="methods", default=[], help=f"{ours}, or any spec; all of ours if none", **several)
    parser.add_argument("--task", dest="tasks", default=[], help=f"{tasks}; all there are if none", **several)
    parser.add_argument("--samples", type=int, default=samples, help="of each task and length")
    parser.add_argument("--data", type=Path, help="folder with gutenberg/*.txt, for the passkey in held-out novels")
    parser.add_argument("--out", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-length", type=int, help="the model's own if not given")
    parser.add_argument("--dtype", choices=list(DTYPES), default="auto")
    parser.add_argument("--device", help="cuda where there is one")
    return parser


def given(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> dict[str, Any]:
    """As keywords; lists as tuples, and what was typed as `command`."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    found = {key: tuple(value) if isinstance(value, list) else value for key, value in vars(parser.parse_args(typed)).items()}
    return {**found, "lengths": tuple(sorted(set(found["lengths"] or LENGTHS))), "command": _measuring(typed)}


def _measuring(typed: Sequence[str]) -> str:
    """The call that measures what a page shows: with --page it is only written."""
    return shlex.join(word for word in typed if word != "--page")
