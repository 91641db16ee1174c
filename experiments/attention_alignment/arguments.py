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

from experiments.attention_alignment import contenders, material
from lengthwise.errors import require
from lengthwise.models.load import DTYPES

LENGTHS = (512, 1024, 2048, 4096, 8192, 15000)
# Where alignments are solved for all the scripts of one folder; in between they are interpolated
SOLVED = (1024, 2048, 4096, 8192, 15000, 16000)
SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend"}


@dataclass(frozen=True)
class Call:
    """What was asked for."""

    out: Path
    model: str = "embedded"
    samples: int = 100  # of each cell
    methods: tuple[str, ...] = ()  # all of ours when empty
    calibrate: tuple[int, ...] = ()  # lengths at which alignments are solved, where they are not the usual ones
    seed: int = 0
    train_length: int | None = None
    dtype: str = "auto"
    device: str | None = None
    command: str = ""  # as typed

    def __post_init__(self) -> None:
        require(self.samples >= 1, f"--samples must be at least 1, not {self.samples}")

    @property
    def read_at(self) -> tuple[int, ...]:
        """Lengths that are read, where they are the caller's to choose."""
        return ()

    @property
    def solved_at(self) -> tuple[int, ...]:
        """Lengths beyond the usual ones that are read are solved for themselves; those of --calibrate are all there are."""
        return self.calibrate or (*SOLVED, *sorted({n for n in self.read_at if n > SOLVED[-1]}))


@dataclass(frozen=True)
class ByLength(Call):
    """Retrieval tasks at several lengths."""

    lengths: tuple[int, ...] = LENGTHS
    tasks: tuple[str, ...] = ()  # all there are when empty
    data: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(min(self.lengths, default=0) >= 1, f"a length must be at least 1 token, not {min(self.lengths, default=None)}")

    @property
    def solved_at(self) -> tuple[int, ...]:
        """Lengths of one's own are solved for themselves."""
        return super().solved_at if self.lengths == LENGTHS else self.calibrate or self.lengths


@dataclass(frozen=True)
class Sharing(Call):
    """How to go about it where several processes may be at it."""

    batch_tokens: int | None = None
    minutes: float = math.inf  # of this process
    prepare: bool = False  # make the samples and stop
    page: bool = False  # measure nothing, write the page of what there is


def parser_of(doc: str | None, samples: int = Call.samples) -> argparse.ArgumentParser:
    """With the options of every script."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ours = ", ".join(contenders.NAMES)
    parser.add_argument("model", nargs="?", default="embedded", metavar="MODEL", help="directory, hub name, or embedded")
    parser.add_argument("--method", dest="methods", default=[], help=f"{ours}, or any spec; all of ours if none", **SEVERAL)
    parser.add_argument("--samples", type=int, default=samples, help="of each cell")
    parser.add_argument("--calibrate", type=int, default=[], help="lengths at which alignments are solved", **SEVERAL)
    parser.add_argument("--out", type=Path, required=True, help="folder of the experiment; one a model serves all scripts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-length", type=int, help="the model's own if not given")
    parser.add_argument("--dtype", choices=list(DTYPES), default="auto")
    parser.add_argument("--device", help="cuda where there is one")
    return parser


def by_length(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    tasks = ", ".join(material.NAMES)
    parser.add_argument("--length", dest="lengths", type=int, default=None, help="tokens", **SEVERAL)
    parser.add_argument("--task", dest="tasks", default=[], help=f"{tasks}; all there are if none", **SEVERAL)
    parser.add_argument("--data", type=Path, help="folder with gutenberg/*.txt, for the passkey in held-out novels")
    return parser


def sharing(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--batch-tokens", type=int, help="tokens of one batch; by default what suits the device")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long; the next call goes on")
    parser.add_argument("--prepare", action="store_true", help="make the samples and stop")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page of what there is")
    return parser


def given(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> dict[str, Any]:
    """As keywords; lists as tuples, and what was typed as `command`."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    found = {key: tuple(value) if isinstance(value, list) else value for key, value in vars(parser.parse_args(typed)).items()}
    if "lengths" in found:
        found["lengths"] = tuple(sorted(set(found["lengths"] or LENGTHS)))
    return {**found, "command": _measuring(typed)}


def _measuring(typed: Sequence[str]) -> str:
    """The call that measures what a page shows: with --page it is only written."""
    return shlex.join(word for word in typed if word != "--page")
