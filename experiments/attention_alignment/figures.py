"""Figures 1 to 9 of the paper, for any T5: `lengthwise analyse` on prose and on the text of every task.

    python -m experiments.attention_alignment.figures MODEL --out runs/model

The paper draws its temperature curves a task at a time; here the text of a task is one long prompt of it. OUT then holds
analysis (prose: Figures 1, 2 and 3) and analysis-TASK (Figures 4 to 9), each with tables and figures. Several of one command
share the work, a text each, and new lengths are added to what is there, up to 15,000 tokens: a longer prompt is another text.
summary.py writes the page, and there are no samples to make: with --page or --prepare nothing is done here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lengthwise as lw
from experiments._lib.command import exit_status
from experiments._lib.processes import Once, share_out, work_for
from experiments.attention_alignment.arguments import LENGTHS, SEVERAL, Sharing, given, parser_of, sharing
from experiments.attention_alignment.subject import Subject
from lengthwise.analysis.records import ANALYSIS, read_analysis
from lengthwise.errors import require
from lengthwise.tasks import TASKS

PROSE, FOLDER = "prose", "analysis"
# The most important first
TEXTS = ("topic", "line", "passkey", "multi_document_qa", "code_completion")
ROOM = 1.1  # times the longest length: a stretch is cut out of it
LAST = "analysis.md"  # what `analyse` writes when all is done


@dataclass(frozen=True)
class Options(Sharing):
    lengths: tuple[int, ...] = LENGTHS
    texts: tuple[str, ...] = (PROSE, *TEXTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.texts:
            require(name in (PROSE, *TEXTS), f"--text is one of {', '.join((PROSE, *TEXTS))}, not {name!r}")


def folder_of(out: Path, text: str) -> Path:
    return out / (FOLDER if text == PROSE else f"{FOLDER}-{text}")


def figures(options: Options) -> None:
    if options.page or options.prepare:
        return
    subject = Subject.of(options)
    works = []
    for name in options.texts:
        folder = folder_of(options.out, name)
        make = partial(_analyse, options, subject, name, folder)
        works.append(Once(options.out / f".claim-{folder.name}", partial(_drawn, folder, options.lengths), make))
    options.out.mkdir(parents=True, exist_ok=True)
    work_for(options.minutes, lambda: share_out(works))


def _drawn(folder: Path, lengths: Sequence[int]) -> bool:
    """Whether all these lengths have been analysed, and the page written after the last of them."""
    page, document = folder / LAST, folder / ANALYSIS
    if not (page.exists() and document.exists()) or page.stat().st_mtime_ns < document.stat().st_mtime_ns:
        return False
    return {*lengths} <= {one.length for one in read_analysis(folder).lengths}


def _analyse(options: Options, subject: Subject, name: str, folder: Path) -> None:
    print(f"analysing {name}", file=sys.stderr, flush=True)
    how: dict[str, Any] = {"train_length": options.train_length, "seed": options.seed, "name": options.model}
    if name != PROSE:
        # The same text whatever the lengths, so that shorter ones can be added
        size = int(ROOM * max(*LENGTHS, *options.lengths))
        (sample,) = TASKS[name].samples(subject.tokenizer, size, 1, options.seed)
        how["text"] = sample.prompt
    lw.analyse(subject.model, subject.tokenizer, options.lengths, folder, show_progress=False, **how)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sharing(parser_of(__doc__))
    parser.add_argument("--length", dest="lengths", type=int, default=None, help="tokens", **SEVERAL)
    parser.add_argument("--text", dest="texts", default=None, help=f"{PROSE}, {', '.join(TEXTS)}; all if none", **SEVERAL)

    def call() -> Options:
        return Options(**{key: value for key, value in given(parser, arguments).items() if value is not None})

    return exit_status(lambda: figures(call()))


if __name__ == "__main__":
    sys.exit(main())
