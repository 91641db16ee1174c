"""Trains small decoders to tell the mean, length or sum of bits, and asks them past their training length.

    python -m experiments.bits.run --out runs/bits
    python -m experiments.bits.run --out runs/bits --figures 1c 1a --minutes 20 --together 100

OUT/curves.jsonl gets a line a trained model: the same command again goes on where the last one stopped, and several at once
share the work. A model of the default size takes about 30 seconds of one core. Then OUT/bits.json and its page are written.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments._lib.command import main, option
from experiments._lib.minutes import say, work_for
from experiments._lib.results import kept_settings, unfinished, write_json
from experiments.bits import page
from experiments.bits.linear_attention import theorem_1
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.models.small_decoder import POSITIONS, SmallDecoderConfig, SmallDecoderForRegression
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.tasks import synthetic
from lengthwise.training.output_alignment.outrep import OutRep

# The paper's three, and `reciprocal`, which leaves its training range even less
FUNCTIONS = ("identity", "sqrt", "log", "rsqrt", "reciprocal")
CHUNK = 100  # batches drawn at once
TEST_SEED = 10_000  # no model is trained on it
FORMAT = "lengthwise.experiments.output_alignment.synthetic/1"


@dataclass(frozen=True)
class Configuration:
    """One curve of a figure."""

    target: str
    positions: str = "nope"
    function: str = "identity"
    kind: str = "uniform"  # how bits are drawn
    train_length: int = 10

    @property
    def outrep(self) -> OutRep:
        """The function of the target that is learned; a sum can be 0, where log has no value, so 1 is added to it."""
        return OutRep(self.function, shift=1.0 if self.target == "sum" and self.function != "identity" else 0.0)

    @property
    def shape(self) -> tuple[str, int]:
        """Models that agree in it can be trained side by side."""
        return self.positions, self.train_length


Job = tuple[Configuration, int]  # and its seed

# In the order in which they are trained; a configuration of several figures is trained once
VARIED = {"function": FUNCTIONS, "positions": POSITIONS[::-1], "train_length": (10, 20, 30)}
FIGURES: dict[str, tuple[Configuration, ...]] = {
    name: tuple(Configuration(**{"target": target, "kind": kind, varies: value}) for value in VARIED[varies])
    for name in ("1c", "1a", "1b", "5", "4b", "4a", "3b", "3a")
    for target, kind, varies in (page.FIGURES[name][2:],)
}


@dataclass(frozen=True)
class Curve(Declared):
    """One trained model: its errors at every test length, in the units of the target."""

    target: str
    positions: str
    function: str
    kind: str
    train_length: int
    seed: int
    steps: int
    train_loss: float  # of the last steps, in the units of f(y)
    losses: list[float]  # mean squared errors at lengths 1, 2, ...
    answers: list[float]  # mean answers there
    cpu_seconds: float  # its share of what was trained side by side

    @property
    def key(self) -> Hashable:
        return Configuration(self.target, self.positions, self.function, self.kind, self.train_length), self.seed


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The model and its training, the same for all configurations."""

    steps: int = option(3000, "of training")
    batch: int = option(32, "sequences of a step")
    lr: float = option(3e-3, "highest learning rate")
    warmup: int = 100  # steps until it is reached
    weight_decay: float = 0.0  # of AdamW
    width: int = 32  # of the model
    inner: int = 128  # width of the feed-forward networks
    layers: int = 2
    heads: int = 4  # of a layer
    initial: float = 0.02  # standard deviation of the first weights
    samples: int = 200  # test sequences a length

    def model(self, configuration: Configuration, seed: int) -> Any:
        config = SmallDecoderConfig(
            vocab_size=synthetic.VOCABULARY,
            hidden_size=self.width,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            hidden_act="relu",
            initializer_range=self.initial,
            positions=configuration.positions,
            max_position_embeddings=configuration.train_length + 2,
            learned_positions=max(page.TEST_LENGTH, configuration.train_length) + 2,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return SmallDecoderForRegression(config)


@dataclass(frozen=True, kw_only=True)
class Options(Settings):
    """One call."""

    out: Path = option(help="folder of the experiment")
    figures: tuple[str, ...] = option(tuple(FIGURES), "figures of the paper to train for", choices=list(FIGURES))
    seeds: int = option(5, "models a curve")
    together: int = option(5, "models trained side by side")
    minutes: float = option(math.inf, "stop after so long; the next call goes on")
    command: str = ""  # as typed


def run(options: Options) -> None:
    """Trains as much as there is time for; writes the results and the page of all that is trained."""
    options.out.mkdir(parents=True, exist_ok=True)
    settings = {field.name: getattr(options, field.name) for field in fields(Settings)}
    command = f"python -m experiments.bits.run {options.command}"
    facts = kept_settings(options.out, settings, command=command, made_with=made_with("cpu"))
    curves = AppendOnly(options.out / "curves.jsonl", Curve)

    def work() -> None:
        for missing in unfinished(curves, grouped(jobs(options.figures, options.seeds), options.together)):
            curves.append(train(missing, options))
            for job in missing:
                say(f"{job}: {curves.lines[job].losses[-1]:.4g} at the end")

    work_for(options.minutes, work)
    trained = read_lines(options.out / "curves.jsonl", Curve)
    if trained:
        rows = [{**asdict(curve), "losses": _short(curve.losses), "answers": _short(curve.answers)} for curve in trained]
        document = {"format": FORMAT, **facts, "theorem_1": [asdict(sides) for sides in theorem_1()], "curves": rows}
        write_json(options.out / page.RESULTS, document)
        page.write_pages(options.out, options.out)


def jobs(figures: Sequence[str], seeds: int) -> list[Job]:
    """Every configuration with every seed, once, in the order of the figures."""
    wanted = dict.fromkeys(configuration for name in figures for configuration in FIGURES[name])
    return [(configuration, seed) for configuration in wanted for seed in range(seeds)]


def grouped(wanted: Sequence[Job], most: int) -> list[list[Job]]:
    """At most so many jobs of equal shape together, those first that are wanted first."""
    shapes: dict[tuple[str, int], list[Job]] = {}
    for job in wanted:
        shapes.setdefault(job[0].shape, []).append(job)
    groups = [alike[first : first + most] for alike in shapes.values() for first in range(0, len(alike), most)]
    return sorted(groups, key=lambda group: wanted.index(group[0]))


def train(wanted: Sequence[Job], settings: Settings) -> list[Curve]:
    """Trains the jobs side by side; their configurations must be of one shape."""
    began = time.process_time()
    together = Together([settings.model(*job) for job in wanted])
    optimizer = torch.optim.AdamW(together.parameters, lr=settings.lr, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(_rate, settings=settings))
    last = []
    for step, (tokens, ends, targets) in enumerate(_batches(wanted, settings)):
        losses = (together(tokens, ends) - targets).square().mean(1)  # [models]
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        schedule.step()
        if step >= min(0.95 * settings.steps, settings.steps - 1):
            last.append(losses.detach())
    train_losses = torch.stack(last).mean(0).tolist()
    require(all(map(math.isfinite, train_losses)), f"training diverged at --lr {settings.lr:g}; give a lower one")
    tested = _tested(together, wanted, settings)
    seconds = round((time.process_time() - began) / len(wanted), 2)
    return [
        Curve(**asdict(job[0]), seed=job[1], steps=settings.steps, train_loss=loss, **answers, cpu_seconds=seconds)
        for job, loss, answers in zip(wanted, train_losses, tested, strict=True)
    ]


class Together:
    """Models of one shape as one function of [models, batch, tokens]: `torch.vmap` over their stacked weights.

    A model sees the same data and starts from the same weights whoever stands beside it.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        stacked, self._buffers = torch.func.stack_module_state(list(models))
        self._weights = {name: weight.detach().requires_grad_() for name, weight in stacked.items()}
        self.parameters = list(self._weights.values())
        base = models[0]

        def answer(weights: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, ends: Tensor) -> Tensor:
            return torch.func.functional_call(base, (weights, buffers), (tokens, ends)).logits  # type: ignore[no-any-return]

        self._answer = torch.vmap(answer)

    def __call__(self, tokens: Tensor, ends: Tensor) -> Tensor:  # [models, batch]
        with warnings.catch_warnings():
            # Attention is done model by model, which is a small part of the work
            warnings.filterwarnings("ignore", message=".*batching rule.*")
            return self._answer(self._weights, self._buffers, tokens, ends)


def _rate(step: int, settings: Settings) -> float:
    """The share of the learning rate: up in a line, then down to 0 as a cosine."""
    return min(1.0, (step + 1) / settings.warmup) * 0.5 * (1 + math.cos(math.pi * step / settings.steps))


def _batches(wanted: Sequence[Job], settings: Settings) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Tokens [models, batch, tokens], ends and f(y) [models, batch], a step each."""
    sources = [np.random.default_rng([seed, 1]) for _, seed in wanted]
    for first in range(0, settings.steps, CHUNK):
        steps = min(CHUNK, settings.steps - first)
        drawn = []
        for (configuration, _), source in zip(wanted, sources, strict=True):
            sequences = synthetic.training(steps * settings.batch, configuration.train_length, source, configuration.kind)
            aligned = configuration.outrep.aligned(torch.from_numpy(sequences.target(configuration.target))).float()
            drawn.append([torch.from_numpy(sequences.tokens), torch.from_numpy(sequences.ends), aligned])
        parts = (torch.stack(part).unflatten(1, (steps, -1)).unbind(1) for part in zip(*drawn, strict=True))
        yield from zip(*parts, strict=True)


@torch.no_grad()
def _tested(together: Together, wanted: Sequence[Job], settings: Settings) -> list[dict[str, list[float]]]:
    """Errors and mean answers of every model at lengths 1 ... page.TEST_LENGTH; all are asked for the same sequences."""
    tested: list[dict[str, list[float]]] = [{"losses": [], "answers": []} for _ in wanted]
    for length in range(1, page.TEST_LENGTH + 1):
        asked = [synthetic.samples(length, settings.samples, TEST_SEED, configuration.kind) for configuration, _ in wanted]
        tokens = torch.stack([torch.from_numpy(sequences.tokens) for sequences in asked])
        ends = torch.stack([torch.from_numpy(sequences.ends) for sequences in asked])
        answers = together(tokens, ends).double()
        for z, measured, sequences, (configuration, _) in zip(answers, tested, asked, wanted, strict=True):
            y = torch.from_numpy(sequences.target(configuration.target))
            measured["losses"].append(float(configuration.outrep.squared_error(z, y).mean()))
            measured["answers"].append(float(configuration.outrep.original(z).mean()))
    return tested


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
