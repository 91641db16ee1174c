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
from experiments.retrieval.page import FORMAT, OFFICIAL, write_pages
from lengthwise.methods.temperature.aligned import SCOPES, STATISTICS
from lengthwise.records import CellKey
from lengthwise.tasks.material.case_files import cases

# Task, official file or none, tokens
Located = tuple[str, str, int]


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
    """One temperature for the model, a layer or a head: task by task at each length, then all tasks, then all lengths; then
    official files, those of a task, and all of them."""
    lengths = [n for n in compared if n in answers.lengths] or answers.lengths[-1:]
    spans = [*((n,) for n in lengths), *([tuple(lengths)] if len(lengths) > 1 else [])]
    rows: list[dict[str, Any]] = []
    for statistic in STATISTICS:
        wanted = [
            ("all tasks" if len(tasks) > 1 else tasks[0], [(task, "", n) for n in span for task in tasks])
            for span in spans
            for tasks in [*([[task] for task in answers.tasks] if len(span) == 1 else []), answers.tasks]
        ]
        for name, places in [*wanted, *_official_places(answers)]:
            row = _scopes(answers, statistic, name, places)
            # Where there is one task only, it is all tasks
            if row is not None and row not in rows:
                rows.append(row)
    return rows


def _official_places(answers: Answers) -> list[tuple[str, list[Located]]]:
    """Official files by the names of their rows; where there is one file only, it is all of its task."""
    places = sorted({(cell.task, cell.data, cell.length) for cell in answers.cells if cell.data}, key=lambda at: (at[0], at[2]))
    named = [(Path(at[1]).stem, [at]) for at in places]
    for task in dict.fromkeys(task for task, _, _ in places):
        own = [at for at in places if at[0] == task]
        named += [(f"{OFFICIAL} {task}s", own)] if len(own) > 1 else []
    return [*named, (f"{OFFICIAL} cases", places)] if len({task for task, _, _ in places}) > 1 else named


def _scopes(answers: Answers, statistic: str, name: str, places: Sequence[Located]) -> dict[str, Any] | None:
    scores: dict[str, dict[tuple[Located, int], float]] = {}
    for scope in SCOPES:
        groups = {place: answers.groups.get(CellKey(f"{statistic}-{scope}", *place), {}) for place in places}
        scores[scope] = {(place, index): record.score for place, group in groups.items() for index, record in group.items()}
    scores = {scope: row for scope, row in scores.items() if row}
    # The same samples for all of them, also while some are still being answered
    common = set.intersection(*map(set, scores.values())) if len(scores) > 1 else set()
    if not common:
        return None
    # One number or line is asked for at every length and in both wordings, so that a sample's answers belong together; every
    # official case is another
    together: dict[tuple[str, int], list[tuple[Located, int]]] = {}
    for key in common:
        (_, data, _), index = key
        together.setdefault((data, index), []).append(key)
    most = max(map(len, together.values()))
    whole = {sample: keys for sample, keys in together.items() if len(keys) == most}
    means = {scope: {at: fmean(row[key] for key in keys) for at, keys in whole.items()} for scope, row in scores.items()}
    pairs = [(a, b) for a, b in (("layer", "model"), ("head", "model"), ("head", "layer")) if a in means and b in means]
    against = {f"{a} - {b}": paired(means[a], means[b]) for a, b in pairs}
    reached = {length for (_, _, length), _ in common}
    return {
        "statistic": statistic,
        "task": name,
        "lengths": sorted(reached),
        "means": {scope: fmean(row.values()) for scope, row in means.items()},
        "against": {key: asdict(pair) for key, pair in against.items() if pair is not None},
    }


def _task_of(path: Path) -> str:
    """A file of LongEval says by its keys what it asks for."""
    return "topic" if "topics" in next(cases(path)).fields else "line"


if __name__ == "__main__":
    sys.exit(main(Options, retrieval, __doc__))
