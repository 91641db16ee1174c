"""Retrieval by length under the paper's methods: its Tables 4 and 9, for any T5.

    python -m experiments.attention_alignment.retrieval embedded --data data --out runs/retrieval --minutes 9

Makes the samples, calibrates every alignment once, and evaluates. The same command again goes on where the last one stopped,
and several of them at once share the work. OUT then holds retrieval.json and retrieval.md, the alignments, the samples and the
run directories.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lengthwise as lw
from experiments._lib.command import exit_status
from experiments._lib.processes import share_out, work_for
from experiments.attention_alignment import material
from experiments.attention_alignment.arguments import ByLength, Sharing, by_length, given, parser_of, sharing
from experiments.attention_alignment.contenders import calibrated_once, contenders, left_out, stages, temperatures
from experiments.attention_alignment.facts import facts_of
from experiments.attention_alignment.material import Asked, made_once
from experiments.attention_alignment.outcome import write_outcome
from experiments.attention_alignment.results import Results, made_with, materials, read_results
from lengthwise.errors import BadInput
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.records import CellKey


@dataclass(frozen=True)
class Options(ByLength, Sharing):
    """What was asked for, and how to go about it."""

    longeval: tuple[Path, ...] = ()  # official files


@dataclass(frozen=True)
class Run:
    """The loaded model and what is asked of it."""

    options: Options
    model: Any
    tokenizer: Any
    train_length: int
    asked: list[Asked]
    official: dict[Path, str]  # file -> its task

    @property
    def methods(self) -> list[str]:
        return [name for stage in stages(self.options.methods) for name in stage]

    def contenders(self, names: Sequence[str]) -> dict[str, object]:
        return contenders(names, self.options.solved_at, self.train_length, self.options.out)


def retrieval(options: Options) -> Results:
    """Measures as much as there is time for, and writes the page of what has been measured so far, by any process."""
    run = _begun(options)
    if not options.page:
        work_for(options.minutes, partial(_measure, run))
    results = read_results(options.out, run.train_length)
    if results.records:
        facts = facts_of("retrieval", options, run.model, run.methods, materials(options.out))
        facts["made_with"] = made_with(options.out)
        taus = temperatures(results.lengths, run.train_length, options.out)
        print(write_outcome(options.out, results, {**facts, "missing": _missing(run, results)}, taus))
    return results


def _begun(options: Options) -> Run:
    asked, official = material.asked(options.tasks, options.data), {path: _task_of(path) for path in options.longeval}
    model, tokenizer = load(options.model, options.dtype, options.device)
    return Run(options, model, tokenizer, anatomy_of(model, options.train_length).train_length, asked, official)


def _measure(run: Run) -> None:
    options = run.options
    share_out(made_once(run.asked, run.tokenizer, options.lengths, options.samples, options.seed, options.out / "samples"))
    if options.prepare:
        return
    share_out(calibrated_once(run.model, run.tokenizer, run.methods, options.solved_at, run.train_length, options.out))
    for stage in stages(options.methods):
        if methods := run.contenders(stage):
            _evaluate(run, methods)


def _evaluate(run: Run, methods: Mapping[str, object]) -> None:
    """Shortest inputs first, the tasks of a run directory side by side; then the official cases."""
    options = run.options
    common: dict[str, Any] = {
        "samples": options.samples,
        "seed": options.seed,
        "train_length": options.train_length,
        "batch_tokens": options.batch_tokens,
        "name": options.model,
    }
    for name in dict.fromkeys(one.run for one in run.asked):
        tasks = {one.task: one.in_files(options.out / "samples") for one in run.asked if one.run == name}
        lw.evaluate(run.model, run.tokenizer, methods, tasks, options.lengths, out=options.out / name, **common)
    for path, task in run.official.items():
        lw.evaluate(run.model, run.tokenizer, methods, [task], data=path, out=options.out / "run", **common)


def _task_of(path: Path) -> str:
    """A file of LongEval says by its keys what it asks for."""
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        raise BadInput(f"{path} is not a file of LongEval cases; give one of its lines/*.jsonl or topics/*.jsonl") from None
    return "topic" if "topics" in first else "line"


def _missing(run: Run, results: Results) -> int:
    """Generated samples that were asked for and have no answer yet."""
    left = left_out(run.methods, run.options.out)
    methods = [name for name in run.methods if name not in left]
    keys = [CellKey(method, one.name, "", n) for method in methods for one in run.asked for n in run.options.lengths]
    return sum(max(0, run.options.samples - len(results.groups.get(key, ()))) for key in keys)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sharing(by_length(parser_of(__doc__)))
    parser.add_argument(
        "--longeval", type=Path, nargs="+", action="extend", default=[], help="official files, scored as they are"
    )
    return exit_status(lambda: retrieval(Options(**given(parser, arguments))))


if __name__ == "__main__":
    sys.exit(main())
