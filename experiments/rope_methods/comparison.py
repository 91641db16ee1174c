"""Every length method on the same streams: perplexity by position, against re-encoding, alone and combined.

Where the streams come from is the scripts' affair: `stories` and `books`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments._lib.likelihood_cells import Cells, in_one_forward
from experiments._lib.processes import share_out, work_for
from experiments.rope_methods import contenders
from experiments.rope_methods.alignments import Alignments
from experiments.rope_methods.arguments import Call, parser_of
from experiments.rope_methods.gold import Reencoding
from experiments.rope_methods.outcome import write_outcome
from experiments.rope_methods.refused import Refused, read_refused, refusal, say
from experiments.rope_methods.results import Results
from experiments.rope_methods.streams import Made
from lengthwise.common.files import write_whole
from lengthwise.errors import require
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with, parameters_digest
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.fingerprint import fingerprint_of
from lengthwise.models.load import load

MACHINE = "made_with.json"


@dataclass(frozen=True)
class Options(Call):
    """A comparison, as asked for."""

    streams: int = 4
    stages: int = len(contenders.STAGES)  # of our methods, the most important first

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.streams >= 1, f"--streams must be at least 1, not {self.streams}")
        most = len(contenders.STAGES)
        require(1 <= self.stages <= most, f"--stages must be from 1 to {most}, not {self.stages}")


@dataclass(frozen=True)
class Source:
    """Where streams come from."""

    script: str
    told: str  # what they are streams of, in words
    read: Callable[[int], tuple[Tensor, str]]  # tokens -> streams of so many, [streams, tokens]; a text to calibrate on
    reencoding: Reencoding
    stretch: int | None  # tokens of a stream that are independent of those after them; None where there is no such number


@dataclass(frozen=True)
class Subject:
    """The loaded model."""

    options: Any
    model: Any
    tokenizer: Any
    train_length: int

    @property
    def made(self) -> Made:
        digest, dtype = parameters_digest(self.model), dtype_of(self.model)
        return Made(digest, dtype, self.train_length, self.options.seed, self.options.streams)


@dataclass(frozen=True)
class Run:
    """The loaded model and what it is asked to read."""

    options: Options
    subject: Subject
    source: Source

    @property
    def train_length(self) -> int:
        return self.subject.train_length

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(method, length), the most important first."""
        if chosen := self.options.methods:
            return [(name, length) for length in self.options.lengths for name in chosen]
        stages = contenders.STAGES[: self.options.stages]
        cells = [(name, length) for stage in stages for length in self.options.lengths for name in stage]
        # Up to the training length there is nothing to calibrate
        return [(name, n) for name, n in cells if n > self.train_length or contenders.split_aligned(name)[1] is None]


def compare(options: Options, source_of: Callable[[Subject], Source]) -> Results:
    """Measures as much as there is time for, and writes the page of what has been measured so far, by any process."""
    run = _begun(options, source_of)
    if not options.page:
        work_for(options.minutes, partial(_measure, run))
    results = Results(options.out, options.streams, run.source.reencoding, run.source.stretch)
    if results.cells:
        print(write_outcome(options.out, results, _facts(run, results)))
    return results


def _begun(options: Options, source_of: Callable[[Subject], Source]) -> Run:
    model, tokenizer = load(options.model, options.dtype, options.device)
    subject = Subject(options, model, tokenizer, anatomy_of(model, options.train_length).train_length)
    run = Run(options, subject, source_of(subject))
    # A name that cannot be filled is said before hours of work, not after
    for name, length in run.cells:
        contenders.filled(name, length, run.train_length)
        contenders.split_aligned(name)
    return run


def _measure(run: Run) -> None:
    options, longest, model = run.options, max(run.options.lengths), run.subject.model
    _note_machine(run)
    say(f"{options.streams} streams of {longest:,} tokens")
    # One token more than is read: the last prediction has a target, too
    scored, text = run.source.read(longest + 1)
    for length in options.lengths:
        run.source.reencoding.make(model, scored, length, options.out, say)
    alignments = Alignments(model, run.subject.tokenizer, text, run.train_length, options.out / "alignments")
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
    return in_one_forward(run.subject.model, scored, length, alignments.method(name, length), run.train_length)


def _note_machine(run: Run) -> None:
    """Where measuring began: a page may be written elsewhere."""
    file = run.options.out / MACHINE
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(_machine(run), indent=1) + "\n")


def _machine(run: Run) -> dict[str, str]:
    return made_with(next(run.subject.model.parameters()).device.type)


def _facts(run: Run, results: Results) -> dict[str, Any]:
    options, model, machine = run.options, run.subject.model, run.options.out / MACHINE
    refused = read_refused(options.out)
    wanted = {key for key in run.cells if refusal(contenders.filled(*key, run.train_length), key[1]) not in refused}
    return {
        "command": f"python -m experiments.rope_methods.{run.source.script} {options.command}",
        "model": {**fingerprint_of(anatomy_of(model, options.train_length)), "name": Path(options.model).name},
        "made_with": json.loads(machine.read_text()) if machine.exists() else _machine(run),
        "dtype": dtype_of(model),
        "seed": options.seed,
        "streams": options.streams,
        "source": run.source.told,
        "train_length": run.train_length,
        "missing": len(wanted - set(results.cells)),
    }


def comparison_parser(doc: str | None) -> argparse.ArgumentParser:
    parser = parser_of(doc)
    parser.add_argument("--streams", type=int, default=Options.streams)
    parser.add_argument(
        "--stages", type=int, default=Options.stages, help="how many of our lists of methods, the most important first"
    )
    return parser
