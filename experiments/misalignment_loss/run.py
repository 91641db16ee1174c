"""Fine-tunes a rotary model on novels with and without the misalignment loss, and measures it on other novels at 1 to 8 times
its training length (Tables 2 to 7 and 9 to 11 of Output Alignment, in small).

    python -m experiments.misalignment_loss.run MODEL --books FILE ... --held-out FILE ... --babi FOLDER --out runs/tuned

First each adjustment gets its learning rate (16 short runs), then come 132 runs for three seeds, the most important first.
Every run goes through `lengthwise.train`; its weights are not kept. OUT/results.jsonl gets a line for each of the steps after
which a run is measured: the same command goes on where the last one stopped, and several at once share the work.

A run of 50 steps is the beginning of one of 200. Runs of one seed see the same rows in the same order with the same e.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from experiments._lib.command import main, option
from experiments._lib.fine_tuning import Reader, Snapshot, trained
from experiments._lib.minutes import say, work_for
from experiments._lib.results import kept_settings, read, unfinished, write_json
from experiments._lib.tuning_text import digest, held_back, read_books, streams, training_files
from experiments.misalignment_loss import data, page
from experiments.misalignment_loss.page import LENGTHS, SAMPLING, cheaper, marks
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.evaluation.sweep.run_config import made_with, parameters_digest, tokenizer_digest
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.models.patches import in_mode
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.tasks.sample import sentences
from lengthwise.training.output_alignment.fused import KL, SCE
from lengthwise.training.output_alignment.regulariser import Regulariser, regularised_loss

FORMAT = "lengthwise.experiments.output_alignment.fine_tuning/1"
ALPHAS = (0.0, 0.1, 0.3, 0.5, 1.0)  # Table 4
KL_ALPHAS = (0.0, 0.1, 1.0, 10.0)  # of the symmetric KL, a far smaller number than L_SCE
RANGES = tuple(page.PAPER["5"])  # of e
TRIAL_SEED = 100  # no run of the tables has it


@dataclass(frozen=True)
class Setting:
    """Runs that differ in alpha and seed only."""

    adjustment: str
    factor: int  # the length trained at, in the model's own training lengths
    sampling: str = SAMPLING
    compare: str = SCE  # what readings are compared by; the paper has L_SCE

    @property
    def label(self) -> str:
        drawn = "" if self.sampling == SAMPLING else f", e from {self.sampling}"
        return f"{self.adjustment} at {self.factor} x{drawn}" + ("" if self.compare == SCE else ", by KL")

    @property
    def alphas(self) -> tuple[float, ...]:
        return ALPHAS if self.compare == SCE else KL_ALPHAS

    @property
    def without(self) -> Setting:
        """The setting whose runs with alpha 0 serve this one: they compare nothing."""
        return replace(self, compare=SCE)


@dataclass(frozen=True)
class Run:
    setting: Setting
    alpha: float
    seed: int

    @property
    def name(self) -> str:
        """The run's name, which is its folder's as well."""
        setting = self.setting
        compared = "" if setting.compare == SCE else f"-{setting.compare}"
        trained = f"{setting.adjustment}-{setting.factor}x-{setting.sampling.replace('/', '_')}{compared}"
        return f"{trained}-alpha{self.alpha:g}-seed{self.seed}"

    @property
    def answers(self) -> bool:
        """Whether it is asked BABILong's questions, as those of Tables 6 and 7 are."""
        return self.setting == Setting("clex", 1) and self.alpha in (0.0, 0.1)


def stages(seeds: int) -> list[list[Run]]:
    """One list a stage, the most important first; of each, first what the answer hangs on."""
    wanted = [
        [(Setting(name, 1), alpha) for alpha in ALPHAS for name in ("clex", "eabf")],  # Tables 2, 4, 6, 7 and 9
        [(Setting(name, 2), alpha) for alpha in ALPHAS[:-1] for name in ("longqlora", "eabf", "clex")],  # 3 and 10
        [(Setting("none", 2), alpha) for alpha in ALPHAS[:3]],  # 11
        [(Setting("longqlora", 2, sampling), 0.1) for sampling in RANGES[1:]],  # 5
        [(Setting(name, 1), alpha) for alpha in ALPHAS for name in ("longqlora", "none")],  # 4 with others
        [(Setting(name, 1, compare=KL), alpha) for alpha in KL_ALPHAS[1:] for name in ("clex", "eabf")],  # not in the paper
    ]
    return [[Run(setting, alpha, seed) for setting, alpha in stage for seed in range(seeds)] for stage in wanted]


def measured_at(run: Run, steps: int) -> tuple[int, ...]:
    """The steps after which a run is measured; before the first step all alphas are the same."""
    own = marks(steps)
    return (0, *own) if run.alpha == 0 else tuple(sorted({*own, *map(cheaper, own)}))


@dataclass(frozen=True, kw_only=True)
class Options:
    """One call."""

    model: str = option(help="directory or hub name of a rotary language model", positional=True)
    out: Path = option(help="folder of the experiment")
    books: tuple[Path, ...] = option(help="novels to train on, text files")
    held_out: tuple[Path, ...] = option(help="novels to measure on")
    babi: Path = option(help="folder of bAbI's files qa1_*_test.txt ... qa5_*_test.txt")
    steps: int = option(200, "of every run")
    seeds: int = option(3, "runs of every kind")
    stages: int = option(6, "how many of the lists of runs, the most important first")
    batch: int = option(16, "rows of a step at the model's own length; fewer at longer ones, for as many tokens")
    rates: tuple[float, ...] = option((1e-4, 3e-4, 1e-3, 3e-3), "learning rates to choose from")
    streams: int = option(8, "of every novel held out")
    pairs: int = option(24, "of readings that misalignment is measured on")
    samples: int = option(30, "questions of a cell of BABILong")
    kinds: tuple[str, ...] = option(data.KINDS, "kinds of bAbI questions")
    dtype: str = option("bfloat16", "of training; measured is in float32", choices=("float32", "bfloat16"))
    device: str | None = option(None, "cuda where there is one")
    minutes: float = option(math.inf, "stop after so long; the next call goes on")
    command: str = ""  # as typed

    @property
    def runs(self) -> list[Run]:
        return [run for stage in stages(self.seeds)[: self.stages] for run in stage]


@dataclass(frozen=True)
class Trial(Declared):
    """A learning rate, tried with alpha 0 on text that is then held back from the tables."""

    adjustment: str
    factor: int  # length trained at, in the model's own
    rate: float
    steps: int
    nll: float | None  # mean at twice the model's own length, nats; None where it is not finite

    @property
    def key(self) -> tuple[str, float]:
        return self.adjustment, self.rate


@dataclass(frozen=True)
class Result(Declared):
    """A run after so many steps."""

    adjustment: str
    factor: int
    sampling: str
    alpha: float
    seed: int
    steps: int
    rate: float
    nll: list[list[float]]  # [lengths][streams], mean of each stream in nats; a length is empty where one is not finite
    sce: float | None  # L_misalign at the length trained at, of the last step only
    kl: float | None  # its symmetric KL
    seconds: float  # of the whole run
    compare: str = SCE  # lines that do not say are of before there was another

    @property
    def run(self) -> Run:
        return Run(Setting(self.adjustment, self.factor, self.sampling, self.compare), self.alpha, self.seed)

    @property
    def key(self) -> tuple[str, int]:
        return self.run.name, self.steps


@dataclass(frozen=True)
class Answers(Declared):
    """One cell of BABILong after the last step."""

    run: str
    alpha: float
    seed: int
    kind: str  # qa1 ... qa5
    factor: int  # length of the prompt and its answer, in the model's own training lengths
    depth: float | None  # of the facts; None where they are spread
    generated: list[int]  # 1 where the answer written is right
    likeliest: list[int]  # 1 where of the answers to choose from the right one is the likeliest
    chance: float  # of a likeliest one that is right by chance, in the mean

    @property
    def key(self) -> tuple[str, str, int, float | None]:
        return self.run, self.kind, self.factor, self.depth


class Experiment:
    """The model as it is measured, the novels, and the records in OUT."""

    def __init__(self, options: Options) -> None:
        self.options, self.out = options, options.out
        self.model, self.tokenizer = load(options.model, "float32", options.device)
        self.train_length = anatomy_of(self.model).train_length
        self.books, self.held_out = read_books(options.books), read_books(options.held_out)
        self.own_weights = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        numbers = ("rates", "kinds", "steps", "batch", "streams", "pairs", "samples", "dtype")
        made = {"model": parameters_digest(self.model), "tokenizer": tokenizer_digest(self.tokenizer)}
        made |= {
            "train_length": self.train_length,
            "books": digest(self.books),
            "held_out": digest(self.held_out),
        }
        made |= {name: getattr(options, name) for name in numbers}
        novels = {name: [path.stem for path in getattr(options, name)] for name in ("books", "held_out")}
        facts = {"name": Path(options.model).name, **novels, "made_with": made_with(next(self.model.parameters()).device.type)}
        self.out.mkdir(parents=True, exist_ok=True)
        kept_settings(self.out, made, command=f"python -m experiments.misalignment_loss.run {options.command}", **facts)
        self.trials = AppendOnly(self.out / "trials.jsonl", Trial)
        self.results = AppendOnly(self.out / "results.jsonl", Result)
        self.answers = AppendOnly(self.out / "answers.jsonl", Answers)

    @cached_property
    def reader(self) -> Reader:
        lengths = [factor * self.train_length for factor in LENGTHS]
        rows = streams(self.tokenizer, self.held_out, self.options.streams, max(lengths) + 1)
        return Reader(self.model, rows, lengths)

    @cached_property
    def chooser(self) -> Reader:
        """Reads what is held back of the novels trained on, at twice the model's own length, to choose learning rates."""
        books, length = [held_back(book) for book in self.books], 2 * self.train_length
        return Reader(self.model, streams(self.tokenizer, books, max(1, self.options.streams // 2), length + 1), [length])

    def work(self) -> None:
        """Learning rates are tried first, each adjustment's where it comes first, without the loss, for half of the steps."""
        runs, trials = {(run.name, self.options.steps): run for run in self.options.runs}, self.trials
        first = {run.setting.adjustment: run.setting for run in reversed(runs.values())}
        tried = {(name, rate): setting for name, setting in first.items() for rate in self.options.rates}
        for ((name, rate),) in unfinished(trials, [[key] for key in tried]):
            self._try(tried[name, rate], rate)
        waiting = "another process still tries learning rates; give the same command again when it is through with them"
        require(all(key in trials.lines for key in tried), waiting)
        if not (file := self.out / "cost.json").exists():
            say("measuring what a step costs")
            self.model.load_state_dict(self.own_weights)
            write_json(file, step_cost(self.model, self.train_length, self.options.batch, self.options.dtype))
        for (key,) in unfinished(self.results, [[key] for key in runs]):
            self._train(runs[key], chosen(runs[key].setting.adjustment, list(trials.lines.values())))

    def _try(self, setting: Setting, rate: float) -> None:
        say(f"{setting.label}, trying a learning rate of {rate:g}")
        steps = max(1, self.options.steps // 2)
        run, name = Run(setting, 0.0, TRIAL_SEED), f"trial-{setting.adjustment}-{rate:g}"
        with self._trained(run, name, steps, [steps], rate) as (snapshot,):
            self.model.load_state_dict(snapshot.weights)
            (means,) = self.chooser.nll(snapshot.method)
        self.trials.append([Trial(setting.adjustment, setting.factor, rate, steps, fmean(means) if means else None)])

    def _train(self, run: Run, rate: float) -> None:
        """A run's lines are written together, and answers before them."""
        say(run.name)
        begun, last = time.perf_counter(), self.options.steps
        with self._trained(run, run.name, last, measured_at(run, last), rate) as snapshots:
            numbers = [self._measured(run, snapshot) for snapshot in snapshots]
            if run.answers:
                # The weights are those of the last snapshot
                self.answers.append(self._asked(run, snapshots[-1].method))
        seconds = round(time.perf_counter() - begun, 2)
        about = {**asdict(run.setting), "alpha": run.alpha, "seed": run.seed, "rate": rate, "seconds": seconds}
        self.results.append([Result(**about, **measured) for measured in numbers])

    def _trained(
        self, run: Run, name: str, steps: int, at: Collection[int], rate: float
    ) -> AbstractContextManager[list[Snapshot]]:
        files = training_files(self.books, run.seed, self.out / "text")
        how = how_trained(run, self.options, self.train_length, steps, rate)
        return trained(self.options.model, files, self.out / "runs" / name, at, **how)

    def _measured(self, run: Run, snapshot: Snapshot) -> dict[str, Any]:
        self.model.load_state_dict(snapshot.weights)
        nll = self.reader.nll(snapshot.method)
        sce = kl = None
        # A model that has lost one length may say nothing finite of another
        if snapshot.steps == self.options.steps and all(nll):
            length = run.setting.factor * self.train_length
            sce, kl = self.reader.misalignment(snapshot.method, length, self.options.pairs)
        return {"steps": snapshot.steps, "nll": nll, "sce": sce, "kl": kl}

    @cached_property
    def cells(self) -> list[data.Cell]:
        filler = [sentence for book in self.held_out for sentence in sentences("\n\n".join(book))]
        asked = self.options.babi, filler, self.options.samples, self.options.kinds, LENGTHS
        return data.cells(self.tokenizer, self.train_length, *asked)

    def _asked(self, run: Run, method: str) -> list[Answers]:
        lines = []
        for cell in self.cells:
            written, likeliest = (ask(self.model, self.tokenizer, cell, method) for ask in (data.written, data.likeliest))
            place = cell.kind, cell.factor, cell.depth
            lines.append(Answers(run.name, run.alpha, run.seed, *place, written, likeliest, cell.chance))
        return lines


def chosen(adjustment: str, trials: Sequence[Trial]) -> float:
    """The rate of the lowest loss; equal ones go to the lower rate."""
    own = [(trial.nll, trial.rate) for trial in trials if trial.adjustment == adjustment and trial.nll is not None]
    require(bool(own), f"no learning rate suits {adjustment}: all losses are infinite; give lower --rates")
    return min(own)[1]


def how_trained(run: Run, options: Options, train_length: int, steps: int, rate: float) -> dict[str, Any]:
    """Settings of `lengthwise.train` for one run."""
    setting = run.setting
    how = {"adjustment": setting.adjustment, "alpha": run.alpha, "sampling": setting.sampling, "compare": setting.compare}
    how |= {"train_length": setting.factor * train_length, "batch": max(1, options.batch // setting.factor), "seed": run.seed}
    how |= {"steps": steps, "learning_rate": rate, "warmup": steps // 10, "dtype": options.dtype, "device": options.device}
    # Unquantised, to be the same on machines with and without bitsandbytes; a run takes less time than going on would save
    return {**how, "quantise": False if setting.adjustment.startswith("longqlora") else None, "save_every": steps + 1}


def step_cost(model: Any, train_length: int, batch: int, dtype: str, pairs: int = 30, warm: int = 3) -> dict[str, Any]:
    """How many times as long a step with the misalignment loss takes: the median and quartiles over neighbouring steps.

    Both read the same rows twice; steps take turns, so that whatever else runs disturbs both alike. No weight is moved.
    """
    device, extra = next(model.parameters()).device, train_length // 4
    rows, on_gpu = torch.randint(model.config.vocab_size, (batch, train_length + extra), device=device), device.type == "cuda"

    def now() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() if on_gpu else time.process_time()

    def seconds(alpha: float) -> float:
        begun = now()
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = regularised_loss(model, {"input_ids": rows}, Regulariser(train_length, alpha), extra)
        loss.backward()
        return now() - begun

    with in_mode(model, training=True):
        times = [(seconds(0.0), seconds(0.1)) for _ in range(warm + pairs)][warm:]
    model.zero_grad(set_to_none=True)
    low, ratio, high = (float(end) for end in np.quantile([slow / fast for fast, slow in times], [0.25, 0.5, 0.75]))
    name = torch.cuda.get_device_name(device) if on_gpu else device.type
    return {"ratio": ratio, "low": low, "high": high, "pairs": pairs, "tokens": 2 * batch * train_length, "device": name}


def run(options: Options) -> None:
    """Trains as much as there is time for; writes the results and the page of all that is measured."""
    work_for(options.minutes, lambda: Experiment(options).work())
    results = read_lines(options.out / "results.jsonl", Result)
    if results:
        summarise(options, results)
        page.write_pages(options.out, options.out)


def summarise(options: Options, results: Sequence[Result]) -> None:
    """Writes OUT/misalignment_loss.json and tables.json: what the page is made of."""
    noted = read(options.out / "settings.json")
    noted = {"made": noted.pop("settings"), **noted, "seeds": options.seeds, "stages": options.stages}
    outcome = page.Outcome([(page.Point(one.run.setting, one.alpha, one.steps), asdict(one)) for one in results])
    cost = options.out / "cost.json"
    document = {
        "format": FORMAT,
        "settings": {**noted, "runs": len(outcome.last(options.steps)), "seconds": fmean(outcome.last(options.steps))},
        "cost": read(cost) if cost.exists() else None,
        "trials": [asdict(trial) for trial in read_lines(options.out / "trials.jsonl", Trial)],
        "points": page.points(outcome, options.steps),
        "answers": [asdict(answers) for answers in read_lines(options.out / "answers.jsonl", Answers)],
    }
    write_json(options.out / page.RESULTS, document)
    write_json(options.out / page.TABLES, page.further(outcome, options.steps))


if __name__ == "__main__":
    from transformers.utils import logging

    # Two bars a run would hide what is said
    logging.disable_progress_bar()
    sys.exit(main(Options, run, __doc__))
