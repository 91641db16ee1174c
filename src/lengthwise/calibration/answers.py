"""Fit temperatures to answers: under which sharpness does the model best tell answers that it can know?

    loss(a) = sum over tasks of w_task (nats of an answer) + GUARD (KL from what was told of prose) + REGULARISER sum (a - a0)^2
    a = ln g,   w_task ~ exp(-nats a token at the training length)

The weights are frozen. One number for the model is searched for on both sides of g = 1; a number a layer or a head follows the
gradient, which comes through the attention itself. A task counts as much as the model can do it at its training length, so
that what it cannot do does not steer. KL, at the same length, holds what was not asked. a0 is 0 at the first length and grows
with ln n from there. Cases that are not fitted decide when to stop, if time does not, and whether to change anything.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.calibration.align import SharpnessByLength
from lengthwise.calibration.answer_cases import TEXT, CaseGroup, CaseMaker, FitCase
from lengthwise.calibration.at_length import LengthResult, sharpness_of
from lengthwise.calibration.search import FLATTEST, SHARPEST
from lengthwise.common.progress import ProgressCallback
from lengthwise.errors import require
from lengthwise.methods.temperature.aligned import Calibrated
from lengthwise.models.extend import extend
from lengthwise.models.patches import evaluating

SAMPLES = {"model": 8, "layer": 32, "head": 32}  # cases of a task, by scope
REGULARISER, OF_ONE = 1.0, 0.1  # weight of (a - a0)^2; of a^2 where the model has one number
ENOUGH = 0.1  # nats: nothing is left to gain
STEPS, RATE, CASES_A_STEP = 40, 0.05, 2
CHECK_EVERY, PATIENCE, LEAST_GAIN = 5, 2, 0.01  # checks without a gain of this share of the loss end the fit
WIDEST, NARROWEST = 0.2, 0.05  # steps of ln g in the search for one number
Losses = dict[str, float]  # by the name of a group


def fit_to_answers(cases: CaseMaker, lengths: Sequence[int], scope: str, minutes: float | None = None) -> list[LengthResult]:
    """A fit at every length, each from where the shorter one leads, within the time; the model may be extended already."""
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    anatomy, known = cases.anatomy, cases.training_nats()
    shares = task_shares(known)
    target = sum(shares[name] * nats for name, (nats, _) in known.items())
    shape = {"model": (1, 1), "layer": (len(anatomy.layers), 1), "head": (len(anatomy.layers), anatomy.heads)}[scope]
    _require_finite(target, anatomy.train_length)
    start, results, shorter = torch.zeros(shape), list[LengthResult](), anatomy.train_length
    for n, length in enumerate(lengths):
        if results:
            start = start * math.log(length / anatomy.train_length) / math.log(shorter / anatomy.train_length)
        sharpness = SharpnessByLength(anatomy.train_length, length, sharpness_of([result.entry for result in results]))
        groups = cases.all_groups(length, shorter, shares)
        read = sum(case.kept is not None for group in groups for case in group.cases)
        fit = Fit(
            cases.model, sharpness, groups, start, cases.seed, cases.tick, end_after(end, len(lengths) - n), forwards=read
        )
        start, path, expects = fit.run()
        reached = sum(share * expects["fitted"][name] for name, share in shares.items())
        entry = Calibrated(length, _table((-start).exp(), scope), reached, fit.forwards, target)
        missed = [] if bool(start.any()) else [f"length {length}: no temperature makes the answers likelier; it stays 1"]
        results.append(LengthResult(entry, path, missed, expects))
        shorter = length
    return results


def end_after(end: float, lengths: int) -> float:
    """The time at which the next of so many lengths should be done, so that all get the same share."""
    now = time.monotonic()
    return now + (end - now) / lengths


def task_shares(known: dict[str, tuple[float, float]]) -> dict[str, float]:
    """The weight of each task, by how well the model knows its answers at the training length; a text alone weighs 1."""
    shares = {name: math.exp(-a_token) for name, (_, a_token) in known.items()}
    return {name: share / sum(shares.values()) for name, share in shares.items()} or {TEXT: 1.0}


@dataclass(frozen=True)
class Candidate:
    """A temperature while it is fitted: a method whose sharpness at one length is still moving."""

    sharpness: SharpnessByLength
    log_g: Tensor  # [layers or 1, heads or 1]

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:
        g = self.log_g[layer % len(self.log_g)].exp()
        return self.sharpness.rows(visible, g[None], layer)[0]


@dataclass
class Fit:
    """The fit at one length."""

    model: nn.Module
    sharpness: SharpnessByLength
    groups: Sequence[CaseGroup]
    start: Tensor  # a0, [layers or 1, heads or 1]
    seed: int
    tick: ProgressCallback
    end: float = math.inf  # by the monotonic clock
    forwards: int = 0  # long ones so far; a step back takes as long as two

    def run(self) -> tuple[Tensor, list[dict[str, float]], dict[str, Losses]]:
        """The best a; the path there; and the losses of cases that are not fitted, plain and fitted."""
        a = torch.zeros_like(self.start, device=next(self.model.parameters()).device)
        candidate, train_length = Candidate(self.sharpness, a), self.sharpness.train_length
        with frozen(self.model), evaluating(self.model), extend(self.model, candidate, train_length=train_length):
            plain = self._held_out()
            _require_finite(self._total(plain), self.sharpness.length)
            best, path, fitted = self._search(a) if a.numel() == 1 else self._descend(a, plain)
        if self._total(fitted) >= self._total(plain):
            best, fitted = torch.zeros_like(best), plain
        return best.detach().cpu(), path, {"plain": plain, "fitted": fitted}

    def _search(self, a: Tensor) -> tuple[Tensor, list[dict[str, float]], Losses]:
        """Search one number: step to the better side while that helps, then halve the step."""
        tried: dict[float, float] = {}

        def loss(x: float) -> float:
            if x not in tried:
                a.fill_(x)
                tried[x] = self._total({group.name: self._mean(group.fitted) for group in self.groups}) + OF_ONE * x**2
                self._say(f"tau {math.exp(-x):.3f}", tried[x])
            return tried[x]

        x, step = min((0.0, float(self.start)), key=loss), WIDEST
        while step >= NARROWEST and loss(x) > ENOUGH and not self._late():
            sides = [round(x + side * step, 4) for side in (-1, 1)]
            best = min([x, *(side for side in sides if math.log(FLATTEST) <= side <= math.log(SHARPEST))], key=loss)
            x, step = (best, step) if best != x else (x, step / 2)
        a.fill_(x)
        return a, [{"tau": math.exp(-x), "loss": value} for x, value in tried.items()], self._held_out()

    def _descend(self, a: Tensor, plain: Losses) -> tuple[Tensor, list[dict[str, float]], Losses]:
        """Fit many numbers by Adam, with a few cases of every group a step."""
        randomness, start = random.Random(f"answers {self.seed}"), self.start.to(a)
        path, best, idle = [self._step(0, plain)], (torch.zeros_like(a), plain), 0
        self._say("as it is", self._total(plain))
        a.copy_(start).requires_grad_()
        optimiser = torch.optim.Adam([a], lr=RATE)
        for step in range(1, STEPS + 1):
            optimiser.zero_grad()
            self._backward(randomness)
            (REGULARISER * (a - start).square().sum()).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            with torch.no_grad():
                a.clamp_(math.log(FLATTEST), math.log(SHARPEST))
            self.tick(1, f"length {self.sharpness.length:,}, step {step} of at most {STEPS}")
            if step % CHECK_EVERY == 0 or self._late():
                losses = self._held_out()
                path.append(self._step(step, losses))
                self._say(f"step {step}", self._total(losses))
                gained = self._total(best[1]) - self._total(losses)
                idle = 0 if gained > LEAST_GAIN * self._total(plain) else idle + 1
                best = (a.detach().clone(), losses) if gained > 0 else best
                if idle == PATIENCE or self._total(losses) <= ENOUGH or self._late():
                    break
        return best[0], path, best[1]

    def _late(self) -> bool:
        return time.monotonic() >= self.end

    def _backward(self, randomness: random.Random) -> None:
        for group in self.groups:
            chosen = randomness.sample(list(group.fitted), min(CASES_A_STEP, len(group.fitted)))
            for case in chosen:
                # A prompt that came out within the training length is told at g = 1, whatever a is
                if (loss := case.loss(self.model)).requires_grad:
                    (group.weight / len(chosen) * loss).backward()  # type: ignore[no-untyped-call]
                self.forwards += 3
                self.tick(0)

    def _held_out(self) -> Losses:
        return {group.name: self._mean(group.held_out) for group in self.groups}

    def _mean(self, cases: Sequence[FitCase]) -> float:
        losses = []
        with torch.no_grad():
            for case in cases:
                losses.append(float(case.loss(self.model)))
                self.forwards += 1
                self.tick(0)
        return sum(losses) / len(losses)

    def _total(self, losses: Losses) -> float:
        return sum(group.weight * losses[group.name] for group in self.groups)

    def _step(self, step: int, losses: Losses) -> dict[str, float]:
        return {"step": step, "loss": self._total(losses), **losses}

    def _say(self, where: str, loss: float) -> None:
        self.tick(0, f"length {self.sharpness.length:,}, {where}: {loss:.4g} nats")


def _require_finite(nats: float, length: int) -> None:
    broken = f"the likelihoods of answers at {length:,} tokens are NaN or infinite"
    require(math.isfinite(nats), f"{broken}; give a wider --dtype, or another --method")


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Switch gradients of the weights off for the time of the block."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def _table(tau: Tensor, scope: str) -> Any:
    """A temperature as an alignment of this scope holds it: a number, a list, or a list of lists."""
    values = tau.double()
    return float(values) if scope == "model" else values[:, 0].tolist() if scope == "layer" else values.tolist()
