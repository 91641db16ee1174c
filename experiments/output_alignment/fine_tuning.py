"""Fine-tuning with the misalignment loss, in small: Tables 2 to 7 and 9 to 11 of Output Alignment.

    python -m experiments.output_alignment.fine_tuning MODEL --books FILE ... --held-out FILE ... --babi FOLDER --out runs/tuned
    ... --page                                                # OUT/fine_tuning.md, .json and .svg of what there is

Every run goes through `lengthwise.train`. OUT/results.jsonl gets a line for each of the steps after which a run is measured;
its weights are not kept. The same command goes on where the last one stopped, and several at once share the work.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments._lib.command import exit_status
from experiments._lib.processes import work_for
from experiments.output_alignment import fine_tuning_page
from experiments.output_alignment.fine_tuning_records import Found
from experiments.output_alignment.fine_tuning_subject import Settings, Subject, note
from experiments.output_alignment.fine_tuning_work import work
from lengthwise.errors import require
from lengthwise.training.settings import DTYPES

SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend"}


@dataclass(frozen=True)
class Options:
    out: Path
    settings: Settings | None = None  # None writes the page only
    minutes: float = math.inf
    command: str = ""  # as typed


def run(options: Options) -> None:
    """Trains as much as there is time for, and writes the page of all that has been measured so far, by any process."""
    settings = options.settings
    if settings is not None:
        work_for(options.minutes, lambda: _work(settings, options))
    if settings is None or Found.in_(options.out).results:
        print(fine_tuning_page.write(options.out))


def _work(settings: Settings, options: Options) -> None:
    subject = Subject(settings)
    note(subject, options.out, options.command)
    work(subject, options.out)


def options_from(arguments: Sequence[str] | None = None) -> Options:
    typed = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    own = Settings.__dataclass_fields__
    parser.add_argument("model", metavar="MODEL", nargs="?", help="directory or hub name of a rotary language model")
    parser.add_argument("--out", type=Path, required=True, help="folder of the experiment")
    parser.add_argument("--books", type=Path, default=[], help="novels to train on, text files", **SEVERAL)
    parser.add_argument("--held-out", type=Path, default=[], help="novels to measure on", **SEVERAL)
    parser.add_argument("--babi", type=Path, help="folder of bAbI's files qa1_*_test.txt ... qa5_*_test.txt")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long; the next call goes on")
    parser.add_argument("--page", action="store_true", help="train nothing, write the page of what there is")
    counted = {
        "steps": "of every run",
        "seeds": "runs of every kind",
        "stages": "how many of the lists of runs, the most important first",
        "batch": "rows of a step at the model's own length",
        "streams": "of every novel held out",
        "pairs": "of readings that misalignment is measured on",
        "samples": "questions of a cell of BABILong",
    }
    for name, told in counted.items():
        parser.add_argument(f"--{name}", type=int, default=own[name].default, help=told)
    parser.add_argument("--rates", type=float, default=[], help="learning rates to choose from", **SEVERAL)
    parser.add_argument("--kinds", default=[], help="kinds of bAbI questions", **SEVERAL)
    parser.add_argument("--dtype", choices=DTYPES, default=own["dtype"].default, help="of training; measured is in float32")
    parser.add_argument("--device", help="cuda where there is one")
    found: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in vars(parser.parse_args(typed)).items()
    }
    command = f"python -m experiments.output_alignment.fine_tuning {shlex.join(typed)}"
    common = {name: found.pop(name) for name in ("out", "minutes")}
    return Options(**common, settings=None if found.pop("page") else _settings(found), command=command)


def _settings(found: dict[str, Any]) -> Settings:
    require(found["model"] is not None, "give a model, or --page")
    require(found["babi"] is not None, "give the folder of bAbI's files: --babi FOLDER")
    defaults = ("rates", "kinds")
    return Settings(**{name: value for name, value in found.items() if value or name not in defaults})


def main(arguments: Sequence[str] | None = None) -> int:
    from transformers.utils import logging

    # Two bars a run would hide what is said
    logging.disable_progress_bar()
    return exit_status(lambda: run(options_from(arguments)))


if __name__ == "__main__":
    sys.exit(main())
