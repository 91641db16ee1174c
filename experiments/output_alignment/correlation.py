"""Table 1 of Output Alignment over models at hand: does misalignment tell more of long perplexity than training loss does?

    python -m experiments.output_alignment.correlation MODEL ... --length 2x 4x 8x --out runs/correlation
    ... --books FILE ...                                      # text of books; without it the model's own stories
    ... --page                                                # OUT/correlation.md, .json and .svg of what there is

Every model is measured plain and with every training-free method of experiments/rope_methods. OUT/MODEL/cells.jsonl gets a line
a number: the same command again goes on where the last one stopped, several at once share the work, and another MODEL may be
added to the same OUT later.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments._lib.command import exit_status
from experiments._lib.processes import work_for
from experiments.output_alignment import correlation_page
from experiments.output_alignment.correlation_rows import Measured, measured_in
from experiments.output_alignment.correlation_subject import Settings, measure
from lengthwise.errors import require
from lengthwise.models.load import DTYPES

SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend"}
LENGTHS = ("2x", "4x", "8x")


@dataclass(frozen=True)
class Options:
    out: Path
    models: tuple[str, ...] = ()
    lengths: tuple[str, ...] = LENGTHS  # tokens, or multiples of each model's training length
    train_lengths: tuple[int, ...] = ()  # one a model, or none
    minutes: float = math.inf
    page: bool = False
    settings: Settings = field(default_factory=Settings)
    command: str = ""  # as typed

    def __post_init__(self) -> None:
        require(self.page or bool(self.models), "give at least one model, or --page")
        given, models = len(self.train_lengths), len(self.models)
        require(given in (0, models), f"--train-length needs one number a model, {models} of them, not {given}")
        names = [Path(model).name for model in self.models]
        require(len(set(names)) == len(names), f"models of one name would share a folder: {', '.join(names)}")


def run(options: Options) -> list[Measured]:
    """Measures as much as there is time for, and writes the page of what has been measured so far, by any process."""
    if not options.page:
        work_for(options.minutes, lambda: _measure(options))
    measured = measured_in(options.out)
    if options.page or any(one.rows for one in measured):
        print(correlation_page.write(measured, options.out))
    return measured


def _measure(options: Options) -> None:
    train_lengths = options.train_lengths or (None,) * len(options.models)
    for model, train_length in zip(options.models, train_lengths, strict=True):
        folder = options.out / Path(model).name
        measure(model, options.lengths, train_length, options.settings, folder, options.command)


def options_from(arguments: Sequence[str] | None = None) -> Options:
    typed = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = "directory, hub name or GGUF file of a causal language model"
    lengths = "tokens of a long forward, or a multiple of the training length, such as 8x"
    parser.add_argument("models", metavar="MODEL", nargs="*", default=[], help=model)
    parser.add_argument("--out", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--length", dest="lengths", help=lengths, **SEVERAL)
    parser.add_argument(
        "--train-length", dest="train_lengths", type=int, default=[], help="one a model; their own if none", **SEVERAL
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long; the next call goes on")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page of what there is")
    parser.add_argument(
        "--books", type=Path, default=[], help="text files, a book each; else the model's own stories", **SEVERAL
    )
    parser.add_argument("--streams", type=int, default=Settings.streams)
    parser.add_argument("--pairs", type=int, default=Settings.pairs, help="pairs of readings that misalignment is measured on")
    parser.add_argument(
        "--method", dest="methods", default=[], help="specs with places to fill; all of ours if none", **SEVERAL
    )
    parser.add_argument("--stages", type=int, default=Settings.stages, help="how many of our lists of methods")
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--dtype", choices=list(DTYPES), default=Settings.dtype)
    parser.add_argument("--device", help="cuda where there is one")
    found: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in vars(parser.parse_args(typed)).items()
    }
    of_settings = {name: found.pop(name) for name in Settings.__dataclass_fields__}
    command = f"python -m experiments.output_alignment.correlation {shlex.join(typed)}"
    return Options(**{**found, "lengths": found["lengths"] or LENGTHS}, settings=Settings(**of_settings), command=command)


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_status(lambda: run(options_from(arguments)))


if __name__ == "__main__":
    sys.exit(main())
