"""The work, as pieces that several processes share: learning rates tried first, then the runs in their order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments._lib.processes import Once, share_out
from experiments.output_alignment import fine_tuning_babilong as questions
from experiments.output_alignment import fine_tuning_cost as costs
from experiments.output_alignment.fine_tuning_grid import LENGTHS, Run, Setting, measured_at
from experiments.output_alignment.fine_tuning_records import Answers, Records, Result, Trial
from experiments.output_alignment.fine_tuning_subject import Subject
from experiments.output_alignment.fine_tuning_text import training_files
from experiments.output_alignment.fine_tuning_training import Snapshot, trained
from experiments.rope_methods.refused import say
from lengthwise.errors import require

TRIAL_SEED = 100  # no run of the tables has it


def work(subject: Subject, out: Path) -> None:
    """Returns when all is done, here or elsewhere."""
    records = Records(out)
    runs = subject.settings.runs
    share_out([*_trials(subject, records, out, runs), _cost(subject, out)])
    rates = {trial.adjustment: chosen(trial.adjustment, list(records.trials.lines.values())) for trial in _all(records)}
    share_out([_once(subject, records, out, run, rates[run.setting.adjustment]) for run in runs])


def chosen(adjustment: str, trials: Sequence[Trial]) -> float:
    """The rate of the lowest loss; equal ones go to the lower rate."""
    own = [(trial.nll, trial.rate) for trial in trials if trial.adjustment == adjustment and trial.nll is not None]
    require(bool(own), f"no learning rate suits {adjustment}: all losses are infinite; give lower --rates")
    return min(own)[1]


def _all(records: Records) -> list[Trial]:
    records.trials.refresh()
    return list(records.trials.lines.values())


def _trials(subject: Subject, records: Records, out: Path, runs: Sequence[Run]) -> list[Once]:
    """Each adjustment where it comes first, without the misalignment loss, for half of the steps."""
    first: dict[str, Setting] = {}
    for run in runs:
        first.setdefault(run.setting.adjustment, run.setting)
    works = []
    for setting in first.values():
        for rate in subject.settings.rates:
            run = Run(setting, 0.0, TRIAL_SEED)

            def make(run: Run = run, rate: float = rate) -> None:
                say(f"{run.setting.label}, trying a learning rate of {rate:g}")
                _try(subject, records, out, run, rate)

            def done(run: Run = run, rate: float = rate) -> bool:
                return records.tried(run.setting.adjustment, rate)

            works.append(Once(out / f".claim-trial-{setting.adjustment}-{rate:g}", done, make))
    return works


def _try(subject: Subject, records: Records, out: Path, run: Run, rate: float) -> None:
    steps = max(1, subject.settings.steps // 2)

    def use(snapshots: list[Snapshot]) -> None:
        (last,) = snapshots
        subject.model.load_state_dict(last.weights)
        (means,) = subject.chooser.nll(last.method)
        nll = fmean(means) if means else None
        records.trials.append([Trial(run.setting.adjustment, run.setting.factor, rate, steps, nll)])

    folder = out / "runs" / f"trial-{run.setting.adjustment}-{rate:g}"
    trained(run, subject.recipe(steps), rate, _files(subject, out, run), folder, [steps], use)


def _cost(subject: Subject, out: Path) -> Once:
    def make() -> None:
        say("measuring what a step costs")
        subject.model.load_state_dict(subject.own_weights)
        one = subject.settings
        costs.keep(costs.measured(subject.model, subject.train_length, one.batch, one.dtype, costs.PAIRS), out)

    return Once(out / f".claim-{costs.FILE}", (out / costs.FILE).exists, make)


def _once(subject: Subject, records: Records, out: Path, run: Run, rate: float) -> Once:
    last = subject.settings.steps

    def make() -> None:
        say(run.name)
        _train(subject, records, out, run, rate)

    return Once(out / f".claim-{run.name}", lambda: records.has(run, last), make)


def _train(subject: Subject, records: Records, out: Path, run: Run, rate: float) -> None:
    begun, last = time.perf_counter(), subject.settings.steps

    def use(snapshots: list[Snapshot]) -> None:
        results = [_result(subject, run, rate, snapshot, snapshot.steps == last) for snapshot in snapshots]
        if run.answers:
            # The weights are those of the last snapshot
            records.answers.append(_answers(subject, out, run, snapshots[-1].method))
        seconds = round(time.perf_counter() - begun, 2)
        records.results.append([Result(**one, seconds=seconds) for one in results])

    files = _files(subject, out, run)
    trained(run, subject.recipe(last), rate, files, out / "runs" / run.name, measured_at(run, last), use)


def _result(subject: Subject, run: Run, rate: float, snapshot: Snapshot, is_last: bool) -> dict[str, Any]:
    subject.model.load_state_dict(snapshot.weights)
    nll = subject.reader.nll(snapshot.method)
    sce = kl = None
    # A model that has lost one length may say nothing finite of another
    if is_last and all(nll):
        length = run.setting.factor * subject.train_length
        sce, kl = subject.reader.misalignment(snapshot.method, length, subject.settings.pairs)
    one = run.setting
    return {
        "adjustment": one.adjustment,
        "factor": one.factor,
        "sampling": one.sampling,
        "compare": one.compare,
        "alpha": run.alpha,
        "seed": run.seed,
        "steps": snapshot.steps,
        "rate": rate,
        "nll": nll,
        "sce": sce,
        "kl": kl,
    }


def _answers(subject: Subject, out: Path, run: Run, method: str) -> list[Answers]:
    cells = questions.kept_cells(subject.maker, questions.keys(subject.settings.kinds, LENGTHS), out)
    found = []
    for cell in cells:
        written, likeliest = (
            ask(subject.model, subject.tokenizer, cell, method) for ask in (questions.written, questions.likeliest)
        )
        place = cell.kind, cell.factor, cell.depth
        found.append(Answers(run.name, run.alpha, run.seed, *place, written, likeliest, cell.chance))
    return found


def _files(subject: Subject, out: Path, run: Run) -> list[str]:
    return training_files(subject.books, run.seed, out / "text")
