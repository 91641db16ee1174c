"""What the trained models show: medians over seeds, how far an answer holds, and where it goes beyond the training length.

Without positions EOS sees a length l only through means over l + 2 tokens, so that its state is a function of s = 1 / (l + 2).
A network that is piecewise linear goes on in a straight line where no data bend it. `continuation` is that line, the tangent
of f at the training length:

    z(l) = f(n) + df/ds (s(l) - s(n)),   df/ds = -(n + 2)^2 f'(n),   answer f^-1(z)

It has no free number. `excursion` is how far f(y) must leave the range it was trained on: from 10 to 50 the length by 4.4 times
that range, 1/sqrt by 0.26, as much as s itself. `reciprocal`, f(y) = 1/y, which the paper does not have, goes even less far;
but taking it back multiplies an error of z by l^2, 1/z^2 only by 2 l^1.5.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from experiments.output_alignment.bits_configurations import Configuration, Curve

Curves = Sequence[Curve]


@dataclass(frozen=True)
class Spread:
    """Of one number over the seeds. The range of five is an interval of 94 % for their median."""

    middle: float
    low: float
    high: float
    seeds: int


def by_configuration(curves: Curves) -> dict[Configuration, list[Curve]]:
    found: dict[Configuration, list[Curve]] = {}
    for curve in sorted(curves, key=lambda one: one.seed):
        found.setdefault(curve.configuration, []).append(curve)
    return found


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))


def loss_at(curves: Curves, length: int) -> Spread:
    return spread([curve.losses[length - 1] for curve in curves])


def answer_at(curves: Curves, length: int) -> Spread:
    return spread([curve.answers[length - 1] for curve in curves])


def holds_to(curve: Curve, most: float) -> int:
    """The last length before the loss first exceeds `most`."""
    return next((at for at, loss in enumerate(curve.losses) if not loss <= most), len(curve.losses))


def flatness(curve: Curve, first: int, last: int) -> float:
    """The greatest loss at first ... last over that at `first`."""
    part = curve.losses[first - 1 : last]
    return max(part) / part[0]


def continuation(configuration: Configuration, length: int) -> float:
    """What the straight line answers to `length`."""
    n = configuration.train_length
    at = torch.tensor(float(n), dtype=torch.float64, requires_grad=True)
    f = configuration.outrep.aligned(at)
    (slope,) = torch.autograd.grad(f, at)
    z = f.detach() - (n + 2) ** 2 * slope * (1 / (length + 2) - 1 / (n + 2))
    return float(configuration.outrep.original(z))


def excursion(configuration: Configuration, length: int) -> float:
    """|f(length) - f(n)| in units of |f(n) - f(1)|, for targets that are lengths."""
    first, last, beyond = configuration.outrep.aligned(torch.tensor([1.0, configuration.train_length, length])).tolist()
    return abs(beyond - last) / abs(last - first)
