"""Run the campaign: `python -m scripts.fuzz --seed 1 --commands 500 --files 300`; `--only c17` runs one command again."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch

from lengthwise.cli import run
from scripts.fuzz.command_lines import command_line
from scripts.fuzz.damaged_files import damaged_file
from scripts.fuzz.forked import Fork, run_alone
from scripts.fuzz.material import copy_material, make_material
from scripts.fuzz.outcome import GOOD, OUTCOMES, Outcome, classify, snapshot

KINDS = {"c": "command lines", "f": "damaged files"}
CAP = 20.0  # seconds until a command gets Ctrl-C
WORKERS = 2
# What commands import when they are first needed, once for all forks
IMPORTED = (
    *(
        "analysis.analyse",
        "calibration.bake",
        "calibration.calibrate",
        "calibration.export.export",
        "evaluation.evaluate",
        "evaluation.reach",
    ),
    *("training.train", "training.output_alignment.misalignment", "report", "tasks", "analysis.section"),
)


@dataclass(frozen=True)
class Case:
    """One command of the campaign, the same for the same name and seed."""

    name: str  # c17: the 17th command line; f3: the third damaged file
    seed: int

    def prepared(self, material: Path, folder: Path) -> tuple[list[str], str, str]:
        """Copy the material and damage it; (words, the damaged file, how)."""
        copy_material(material, folder)
        random = Random(f"{self.seed} {self.name}")
        return (command_line(random), "", "") if self.name[0] == "c" else damaged_file(folder, random)


@dataclass(frozen=True)
class Result:
    case: Case
    words: list[str]
    how: str
    outcome: Outcome
    said: str
    seconds: float

    def line(self) -> str:
        damaged = f" [{self.how}]" if self.how else ""
        command = shlex.join(word if len(word) < 200 else f"{word[:60]}...({len(word)} letters)" for word in self.words)
        again = f"--seed {self.case.seed} --only {self.case.name}"
        return f"{again}: {self.outcome.kind}: {self.outcome.why}\n    lengthwise {command}{damaged}".encode(
            errors="backslashreplace"
        ).decode()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", type=int, default=500, help="command lines to draw")
    parser.add_argument("--files", type=int, default=300, help="files to damage")
    parser.add_argument("--minutes", type=float, default=10, help="no command is begun later")
    parser.add_argument("--only", help="one case, such as c17 or f3, with all that it prints")
    parser.add_argument("--out", type=Path, help="JSON file for the counts")
    options = parser.parse_args(arguments)
    names = [f"c{n}" for n in range(options.commands)] + [f"f{n}" for n in range(options.files)]
    # Where time is short, some of both kinds are left out
    names.sort(key=lambda name: int(name[1:]) / (options.commands if name[0] == "c" else options.files))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        cases = [Case(name, options.seed) for name in ([options.only] if options.only else names)]
        results = []
        for result in campaign(cases, Path(place), 60 * options.minutes):
            results.append(result)
            if result.outcome.kind not in GOOD or options.only:
                print(result.line(), *([result.said] if options.only else []), sep="\n", end="\n\n", flush=True)
    counts = count(results)
    minutes = (time.monotonic() - begun) / 60
    print(table(counts))
    print(f"seed {options.seed}: {len(results)} of {len(cases)} commands in {minutes:.1f} minutes")
    if options.out:
        document = {"seed": options.seed, "minutes": round(minutes, 1), "outcomes": counts}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if any(result.outcome.kind not in GOOD for result in results) else 0


def campaign(cases: Sequence[Case], place: Path, seconds: float, cap: float = CAP) -> Iterator[Result]:
    """Run the cases, as many at once as there are workers, and yield their results; none is begun once the time is over."""
    torch.set_num_threads(1)
    _import_all()
    material = place / "material"
    make_material(material, lambda folder, words: _must_work(folder, words, place / "made"))
    end, waiting = time.monotonic() + seconds, list(reversed(cases))
    running: dict[int, tuple[Case, Fork, Path, list[str], str, str, Any]] = {}
    try:
        while waiting or running:
            for worker in range(WORKERS):
                if worker not in running and waiting and time.monotonic() < end:
                    case, folder = waiting.pop(), place / f"case{worker}"
                    words, damaged, how = case.prepared(material, folder)
                    before = snapshot(folder)
                    fork = Fork(folder, words, place / f"printed{worker}", cap)
                    running[worker] = (case, fork, folder, words, damaged, how, before)
            for worker, (case, fork, folder, words, damaged, how, before) in list(running.items()):
                if ended := fork.poll():
                    del running[worker]
                    outcome = classify(words, ended, folder, before, damaged)
                    yield Result(
                        case, words, f"{damaged}: {how}" if damaged else "", outcome, ended.out + ended.err, ended.seconds
                    )
                    shutil.rmtree(fork.printed)
            if not running and time.monotonic() >= end:
                return
            time.sleep(0.005)
    finally:
        gc.unfreeze()
        for _, fork, *_ in running.values():
            fork.kill()


def _import_all() -> None:
    for name in IMPORTED:
        importlib.import_module(f"lengthwise.{name}")
    for name in ("transformers.trainer", "peft", "datasets", "yaml", "matplotlib.pyplot", "torch.utils.tensorboard"):
        with suppress(ImportError):
            importlib.import_module(name)
    # And what the first command of a process imports to read its words
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        run(["report", "missing"])
    # A collection would write to, and so copy, all that the forks share
    gc.collect()
    gc.freeze()


def _must_work(folder: Path, words: Sequence[str], printed: Path) -> None:
    ended = run_alone(folder, words, printed, 120)
    if ended.status:
        raise RuntimeError(f"lengthwise {shlex.join(words)} ended with {ended.status}: {ended.err}")


def count(results: Sequence[Result]) -> dict[str, dict[str, int]]:
    """How often each outcome came, by kind of case."""
    counted = Counter((KINDS[result.case.name[0]], result.outcome.kind) for result in results)
    return {kind: {outcome: counted[kind, outcome] for outcome in OUTCOMES} for kind in KINDS.values()}


def table(counts: dict[str, dict[str, int]]) -> str:
    rows = [["", *OUTCOMES, "all"]]
    rows += [[kind, *map(str, row.values()), str(sum(row.values()))] for kind, row in counts.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
