"""Retrieval by length under the paper's methods: Tables 4 and 9, for any T5.

    python -m experiments.retrieval.run embedded --data data --out runs/embedded --minutes 9

The same command again goes on where the last one stopped, and several of them at once share the work.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib import alignments, measure, results
from experiments._lib.command import main, option
from experiments._lib.gains import gains, pmax_over
from experiments._lib.measure import LENGTHS, Answers, Place, Subject
from experiments._lib.minutes import work_for
from experiments._lib.paired import paired
from experiments._lib.retrieval_tasks import RUNS, TASKS, asked
from experiments.retrieval.page import FORMAT, write_pages
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS
from lengthwise.tasks.material.case_files import cases


@dataclass(frozen=True, kw_only=True)
class Options(measure.Options):
    lengths: tuple[int, ...] = option(LENGTHS, "tokens", flag="--length")
    tasks: tuple[str, ...] = option((), f"{', '.join(TASKS)}; all there are if none", flag="--task")
    data: Path | None = option(None, "folder with gutenberg/*.txt, for the passkey in held-out novels")
    longeval: tuple[Path, ...] = option((), "official files, scored as they are")
    compared: tuple[int, ...] = option((4096, 15000), "lengths at which scopes are compared", flag="--compare")

    @property
    def read_at(self) -> tuple[int, ...]:
        return self.lengths


def retrieval(options: Options) -> Answers:
    """Measures as much as there is time for, and writes the page of what has been measured so far."""
    tasks, official = asked(options.tasks, options.data), {path: _task_of(path) for path in options.longeval}
    subject = Subject.of(options)
    methods = options.methods or alignments.NAMES
    places = [Place(task, length, methods) for length in sorted(options.lengths) for task in tasks]
    subject.measure(places, sharpness=True)
    if official:
        work_for(options.minutes, partial(_answer_official, subject, methods, official))
    answers = Answers.read(options.out, subject.train_length, RUNS)
    if answers.records:
        document = subject.document("retrieval", places, answers, RUNS)
        more = {"scopes": scopes(answers, options.compared), "gains": gains(answers), "pmax_over": pmax_over(answers)}
        results.write(options.out / "retrieval.json", FORMAT, document["command"], {**document, **more})
        write_pages(options.out, options.out)
    return answers


def _answer_official(subject: Subject, methods: Sequence[str], official: dict[Path, str]) -> None:
    for stage in alignments.stages(methods):
        known = subject.contenders(stage)
        for path, task in official.items():
            subject.evaluate(known, "run", [task], data=path)


def scopes(answers: Answers, compared: Sequence[int]) -> list[dict[str, Any]]:
    """One temperature for the model, a layer or a head: task by task at each length, then all tasks, then all lengths."""
    lengths = [n for n in compared if n in answers.lengths] or answers.lengths[-1:]
    spans = [*((n,) for n in lengths), *([tuple(lengths)] if len(lengths) > 1 else [])]
    rows: list[dict[str, Any]] = []
    for statistic in STATISTICS:
        for span in spans:
            for tasks in [*([[task] for task in answers.tasks] if len(span) == 1 else []), answers.tasks]:
                row = _scopes(answers, statistic, tasks, span)
                # Where there is one task only, it is all tasks
                if row is not None and row not in rows:
                    rows.append(row)
    return rows


def _scopes(answers: Answers, statistic: str, tasks: Sequence[str], lengths: tuple[int, ...]) -> dict[str, Any] | None:
    scores = {scope: answers.scores(f"{statistic}-{scope}", tasks, lengths) for scope in SCOPES}
    scores = {scope: row for scope, row in scores.items() if row}
    # The same samples for all of them, also while some are still being answered
    common = set.intersection(*map(set, scores.values())) if len(scores) > 1 else set()
    if not common:
        return None
    # One number or line is asked for at every length and in both wordings, so that a sample's answers belong together
    together: dict[int, list[tuple[str, int, int]]] = {}
    for key in common:
        together.setdefault(key[2], []).append(key)
    places = max(map(len, together.values()))
    whole = {index: keys for index, keys in together.items() if len(keys) == places}
    means = {scope: {index: fmean(row[key] for key in keys) for index, keys in whole.items()} for scope, row in scores.items()}
    pairs = [(a, b) for a, b in (("layer", "model"), ("head", "model"), ("head", "layer")) if a in means and b in means]
    against = {f"{a} - {b}": paired(means[a], means[b]) for a, b in pairs}
    return {
        "statistic": statistic,
        "task": tasks[0] if len(tasks) == 1 else "all tasks",
        "lengths": [n for n in lengths if any(n == length for _, length, _ in common)],
        "means": {scope: fmean(row.values()) for scope, row in means.items()},
        "against": {key: asdict(pair) for key, pair in against.items() if pair is not None},
    }


def _task_of(path: Path) -> str:
    """A file of LongEval says by its keys what it asks for."""
    return "topic" if "topics" in next(cases(path)).fields else "line"


if __name__ == "__main__":
    sys.exit(main(Options, retrieval, __doc__))
