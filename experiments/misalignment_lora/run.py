"""Fine-tunes a decoder by LoRA with and without the misalignment loss, on novels or on code (Output Alignment, Tables 2 to 5).

    python -m experiments.misalignment_lora.run MODEL --books FILE ... --held-out FILE ... --out OUT       # novels
    python -m experiments.misalignment_lora.run MODEL --out OUT                            # Python's standard library

MODEL is written once to OUT/model with --method in its config, so that every run and reading is of a stock model. First a
learning rate is chosen without the loss, then come the runs, the most important first: alpha 0 and 0.1 of every seed, the
symmetric KL in the place of L_misalign, alpha 0.3 and 1, readings up to L apart (Table 5). A run is measured after its last
step: perplexity of text it was not trained on at 1, 2 and 4 times L, misalignment, and how likely the answers of RULER's
needles are. The same command goes on where the last one stopped, and several at once share the work; OUT/NAME.json holds all.
"""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import lengthwise as lw
from experiments._lib.command import main, option
from experiments._lib.fine_tuning import Reader, trained
from experiments._lib.minutes import say, work_for
from experiments._lib.results import kept_settings, unfinished, write_json
from experiments._lib.tuning_text import code_books, digest, held_back, read_books, streams, training_files
from experiments.misalignment_lora import page
from experiments.misalignment_lora.page import LENGTHS
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.evaluation.sweep.run_config import made_with, parameters_digest
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.tasks import TASKS, Sample

# Alpha, what readings are compared by and, where it is not ours, how far apart they may start
KINDS = ((0.0, "sce"), (0.1, "sce"), (1.0, "kl"), (0.3, "sce"), (1.0, "sce"), (0.1, "sce 1..L"))
RULER = ("ruler_niah_single_1", "ruler_niah_single_2", "ruler_niah_multikey_1", "ruler_qa_1")
RULER_LENGTHS = LENGTHS[:2]
TRIAL_SEED = 100  # no run that is measured has it
WAIT = 2.0  # seconds between looks at what another process is doing


@dataclass(frozen=True)
class Run:
    factor: int  # the length trained at, in training lengths of the model; 0 for the model as it was
    alpha: float
    compare: str
    seed: int

    @property
    def key(self) -> tuple[int, float, str, int]:
        return self.factor, self.alpha, self.compare, self.seed

    @property
    def name(self) -> str:
        return f"{self.factor}x-{self.compare.replace(' ', '-')}-alpha{self.alpha:g}-seed{self.seed}"


BEFORE = Run(0, 0.0, "sce", 0)


@dataclass(frozen=True, kw_only=True)
class Options:
    """One call."""

    model: str = option(help="directory, hub name or GGUF file of a rotary language model", positional=True)
    out: Path = option(help="folder of this model and text")
    books: tuple[Path, ...] = option((), "novels to train on; the standard library if none")
    held_out: tuple[Path, ...] = option((), "novels to measure on")
    method: str = option("yarn:factor=4", "what the model is rewritten with, so that 4 L are in range")
    train_length: int | None = option(None, "L, the model's own if not given")
    factors: tuple[int, ...] = option((1,), "lengths trained at, in L", flag="--factor")
    kinds: int = option(len(KINDS), "how many of alpha 0, alpha 0.1, KL, alpha 0.3, alpha 1 and readings up to L apart")
    seeds: int = option(3, "runs of every kind")
    steps: int = option(50, "of a run at L, of two readings each; fewer at longer ones, for as many tokens")
    rank: int = option(16, "of LoRA")
    rates: tuple[float, ...] = option((3e-4, 1e-3), "learning rates to choose from", flag="--rate")
    streams: int = option(2, "of every book held out")
    pairs: int = option(4, "of readings that misalignment is measured on")
    samples: int = option(6, "of every task of RULER and length")
    dtype: str = option("bfloat16", "of training and measuring", choices=("float32", "bfloat16"))
    device: str | None = option(None, "cuda where there is one")
    minutes: float = option(math.inf, "stop after so long; the next call goes on")
    command: str = ""  # as typed

    @property
    def corpus(self) -> str:
        return "novels" if self.books else "code"

    @property
    def runs(self) -> list[Run]:
        kinds = [kind for factor in self.factors for kind in ((factor, *one) for one in KINDS[: self.kinds])]
        return [Run(*kind, seed) for kind in kinds for seed in range(self.seeds)]


@dataclass(frozen=True)
class Trial(Declared):
    """A learning rate, tried without the loss on text that is held back from the runs."""

    rate: float
    nll: float | None  # mean at twice L, nats; None where it is not finite

    @property
    def key(self) -> float:
        return self.rate


@dataclass(frozen=True)
class Result(Declared):
    """A run after its last step."""

    factor: int
    alpha: float
    compare: str
    seed: int
    steps: int
    rate: float
    nll: list[list[float]]  # [lengths][streams], mean of each stream in nats; a length is empty where one is not finite
    sce: float | None  # L_misalign at L
    kl: float | None  # its symmetric KL
    ruler: dict[str, list[list[float]]]  # by length in L: [tasks][samples], nats of the right answer
    right: dict[str, list[list[int]]]  # 1 where every token of the answer is the likeliest
    seconds: float  # of training and measuring

    @property
    def key(self) -> tuple[int, float, str, int]:
        return self.factor, self.alpha, self.compare, self.seed


class Experiment:
    """The model as it is measured, the text, and the records in OUT."""

    def __init__(self, options: Options) -> None:
        self.options, self.out = options, options.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.folder, self.train_length = prepared(options)
        self.model, self.tokenizer = load(str(self.folder), options.dtype, options.device)
        novels = read_books(options.books), read_books(options.held_out)
        self.books, self.held_out = novels if options.books else code_books()
        made = {"model": parameters_digest(self.model), "train_length": self.train_length, "method": options.method}
        made |= {"books": digest(self.books), "held_out": digest(self.held_out)}
        made |= {name: getattr(options, name) for name in ("steps", "rank", "rates", "streams", "pairs", "samples", "dtype")}
        texts = [path.stem for path in (*options.books, *options.held_out)] or [f"Python {platform.python_version()}"]
        facts = {"name": Path(options.model).stem, "corpus": options.corpus, "texts": texts}
        facts |= {"held_out": len(self.held_out), "made_with": made_with(next(self.model.parameters()).device.type)}
        self.noted = kept_settings(self.out, made, command=options.command, **facts)
        self.trials = AppendOnly(self.out / "trials.jsonl", Trial)
        self.results = AppendOnly(self.out / "results.jsonl", Result)

    @cached_property
    def reader(self) -> Reader:
        lengths = [factor * self.train_length for factor in LENGTHS]
        return Reader(self.model, streams(self.tokenizer, self.held_out, self.options.streams, max(lengths) + 1), lengths)

    @cached_property
    def asked(self) -> dict[int, list[list[Sample]]]:
        """RULER's questions by length in L, [tasks][samples]."""
        count = self.options.samples
        lengths = {factor: factor * self.train_length for factor in RULER_LENGTHS}
        return {
            factor: [TASKS[name].samples(self.tokenizer, n - TASKS[name].answer_tokens, count, 0) for name in RULER]
            for factor, n in lengths.items()
        }

    def work(self) -> None:
        for _ in unfinished(self.results, [[BEFORE.key]]):
            self.results.append([self._measured(BEFORE, 0, 0.0, time.perf_counter())])
        rate = self._rate()
        runs = {run.key: run for run in self.options.runs}
        for (key,) in unfinished(self.results, [[key] for key in runs]):
            self._train(runs[key], rate)

    def _rate(self) -> float:
        """The rate of the lowest loss on text held back; another process may be trying some."""
        rates = self.options.rates
        if len(rates) == 1:
            return rates[0]
        while True:
            for (rate,) in unfinished(self.trials, [[rate] for rate in rates]):
                self._try(rate)
            if all(rate in self.trials.lines for rate in rates):
                break
            time.sleep(WAIT)
        known = [(trial.nll, trial.rate) for trial in self.trials.lines.values() if trial.nll is not None]
        require(bool(known), "no learning rate suits: all losses are infinite; give lower ones (--rate)")
        return min(known)[1]

    def _try(self, rate: float) -> None:
        begun, length = time.perf_counter(), 2 * self.train_length
        with self._trained(Run(1, 0.0, "sce", TRIAL_SEED), f"trial-{rate:g}", rate, max(1, self.options.steps // 2)):
            text = [[paragraph for book in self.books for paragraph in held_back(book)]]
            reader = Reader(self.model, streams(self.tokenizer, text, self.options.streams, length + 1), [length])
            (means,) = reader.nll("none")
        self.trials.append([Trial(rate, fmean(means) if means else None)])
        say(f"rate {rate:g}: {fmean(means) if means else math.inf:.4f} nats, {time.perf_counter() - begun:.0f} s")

    def _train(self, run: Run, rate: float) -> None:
        begun, steps = time.perf_counter(), max(1, self.options.steps // run.factor)
        with self._trained(run, run.name, rate, steps):
            said = time.perf_counter() - begun
            result = self._measured(run, steps, rate, begun)
        self.results.append([result])
        losses = ", ".join(f"{fmean(own):.4f}" if own else "not finite" for own in result.nll)
        say(f"{run.name}: nats {losses}; trained in {said:.0f} s, measured in {result.seconds - said:.0f} s")

    @contextmanager
    def _trained(self, run: Run, name: str, rate: float, steps: int) -> Iterator[None]:
        """Trains a run and puts the weights it ends with into the model."""
        options = self.options
        compare, _, sampling = run.compare.partition(" ")
        how = {
            "alpha": run.alpha,
            "compare": compare,
            "sampling": sampling or "1..L/2",
            "train_length": run.factor * self.train_length,
            "steps": steps,
        }
        how |= {"lora_rank": options.rank, "learning_rate": rate, "warmup": steps // 10, "seed": run.seed, "batch": 1}
        how |= {"dtype": options.dtype, "device": options.device, "save_every": steps + 1}
        files = training_files(self.books, run.seed, self.out / "text")
        with trained(str(self.folder), files, self.out / "runs" / name, **how) as weights:
            self.model.load_state_dict(weights)
            yield

    def _measured(self, run: Run, steps: int, rate: float, begun: float) -> Result:
        nll, sce, kl = self.reader.nll("none"), None, None
        if all(nll):
            sce, kl = self.reader.misalignment("none", self.train_length, self.options.pairs)
        told = {factor: [answered(self.model, self.tokenizer, some) for some in tasks] for factor, tasks in self.asked.items()}
        ruler = {str(factor): [nats for nats, _ in tasks] for factor, tasks in told.items()}
        right = {str(factor): [marks for _, marks in tasks] for factor, tasks in told.items()}
        seconds = round(time.perf_counter() - begun, 2)
        return Result(*run.key, steps, rate, nll, sce, kl, ruler, right, seconds)


def prepared(options: Options) -> tuple[Path, int]:
    """The model in OUT/model, its config rewritten for the method, and L; made by the process that comes first."""
    folder, noted = options.out / "model", options.out / "model.jsonl"
    lines = AppendOnly(noted, Prepared)
    while not lines.lines:
        for _ in unfinished(lines, [["model"]]):
            model, tokenizer = load(options.model, "float32", "cpu")
            own = anatomy_of(model, options.train_length).train_length
            how = {"tokenizer": tokenizer, "train_length": own, "overwrite": True}
            lw.export(model, options.method, to="transformers", out=folder, **how)
            lines.append([Prepared("model", own)])
        lines.refresh()
        if not lines.lines:
            time.sleep(WAIT)
    return folder, lines.lines["model"].train_length


@dataclass(frozen=True)
class Prepared(Declared):
    """That the model is written, and its own training length."""

    key: str
    train_length: int


@torch.no_grad()
def answered(model: Any, tokenizer: Any, samples: Sequence[Sample]) -> tuple[list[float], list[int]]:
    """Nats of each right answer after its prompt, and whether the model would write it."""
    nats, right = [], []
    for sample in samples:
        prompt = tokenizer(sample.prompt, verbose=False).input_ids
        answer = answer_tokens(tokenizer, sample.target)
        ids = torch.tensor([[*prompt, *answer]], device=model.device)
        logits: Tensor = model(ids, use_cache=False, logits_to_keep=len(answer) + 1).logits[0, :-1].float()
        target = ids[0, -len(answer) :]
        nats.append(round(float(torch.nn.functional.cross_entropy(logits, target, reduction="sum")), 4))
        right.append(int(bool((logits.argmax(-1) == target).all())))
    return nats, right


def answer_tokens(tokenizer: Any, answer: str) -> list[int]:
    """The answer's tokens as they come after the prompt's last word."""
    before, whole = (tokenizer(text, add_special_tokens=False).input_ids for text in ("is", f"is {answer}"))
    return [int(token) for token in whole[len(before) :]]


def run(options: Options) -> dict[str, Any]:
    """Trains as much as there is time for; writes the results and the page of all that is measured."""
    work_for(options.minutes, lambda: Experiment(options).work())
    noted = page.read(options.out / "settings.json")
    asked = {"ruler": list(RULER), "seeds": options.seeds}
    document = {
        "format": page.FORMAT,
        **noted,
        "command": f"python -m experiments.misalignment_lora.run {noted['command']}",
        **asked,
        "trials": [asdict(trial) for trial in read_lines(options.out / "trials.jsonl", Trial)],
        "results": [asdict(result) for result in read_lines(options.out / "results.jsonl", Result)],
    }
    write_json(options.out / f"{noted['name']}-{noted['corpus']}.json", document)
    page.write_pages(options.out, options.out)
    return document


if __name__ == "__main__":
    from transformers.utils import logging

    # Two bars a run would hide what is said
    logging.disable_progress_bar()
    sys.exit(main(Options, run, __doc__))
