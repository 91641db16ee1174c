"""How far apart two next-token distributions are, and two readings of the same tokens in the mean.

    L_SCE(y, y')      = -(<y', ln y> + <y, ln y'>)                                          Output Alignment, equation 1
    KL(y|y') + KL(y'|y) = L_SCE - H(y) - H(y') = <y - y', ln y - ln y'>
    L_misalign        = E[L_SCE(g(x[-l1:]), g(x[-l2:]))],   l1, l2 from [L/2, L]            Output Alignment, equation 2

L_SCE of two equal distributions is twice their entropy, so a model that is only unsure looks misaligned; the symmetric KL is 0
there. The code printed in appendix D of the paper has <y, ln y> for the second product, which makes one cross-entropy and one
entropy of it, and calls `log_softmax` without a dimension, which normalises [batch, tokens, words] over the batch. Both are
slips: equation 1 is what stands here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lengthwise.errors import require
from lengthwise.training.output_alignment.views import Views

# Logits that are turned into probabilities at once
LOGITS_AT_ONCE = 2**24


def symmetric_cross_entropy(logits: Tensor, other: Tensor) -> Tensor:  # [..., words] -> [...]
    """L_SCE of two next-token distributions, in nats."""
    log_y, log_other = log_softmax(logits), log_softmax(other)
    return -(log_other.exp() * log_y + log_y.exp() * log_other).sum(-1)


def symmetric_kl(logits: Tensor, other: Tensor) -> Tensor:  # [..., words] -> [...]
    """The symmetric KL divergence of two next-token distributions, in nats."""
    log_y, log_other = log_softmax(logits), log_softmax(other)
    return ((log_y.exp() - log_other.exp()) * (log_y - log_other)).sum(-1)


def misalignment_loss(
    logits_a: Tensor, logits_b: Tensor, extra: int, *, overlap: str = "whole", mask: Tensor | None = None
) -> Tensor:
    """The mean L_SCE over the overlap; logits are [batch, L, words] of tokens [0, L) and of tokens [e, L + e).

    `mask` is [batch, L], true (or 1) at the real tokens of the first reading.
    """
    shapes, alike = f"{tuple(logits_a.shape)} and {tuple(logits_b.shape)}", logits_a.shape == logits_b.shape
    require(alike and logits_a.dim() == 3, f"logits of two readings must both be [batch, tokens, words], not {shapes}")
    views = Views(logits_a.shape[1], extra, overlap)
    first, second = views.shared
    counted = torch.ones_like(logits_a[..., 0], dtype=torch.bool) if mask is None else mask.bool()
    rows = tuple(logits_a.shape[:2])
    require(counted.shape == rows, f"the mask must be [batch, tokens], {rows} here, not {tuple(counted.shape)}")
    counted = counted[:, first]
    require(bool(counted.any()), "the mask leaves no position of the overlap; give rows with more tokens")
    sizes = [at.stop - at.start for at in chunks(views.positions, logits_a[:, 0].numel())]
    parts = zip(*(torch.split(x, sizes, 1) for x in (logits_a[:, first], logits_b[:, second], counted)), strict=True)
    # Computed again for the gradient, because autograd would keep length x vocabulary many times
    total: Tensor = sum(checkpoint(_summed, *part, use_reentrant=False) for part in parts)
    return total / counted.sum()


def _summed(logits: Tensor, other: Tensor, counted: Tensor) -> Tensor:
    return (symmetric_cross_entropy(logits, other) * counted).sum()


def chunks(positions: int, logits_each: int) -> Iterator[slice]:
    """Slices of a few positions each, so that no more than LOGITS_AT_ONCE logits are worked on at a time."""
    at_once = max(1, LOGITS_AT_ONCE // logits_each)
    for start in range(0, positions, at_once):
        yield slice(start, min(start + at_once, positions))


def log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities in float32 at least; that of a word that cannot come is finite, so that 0 ln 0 is 0."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    # Far enough from the end of the numbers that a weight of the loss does not make it infinite again
    return wide.log_softmax(-1).clamp_min(-math.sqrt(torch.finfo(wide.dtype).max))
