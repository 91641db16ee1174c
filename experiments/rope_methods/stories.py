"""Every length method on a model's own stories: perplexity by position, against re-encoding, alone and combined.

    python -m experiments.rope_methods.stories MODEL --length 2048 --length 8192 --streams 4 --out runs/rope_methods

Samples the streams, re-encodes them, calibrates and measures. The same command again goes on where the last one stopped, and
several of them at once share the work. OUT then holds rope_methods.json, rope_methods.md and its pictures.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments.common.status import exit_status
from experiments.common.together import TimeIsUp, at_most, share_out
from experiments.rope_methods import contenders
from experiments.rope_methods.alignments import Alignments
from experiments.rope_methods.cells import Cells, in_one_forward, make_gold
from experiments.rope_methods.outcome import write_outcome
from experiments.rope_methods.refused import Refused, read_refused, refusal, say
from experiments.rope_methods.results import Results
from experiments.rope_methods.streams import Made, kept_streams
from lengthwise.errors import require
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import fingerprint_of
from lengthwise.models.load import DTYPES, load
from lengthwise.sweep.settings import dtype_of, made_with, parameters_digest

LENGTHS = (2048, 8192)


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    model: str
    out: Path
    lengths: tuple[int, ...] = LENGTHS
    streams: int = 4
    methods: tuple[str, ...] = ()  # all of ours when empty
    seed: int = 0
    train_length: int | None = None
    dtype: str = "auto"
    device: str | None = None
    minutes: float = math.inf  # of this process
    page: bool = False  # measure nothing, write the page of what there is
    command: str = ""  # as typed

    def __post_init__(self) -> None:
        require(self.streams >= 1, f"--streams must be at least 1, not {self.streams}")
        shortest = min(self.lengths, default=0)
        require(shortest >= 1, f"a length must be at least 1 token, not {shortest}")


@dataclass(frozen=True)
class Run:
    """The loaded model and what it is asked to read."""

    options: Options
    model: Any
    tokenizer: Any
    train_length: int

    @cached_property
    def made(self) -> Made:
        digest, dtype = parameters_digest(self.model), dtype_of(self.model)
        return Made(digest, dtype, self.train_length, self.options.seed, self.options.streams)

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(method, length), the most important first."""
        chosen = self.options.methods
        stages = [chosen] if chosen else contenders.STAGES
        return [(name, length) for stage in stages for length in self.options.lengths for name in stage]


def compare(options: Options) -> Results:
    """Measures as much as there is time for, and writes the page of what has been measured so far, by any process."""
    run = _begun(options)
    try:
        with at_most(options.minutes):
            if not options.page:
                _measure(run)
    except TimeIsUp:
        say(f"{options.minutes:g} minutes are over; the same command goes on")
    results = Results(options.out, options.streams, run.train_length)
    if results.cells:
        print(write_outcome(options.out, results, _facts(run, results)))
    return results


def _begun(options: Options) -> Run:
    model, tokenizer = load(options.model, options.dtype, options.device)
    run = Run(options, model, tokenizer, anatomy_of(model, options.train_length).train_length)
    # A name that cannot be filled is said before hours of work, not after
    for name, length in run.cells:
        contenders.filled(name, length, run.train_length)
        contenders.split_aligned(name)
    return run


def _measure(run: Run) -> None:
    options, longest = run.options, max(run.options.lengths)
    say(f"{options.streams} streams of {longest:,} tokens")
    # Decoded and read again, as calibration does, a text may have a few tokens less
    spare = longest // 8 + 64
    streams = kept_streams(run.model, run.made, longest + spare, options.out / "streams.json")
    # One token more than is read: the last prediction has a target, too
    scored, held_out = streams[:-1, : longest + 1], streams[-1]
    for length in options.lengths:
        make_gold(run.model, scored, length, run.train_length, options.out, say)
    alignments = Alignments(run.model, run.tokenizer, held_out, run.train_length, options.out / "alignments")
    cells, refused = Cells(options.out), Refused(options.out)
    works = []
    for name, length in run.cells:
        spec = contenders.filled(name, length, run.train_length)
        measured = partial(_measured, run, alignments, scored, name, length)
        works.append(refused.instead(spec, length, cells.once(name, spec, length, measured)))
    share_out(works)


def _measured(run: Run, alignments: Alignments, scored: Tensor, name: str, length: int) -> tuple[Tensor, float]:
    at = run.cells.index((name, length)) + 1
    say(f"{at} of {len(run.cells)}: {contenders.filled(name, length, run.train_length)} at {length:,} tokens")
    return in_one_forward(run.model, scored, length, alignments.method(name, length), run.train_length)


def _facts(run: Run, results: Results) -> dict[str, Any]:
    options = run.options
    refused = read_refused(options.out)
    wanted = {key for key in run.cells if refusal(contenders.filled(*key, run.train_length), key[1]) not in refused}
    return {
        "command": f"python -m experiments.rope_methods.stories {options.command}",
        "model": {**fingerprint_of(anatomy_of(run.model, options.train_length)), "name": Path(options.model).name},
        "made_with": made_with(next(run.model.parameters()).device.type),
        "dtype": run.made.dtype,
        "seed": options.seed,
        "streams": options.streams,
        "train_length": run.train_length,
        "missing": len(wanted - set(results.cells)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    several: dict[str, Any] = {"nargs": "+", "action": "extend"}
    parser.add_argument("model", metavar="MODEL", help="directory or hub name of a causal language model")
    parser.add_argument("--length", dest="lengths", type=int, help="tokens of a forward", **several)
    parser.add_argument(
        "--method", dest="methods", default=[], help="specs with places to fill; all of ours if none", **several
    )
    parser.add_argument("--streams", type=int, default=Options.streams)
    parser.add_argument("--out", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-length", type=int, help="the model's own if not given")
    parser.add_argument("--dtype", choices=list(DTYPES), default="auto")
    parser.add_argument("--device", help="cuda where there is one")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long; the next call goes on")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page of what there is")
    typed = sys.argv[1:] if arguments is None else list(arguments)
    found = vars(parser.parse_args(typed))
    found["lengths"] = tuple(sorted(set(found["lengths"] or LENGTHS)))
    found["methods"] = tuple(dict.fromkeys(found["methods"]))
    command = shlex.join(word for word in typed if word != "--page")
    return exit_status(lambda: compare(Options(**found, command=command)))


if __name__ == "__main__":
    sys.exit(main())
