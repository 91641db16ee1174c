"""A pass key in long text: which methods still find it, by length and depth.

    python -m experiments.rope_methods.passkey MODEL --length 1024 8192 16384 --samples 20 --out runs/books

The package's own task, answered greedily and scored by `lengthwise.evaluate`: prompt and answer together take the length. The
same command goes on where the last one stopped, and several of them share the work. OUT/passkey then holds the run directory,
the alignments and passkey.md; the page of a comparison in the same OUT shows its tables, too.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lengthwise as lw
from experiments._lib.command import exit_status
from experiments._lib.processes import Once, share_out, work_for
from experiments.rope_methods.alignments import Alignments
from experiments.rope_methods.arguments import SEVERAL, Call, given, parser_of
from experiments.rope_methods.contenders import INTERPOLATION, NTK, PLAIN, YARN, YARN_BARE, filled, split_aligned
from experiments.rope_methods.found import Found, recorded_as, write_found
from experiments.rope_methods.hiding import TASK, hidden_in
from experiments.rope_methods.refused import Refused, say
from lengthwise.common.text import shipped_prose
from lengthwise.errors import require
from lengthwise.evaluation.sweep.named_methods import TRUNCATE
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.records import CellKey, Record
from lengthwise.records.append_only import AppendOnly
from lengthwise.records.directory import RECORDS
from lengthwise.tasks import Task

LENGTHS = (1024, 2048, 4096, 8192, 12288, 16384)
# The most important first
NAMES = (
    PLAIN,
    "streaming_llm",
    YARN,
    NTK,
    f"{YARN_BARE}+{{pmax-layer}}",
    INTERPOLATION,
    "ntk:factor=2,dynamic=true",
    "rerope:window={half}",
    "lm_infinite",
    "window",
    "log",
    "infoscale",
    TRUNCATE,
)


@dataclass(frozen=True)
class Options(Call):
    """What was asked for."""

    samples: int = 20  # of each method and length, spread over the depths
    books: tuple[Path, ...] = ()  # filler; the package's prose without them
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.samples >= 1, f"--samples must be at least 1, not {self.samples}")

    @property
    def folder(self) -> Path:
        return self.out / TASK


@dataclass(frozen=True)
class Run:
    """The loaded model and what it is asked."""

    options: Options
    model: Any
    tokenizer: Any
    train_length: int
    task: Task
    alignments: Alignments

    @property
    def cells(self) -> list[tuple[str, int]]:
        """(method, length), method by method and the shortest first."""
        return [(name, length) for name in self.options.methods or NAMES for length in self.options.lengths]

    def method(self, name: str, length: int) -> object:
        """Up to the training length an alignment is exactly 1, and is not calibrated."""
        base, _ = split_aligned(name)
        return filled(base, length, self.train_length) if length <= self.train_length else self.alignments.method(name, length)


def ask(options: Options) -> Found:
    """Asks as much as there is time for, and writes the page of what has been answered so far, by any process."""
    run = _begun(options)
    if not options.page:
        work_for(options.minutes, partial(_ask_all, run))
    command = f"python -m experiments.rope_methods.passkey {options.command}"
    found = Found.of(options.folder, run.cells, options.samples, run.train_length, command)
    if found.records:
        print(write_found(options.folder, found))
    return found


def _begun(options: Options) -> Run:
    model, tokenizer = load(options.model, options.dtype, options.device)
    train_length = anatomy_of(model, options.train_length).train_length
    task = hidden_in(options.books, options.samples)
    alignments = Alignments(model, tokenizer, shipped_prose(), train_length, options.folder / "alignments")
    run = Run(options, model, tokenizer, train_length, task, alignments)
    for name, length in run.cells:
        filled(name, length, train_length)
    return run


def _ask_all(run: Run) -> None:
    folder = run.options.folder
    (folder / "run").mkdir(parents=True, exist_ok=True)
    refused, answers = Refused(folder), AppendOnly(folder / "run" / RECORDS, Record)

    def once(name: str, length: int) -> Once:
        spec = filled(name, length, run.train_length)
        claim = folder / f".claim-{hashlib.sha256(f'{name} {length}'.encode()).hexdigest()[:16]}"
        return Once(claim, lambda: refused.has(spec, length) or answered(name, length), lambda: make(name, spec, length))

    def answered(name: str, length: int) -> bool:
        answers.refresh()
        cell = CellKey(recorded_as(name, length, run.train_length), TASK, "", length)
        return all((cell, index) in answers.lines for index in range(run.options.samples))

    def make(name: str, spec: str, length: int) -> None:
        say(f"{spec} at {length:,} tokens")
        # Only the method may be refused: another seed or model in this folder is an error of the whole call
        with refused.noted(spec, length):
            method = run.method(name, length)
            with lw.extend(run.model, [] if method == TRUNCATE else method, train_length=run.options.train_length):
                pass
        if not refused.has(spec, length):
            _ask(run, recorded_as(name, length, run.train_length), method, length)

    share_out([once(name, length) for name, length in run.cells])


def _ask(run: Run, recorded: str, method: object, length: int) -> None:
    options = run.options
    lw.evaluate(
        run.model,
        run.tokenizer,
        {recorded: method},
        {TASK: run.task},
        [length],
        options.samples,
        options.seed,
        options.folder / "run",
        train_length=options.train_length,
        batch_tokens=options.batch_tokens,
        name=Path(options.model).name,
        sharpness=False,
        show_progress=False,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--samples", type=int, default=Options.samples, help="of each method and length")
    parser.add_argument("--books", type=Path, default=[], help="text files to hide the number in", **SEVERAL)
    parser.add_argument("--batch-tokens", type=int, help="tokens of one batch; by default what suits the device")
    found = given(parser, arguments, LENGTHS)
    return exit_status(lambda: ask(Options(**found)))


if __name__ == "__main__":
    sys.exit(main())
