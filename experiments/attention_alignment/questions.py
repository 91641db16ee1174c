"""Multi-document question answering by the place of the gold document: the paper's Tables 5, 10 and 14, for any T5.

    python -m experiments.attention_alignment.questions embedded --out runs/embedded
    python -m experiments.attention_alignment.questions MODEL --questions held_out.jsonl --out runs/model

The same questions among the same documents at every place; made-up ones, or with --questions those of a file in the layout of
Lost in the Middle. Several of one command share the work, and the same command goes on where the last one stopped. OUT then
holds questions.json, questions.md and figures/questions.svg and .png; with a file its name stands behind `questions`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib.command import exit_status
from experiments._lib.processes import work_for
from experiments.attention_alignment.arguments import SEVERAL, Sharing, given, parser_of, sharing
from experiments.attention_alignment.by_place import NAME, TASK, read_answers, runs_of, task_of
from experiments.attention_alignment.contenders import NAMES
from experiments.attention_alignment.facts import facts_of
from experiments.attention_alignment.material import Asked
from experiments.attention_alignment.paper_questions import POSITIONS
from experiments.attention_alignment.questions_outcome import write_outcome
from experiments.attention_alignment.results import Results, made_with
from experiments.attention_alignment.subject import Place, Subject
from lengthwise.errors import require
from lengthwise.tasks import Sample
from lengthwise.tasks.material.documents import Question, read_questions
from lengthwise.tasks.multi_document_qa import at_position

PROBES = 8  # samples that tell about how many tokens so many documents have
ROUND = 100  # tokens


@dataclass(frozen=True)
class Options(Sharing):
    questions: Path | None = None
    documents: tuple[int, ...] = tuple(POSITIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ", ".join(map(str, POSITIONS))
        for number in self.documents:
            require(number in POSITIONS, f"--documents are {known}, as the paper's, not {number}")

    @property
    def name(self) -> str:
        """Of the experiment's files and run directories."""
        return NAME if self.questions is None else f"{NAME}-{self.questions.name.split('.')[0]}"


def questions(options: Options) -> Results:
    """Measures as much as there is time for, and writes the page of what has been measured so far, by any process."""
    asked = None if options.questions is None else read_questions(options.questions)
    subject = Subject.of(options)
    places = _places(options, subject.tokenizer, asked)
    if not options.page:
        work_for(options.minutes, partial(subject.measure, places))
    results = read_answers(options.out, options.name, subject.train_length)
    if results.records:
        facts = facts_of("questions", options, subject.model, options.methods or NAMES, {NAME: _told(options, asked)})
        facts["made_with"] = made_with(options.out, runs_of(options.name))
        facts["missing"] = subject.missing(places, results)
        print(write_outcome(options.out, options.name, results, facts))
    return results


def _places(options: Options, tokenizer: Any, asked: Sequence[Question] | None) -> list[Place]:
    """By position: all numbers of documents at their first, then the next, so that a curve is soon whole."""
    found = []
    for number in options.documents:
        length = _about(at_position(tokenizer, number, 0, PROBES, options.seed, asked))
        for position in POSITIONS[number]:
            task = task_of(number, position)
            material = f"{_told(options, asked)}; {number} documents, the gold one at {position}"
            run = f"{options.name}/{task}"
            one = Asked(task, TASK, run, _make(number, position, asked), material)
            found.append(Place(one, length, options.methods or NAMES))
    return found


def _make(documents: int, position: int, asked: Sequence[Question] | None) -> Callable[..., list[Sample]]:
    def make(tokenizer: Any, length: int, n: int, seed: int) -> list[Sample]:
        """The number of documents decides on the tokens; `length` only names them."""
        return at_position(tokenizer, documents, position, n, seed, asked)

    return make


def _about(samples: Sequence[Sample]) -> int:
    return ROUND * max(1, round(fmean(sample.tokens for sample in samples) / ROUND))


def _told(options: Options, asked: Sequence[Question] | None) -> str:
    if options.questions is None or asked is None:
        return "made-up questions"
    digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:8]
    return f"{len(asked)} questions of {options.questions.name} ({digest})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sharing(parser_of(__doc__))
    parser.add_argument("--questions", type=Path, help="file of held-out questions; made-up ones if not given")
    parser.add_argument("--documents", type=int, default=None, help="numbers of them; 10, 20 and 30 if none", **SEVERAL)

    def call() -> Options:
        found = given(parser, arguments)
        return Options(**{**found, "documents": found["documents"] or tuple(POSITIONS)})

    return exit_status(lambda: questions(call()))


if __name__ == "__main__":
    sys.exit(main())
