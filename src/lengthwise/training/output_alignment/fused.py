"""L_train and L_misalign of two readings, and their gradient, in one pass over the logits.

A training step with the misalignment loss should cost little more than one without. What costs is exponentials of length x
vocabulary: here every logit meets two of them, which the cross-entropy alone would need, and the gradient is made on the way,
a few positions at a time. Beside the logits nothing of their size is kept but their gradient.

What the overlap is compared by is L_SCE, the paper's, or the symmetric KL, which is L_SCE less both entropies: 0 for two equal
readings, so that it does not ask the model to be surer of itself. Its gradient is L_SCE's with ln y'/y for ln y':

    d L_SCE / d logits = y - y' - y (ln y' - <y, ln y'>),   and the same with y and y' exchanged for the other logits
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.training.output_alignment.loss import chunks, log_softmax
from lengthwise.training.output_alignment.views import Views

# torch's and transformers' mark of a label that is no target
IGNORED = -100
SCE, KL = COMPARISONS = ("sce", "kl")


def weighted_sums(
    logits: Tensor, targets: Tensor, counted: Tensor, views: Views, weights: Tensor, compare: str = SCE
) -> tuple[Tensor, Tensor]:
    """(weights . sums, sums): cross-entropy over all targets, L_SCE or KL over the overlap; only the first has a gradient.

    Logits are [2 batch, L, words], the first readings of all rows and then the second; targets [2 batch, L]; counted
    [batch, positions] says which of the overlap count. Where the second weight is 0 nothing is compared, and its sum is 0.
    """
    both: tuple[Tensor, Tensor] = _Fused.apply(logits, targets, counted, views, weights, compare)  # type: ignore[no-untyped-call]
    return both


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, counted: Tensor, views: Views, weights: Tensor, compare: str
    ) -> tuple[Tensor, Tensor]:
        # Gradients of a mean over a large batch are too small for float16
        kind = torch.float32 if logits.dtype == torch.float16 else logits.dtype
        slopes = torch.empty_like(logits, dtype=kind) if ctx.needs_input_grad[0] else None
        sums = torch.zeros_like(weights)
        apart = bool(weights[1] != 0)
        for row, start, stop in _alone(views, len(logits) // 2, apart):
            for at in chunks(stop - start, logits[row, 0].numel()):
                where = (row, slice(start + at.start, start + at.stop))
                _cross(sums, slopes, logits, targets, where, weights)
        if apart:
            for at in chunks(views.positions, logits[:, 0].numel()):
                _cross_and_compare(sums, slopes, logits, targets, counted, views, at, weights, compare)
        ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(sums)
        return (weights * sums).sum(), sums

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Any) -> tuple[Tensor, None, None, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * upstream.to(slopes.dtype), None, None, None, None, None


def _alone(views: Views, batch: int, apart: bool) -> list[tuple[slice, int, int]]:
    """(rows, first position, last position + 1) of positions with a cross-entropy alone, no comparison."""
    if not apart:
        return [(slice(0, 2 * batch), 0, views.length)]
    over_first, over_second = views.shared
    first, second = slice(0, batch), slice(batch, 2 * batch)
    return [(first, 0, over_first.start), (second, 0, over_second.start), (second, over_second.stop, views.length)]


def _cross(
    sums: Tensor, slopes: Tensor | None, logits: Tensor, targets: Tensor, where: tuple[slice, slice], weights: Tensor
) -> None:
    """Cross-entropy of positions of one reading."""
    log_y, wanted = log_softmax(logits[where]), targets[where][..., None]
    valid = wanted != IGNORED
    sums[0] -= (log_y.gather(-1, wanted.clamp_min(0)) * valid).sum()
    if slopes is not None:
        weight = valid * weights[0]
        slopes[where] = log_y.exp_().mul_(weight).scatter_add_(-1, wanted.clamp_min(0), -weight)


def _cross_and_compare(
    sums: Tensor,
    slopes: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    counted: Tensor,
    views: Views,
    at: slice,
    weights: Tensor,
    compare: str,
) -> None:
    """Cross-entropy and L_SCE, or KL, of positions that both readings predict from."""
    batch = len(logits) // 2
    rows = (slice(0, batch), slice(batch, 2 * batch))
    where = [(row, slice(over.start + at.start, over.start + at.stop)) for row, over in zip(rows, views.shared, strict=True)]
    logs = [log_softmax(logits[place]) for place in where]
    ys = [log.exp() for log in logs]
    counts = counted[:, at, None]
    for mine, its in ((0, 1), (1, 0)):
        wanted = targets[where[mine]][..., None]
        valid = wanted != IGNORED
        sums[0] -= (logs[mine].gather(-1, wanted.clamp_min(0)) * valid).sum()
        against = logs[its] if compare == SCE else logs[its] - logs[mine]
        along = (ys[mine] * against).sum(-1, keepdim=True)
        sums[1] -= (along * counts).sum()
        if slopes is not None:
            own, weight = valid * weights[0], counts * weights[1]
            gradient = torch.addcmul(own + weight * (1 + along), against, -weight).mul_(ys[mine]).addcmul_(ys[its], -weight)
            slopes[where[mine]] = gradient.scatter_add_(-1, wanted.clamp_min(0), -own)
