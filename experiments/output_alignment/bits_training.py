"""Trains several small decoders side by side on bits: of equal shape, each with its own weights, data, target and OutRep.

One forward of all of them is `torch.vmap` over their stacked weights. A model sees the same data and starts from the same
weights whoever stands beside it.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.output_alignment.bits_configurations import TEST_LENGTH, Configuration, Curve
from lengthwise.errors import require
from lengthwise.models.small_decoder import SmallDecoderConfig, SmallDecoderForRegression
from lengthwise.tasks import synthetic

CHUNK = 100  # batches drawn at once
TEST_SEED = 10_000  # no model is trained on it


@dataclass(frozen=True)
class Settings:
    """Of the model and its training, the same for all configurations."""

    steps: int = 3000
    batch: int = 32
    lr: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.0
    width: int = 32
    inner: int = 128  # of the feed-forward networks
    layers: int = 2
    heads: int = 4
    initial: float = 0.02  # standard deviation of the weights
    samples: int = 200  # test sequences a length

    def __post_init__(self) -> None:
        counted = ("steps", "batch", "width", "inner", "layers", "heads", "samples")
        for name in counted:
            require(getattr(self, name) >= 1, f"--{name} must be at least 1, not {getattr(self, name)}")
        require(self.lr > 0, f"--lr must be above 0, not {self.lr}")

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
            learned_positions=max(TEST_LENGTH, configuration.train_length) + 2,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return SmallDecoderForRegression(config)


Job = tuple[Configuration, int]  # and its seed


def train(jobs: Sequence[Job], settings: Settings, device: str = "cpu") -> list[Curve]:
    """The jobs' configurations must be of one shape."""
    require(len({one.shape for one, _ in jobs}) == 1, "only models of one shape can be trained side by side")
    began = time.process_time()
    models = [settings.model(*job).to(device) for job in jobs]
    together = Together(models)
    optimizer = torch.optim.AdamW(together.parameters, lr=settings.lr, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, settings))
    last = []
    for step, (tokens, ends, wanted) in enumerate(_batches(jobs, settings, device)):
        losses = (together(tokens, ends) - wanted).square().mean(1)  # [models]
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        schedule.step()
        if step >= min(0.95 * settings.steps, settings.steps - 1):
            last.append(losses.detach())
    train_losses = torch.stack(last).mean(0).tolist()
    require(all(map(math.isfinite, train_losses)), f"training diverged at --lr {settings.lr:g}; give a lower one")
    tested = _tested(together, jobs, settings, device)
    seconds = (time.process_time() - began) / len(jobs)
    return [
        Curve.of(one, seed=seed, steps=settings.steps, train_loss=loss, **found, cpu_seconds=round(seconds, 2))
        for (one, seed), loss, found in zip(jobs, train_losses, tested, strict=True)
    ]


class Together:
    """Models of one shape as one function of [models, batch, tokens]."""

    def __init__(self, models: Sequence[Any]) -> None:
        stacked, self._buffers = torch.func.stack_module_state(list(models))
        self._weights = {name: weight.detach().requires_grad_() for name, weight in stacked.items()}
        self.parameters = list(self._weights.values())
        base = models[0]

        def answer(weights: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, ends: Tensor) -> Tensor:
            return torch.func.functional_call(base, (weights, buffers), (tokens, ends)).logits  # type: ignore[no-any-return]

        self._answer = torch.vmap(answer)

    def __call__(self, tokens: Tensor, ends: Tensor) -> Tensor:  # [models, batch]
        with warnings.catch_warnings(), kernels(self.parameters[0].device):
            # On a CPU attention is done model by model, which is a small part of the work
            warnings.filterwarnings("ignore", message=".*batching rule.*")
            return self._answer(self._weights, self._buffers, tokens, ends)


def kernels(device: torch.device) -> AbstractContextManager[None]:
    """Of attention, to choose from while it lasts.

    vmap hides that its tensors need gradients, and a GPU's fused kernels then keep nothing for their backward ("LSE is not
    correctly aligned"). The one that is written out has no such choice to make, and takes all models at once.
    """
    return nullcontext() if device.type == "cpu" else sdpa_kernel(SDPBackend.MATH)


def _rate(step: int, settings: Settings) -> float:
    """Up in a line, then down to 0 as a cosine."""
    return min(1.0, (step + 1) / settings.warmup) * 0.5 * (1 + math.cos(math.pi * step / settings.steps))


def _batches(jobs: Sequence[Job], settings: Settings, device: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Tokens [models, batch, tokens], ends and f(y) [models, batch], a step each."""
    sources = [np.random.default_rng([seed, 1]) for _, seed in jobs]
    for first in range(0, settings.steps, CHUNK):
        steps = min(CHUNK, settings.steps - first)
        drawn = [
            _on(synthetic.training(steps * settings.batch, one.train_length, source, one.kind), one, device)
            for (one, _), source in zip(jobs, sources, strict=True)
        ]
        parts = (torch.stack(part).unflatten(1, (steps, -1)).unbind(1) for part in zip(*drawn, strict=True))
        yield from zip(*parts, strict=True)


def _on(some: synthetic.Sequences, one: Configuration, device: str) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.from_numpy(some.target(one.target))
    tokens, ends = torch.from_numpy(some.tokens), torch.from_numpy(some.ends)
    return tokens.to(device), ends.to(device), one.outrep.aligned(y).float().to(device)


@torch.no_grad()
def _tested(together: Together, jobs: Sequence[Job], settings: Settings, device: str) -> list[dict[str, list[float]]]:
    """Errors and mean answers of every model at lengths 1 ... TEST_LENGTH; all are asked for the same sequences."""
    found: list[dict[str, list[float]]] = [{"losses": [], "answers": []} for _ in jobs]
    for length in range(1, TEST_LENGTH + 1):
        some = [synthetic.samples(length, settings.samples, TEST_SEED, one.kind) for one, _ in jobs]
        tokens = torch.stack([torch.from_numpy(one.tokens) for one in some]).to(device)
        ends = torch.stack([torch.from_numpy(one.ends) for one in some]).to(device)
        answers = together(tokens, ends).double().cpu()
        for z, own, asked, (one, _) in zip(answers, found, some, jobs, strict=True):
            y = torch.from_numpy(asked.target(one.target))
            own["losses"].append(float(one.outrep.squared_error(z, y).mean()))
            own["answers"].append(float(one.outrep.original(z).mean()))
    return found
