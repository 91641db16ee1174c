"""Which way a temperature should go: how right answers respond to the sharpness of every head, where nothing is changed yet.

    slope(layer, head) = d nats of an answer / d ln g(layer, head)   at g = 1

One step back a case tells it of all heads at once; their sum is the slope of one temperature for the model. Below 0 sharper
attention makes the answers likelier, above 0 flatter attention does. P_max cannot tell: where attention disperses, keeping it
always sharpens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.stats import t
from torch import Tensor, nn

from lengthwise.analysis.records import AnswerSlopes
from lengthwise.calibration.answer_cases import FAR_SEEDS, FitCase, answer_cases
from lengthwise.calibration.answers import frozen
from lengthwise.errors import NoRoom
from lengthwise.models.anatomy import Anatomy, has_encoder
from lengthwise.models.extend import extend
from lengthwise.models.patches import evaluating
from lengthwise.tasks import find_task
from lengthwise.tasks.making import make_samples

CASES = 8  # of a task at one length
# Within its training length a model runs its own attention, which no g reaches: this is below every prompt
SHORTEST = 2


@dataclass(frozen=True)
class EveryHead:
    """A method with one g for each head, the same for every row; its gradient is what is measured."""

    log_g: Tensor  # [layers, heads]

    def inverse_temperature(self, visible: Tensor, layer: int = 0) -> Tensor:  # [1, heads, 1]
        return self.log_g[layer].exp()[None, :, None]


def slopes_of(model: nn.Module, anatomy: Anatomy, cases: Sequence[FitCase]) -> tuple[Tensor, Tensor]:
    """The nats of every case [cases], and their slopes [cases, layers, heads]; the weights are left alone."""
    device = next(model.parameters()).device
    log_g = torch.zeros(len(anatomy.layers), anatomy.heads, device=device, requires_grad=True)
    nats, slopes = [], []
    with frozen(model), evaluating(model), torch.enable_grad(), extend(model, EveryHead(log_g), train_length=SHORTEST):
        for case in cases:
            loss = case.loss(model)
            slopes.append(torch.autograd.grad(loss, log_g)[0].cpu())
            nats.append(loss.detach().cpu())
    return torch.stack(nats).double(), torch.stack(slopes).double()


def answer_slopes(
    model: nn.Module, tokenizer: Any, anatomy: Anatomy, task: str, length: int, cases: int, seed: int
) -> AnswerSlopes | None:
    """Ask so many cases of a task at one length; None where a prompt of that length has no room for its question."""
    asked = find_task(task)
    room = length if has_encoder(model) else length - asked.answer_tokens
    try:
        samples = make_samples(task, asked, tokenizer, room, cases, FAR_SEEDS + seed)
    except NoRoom:
        return None
    return slopes_at(model, anatomy, task, length, answer_cases(model, tokenizer, samples))


def slopes_at(model: nn.Module, anatomy: Anatomy, task: str, length: int, cases: Sequence[FitCase]) -> AnswerSlopes:
    """Means over the cases, and Student's interval of the slope of all heads together."""
    nats, slopes = slopes_of(model, anatomy, cases)
    whole = slopes.sum((1, 2))
    half = float(t.ppf(0.975, len(cases) - 1) * whole.std() / len(cases) ** 0.5)
    mean, mean_nats = float(whole.mean()), float(nats.mean())
    return AnswerSlopes(
        length=length,
        task=task,
        cases=len(cases),
        nats=mean_nats,
        nats_a_token=mean_nats * len(cases) / sum(int(case.counted.sum()) for case in cases),
        slope=mean,
        low=mean - half,
        high=mean + half,
        heads=slopes.mean(0).tolist(),
    )
