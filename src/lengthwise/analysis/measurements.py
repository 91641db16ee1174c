"""What an analysis measures: one forward at one length, which heads lose their attention, how far learned biases look.

The sorted, then averaged logit vector of the first layer (Chi et al., section 6.1): every row's logits sorted from the largest
to the smallest, then averaged entry by entry over the rows. In an encoder all rows see all n keys, and entry r is the mean of
the r-th largest logits. A causal row sees fewer: it is stretched to the n keys of the widest, entry r taking the row's quantile
(r + 1/2) / n, and rows that see no more than `least_share` of the widest are left out.

How Gaussian such a vector is, its QQ plot against a normal tells (Figures 2 and 5):

    point r of the plot = (quantile (r + 1/2) / n of a normal, l_r)

A Gaussian vector lies on a straight line whose slope is sigma; the correlation of the points says how straight it is.

The sight of a head is how far its learned bias alone would make it look (Figure 1):

    sight(n) = sum over d of p(d) |d|,   p = softmax of bias(d) over the distances d that a row of n keys sees

The row stands in the middle of n tokens, or at their end in a causal model. The bias is constant from some distance on, so a
head's sight grows with the length all by itself.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.analysis.records import AtLength, Dispersal, Sight
from lengthwise.attention import DistanceBias, Equation, autocast
from lengthwise.attention.reference import logits
from lengthwise.calibration.align import AtSharpness
from lengthwise.calibration.measure import RowMeans, refuse_nan, row_weights, run_stack
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.bias import learned_bias
from lengthwise.models.extend import extend

LEAST_SHARE = AtSharpness.LEAST_SHARE  # as calibration has it
# Logits sorted at a time
CPU_BLOCK, CUDA_BLOCK = 2**22, 2**25
SHOWN = 161  # points kept of a plot


class FirstLayerLogits(RowMeans):
    """Means over rows that also keep the sorted, averaged logits of the first layer."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers, LEAST_SHARE)
        self.vectors: Tensor | None = None  # [heads, keys]

    def before(self, layer: int, equation: Equation) -> Equation:
        if layer == 0:
            self.vectors = sorted_mean(equation, LEAST_SHARE).cpu()
        return equation


def at_length(model: nn.Module, anatomy: Anatomy, ids: Tensor) -> AtLength:
    """Measure token ids [sequences, length] in one forward of the plain model."""
    observer = FirstLayerLogits(len(anatomy.layers))
    with extend(model, "none", train_length=anatomy.train_length, observer=observer):
        run_stack(anatomy, ids)
    means = observer.result()
    refuse_nan(anatomy, torch.stack([means.p_max, means.entropy, means.l_max], -1).sum(-1))
    assert observer.vectors is not None
    vector = observer.vectors.mean(0)
    ranks = shown_ranks(len(vector))
    return AtLength(
        length=ids.shape[1],
        sequences=len(ids),
        p_max=means.p_max.tolist(),
        entropy=means.entropy.tolist(),
        l_max=means.l_max.tolist(),
        keys=len(vector),
        logit_mean=float(vector.mean()),
        sigma=float(vector.std(correction=0)),
        top=float(vector[0]),
        top_p=top_probability(vector),
        qq_r=straightness(vector),
        ranks=ranks,
        quantiles=normal_quantiles(len(vector))[ranks].tolist(),
        logits=vector[ranks].tolist(),
        head_sigma=observer.vectors.std(-1, correction=0).tolist(),
        head_mean=observer.vectors.mean(-1).tolist(),
        head_qq_r=[straightness(head) for head in observer.vectors],
        head_logits=observer.vectors[:, ranks].tolist(),
    )


def dispersal(trained: AtLength, longest: AtLength) -> list[Dispersal]:
    """By how much the P_max of every head falls from the training length to the longest, the largest fall first."""
    heads = [
        Dispersal(
            layer=layer + 1,
            head=head + 1,
            p_max_train=p_max,
            p_max_longest=longest.p_max[layer][head],
            entropy_train=trained.entropy[layer][head],
            entropy_longest=longest.entropy[layer][head],
        )
        for layer, p_maxs in enumerate(trained.p_max)
        for head, p_max in enumerate(p_maxs)
    ]
    return sorted(heads, key=lambda head: -head.fall)


def sights(anatomy: Anatomy, longest: int) -> list[Sight]:
    """The sight of every head with a learned bias of its own, near-sighted ones first; none for models without one."""
    heads: list[Sight] = []
    for index, (layer, owner) in enumerate(zip(anatomy.layers, anatomy.bias_owners, strict=True)):
        if owner is not layer:
            continue
        with torch.no_grad():
            bias = DistanceBias(learned_bias(owner).table.double().cpu())
        near, far = (sight(bias, n, anatomy.causal).tolist() for n in (anatomy.train_length, longest))
        heads += [Sight(index + 1, head + 1, near[head], far[head], curve) for head, curve in enumerate(bias.table.tolist())]
    return sorted(heads, key=lambda head: head.sight_train)


def sight(bias: DistanceBias, n: int, causal: bool) -> Tensor:  # [heads]
    """Mean distance in tokens that a row of n keys looks at by its bias alone."""
    first = 1 - n if causal else -(n // 2)
    distance = torch.arange(first, first + n)
    weights = torch.softmax(bias.line(first, first + n - 1), -1)
    return weights @ distance.abs().to(weights)


def sorted_mean(equation: Equation, least_share: float = 0.0) -> Tensor:  # [heads, keys of the widest row], float64
    """The sorted, averaged logit vector of every head, over the rows of the whole batch; a block of rows at a time."""
    batch, heads, queries, _ = equation.query.shape
    weights = row_weights(equation.count, least_share).expand(batch, 1, queries)[..., None]
    width = int(equation.count.max())
    total = torch.zeros(heads, width, dtype=torch.float64, device=equation.query.device)
    block = CUDA_BLOCK if equation.query.is_cuda else CPU_BLOCK
    step = max(1, block // (batch * heads * equation.visible.keys))
    for first in range(0, queries, step):
        some = equation.rows(first, min(first + step, queries))
        hidden = ~some.visible.mask()[:, None]
        with autocast.off(equation.query.device.type):
            rows = _descending(logits(some).masked_fill(hidden, float("-inf")))[..., :width]
        rows = _stretched(rows, some.count).masked_fill(weights[:, :, first : first + step] == 0, 0.0)
        total += rows.sum((0, 2), dtype=torch.float64)
    return total / weights.sum()


def _descending(rows: Tensor) -> Tensor:
    if rows.device.type != "cpu":
        return rows.sort(-1, descending=True).values
    # On a CPU numpy sorts numbers five times as fast as torch, which keeps their places, too
    return torch.from_numpy(np.sort(rows.numpy(), -1)).flip(-1)


def _stretched(rows: Tensor, n: Tensor) -> Tensor:
    """Stretch rows whose first n entries count, n [batch or 1, rows], to as many entries as the widest has."""
    width = rows.shape[-1]
    if bool((n == width).all()):
        return rows
    entry = torch.arange(width, device=rows.device)
    quantile = ((2 * entry + 1) * n[..., None]) // (2 * width)  # [batch or 1, rows, width]
    return rows.gather(-1, quantile[:, None].expand(rows.shape))


def normal_quantiles(n: int) -> Tensor:  # [n], float64
    """The quantiles (r + 1/2) / n of a normal, the largest first."""
    quantiles: Tensor = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    return quantiles.flip(0)


def straightness(vector: Tensor) -> float | None:
    """Correlation of a sorted vector with the quantiles of a normal; None where all entries are equal."""
    if len(vector) < 2 or bool(vector[0] == vector[-1]):
        return None
    points = torch.stack([vector.double(), normal_quantiles(len(vector))])
    return float(torch.corrcoef(points)[0, 1])


def top_probability(vector: Tensor) -> float:
    """Softmax of the vector, at its largest entry."""
    return float(torch.exp(vector.max() - vector.logsumexp(-1)))


def shown_ranks(n: int) -> list[int]:
    """Entries to keep for the plot: both ends, and between them evenly by quantile of the normal; all where there are few."""
    if n <= SHOWN:
        return list(range(n))
    end = float(normal_quantiles(n)[0])
    shares: Tensor = torch.special.ndtr(torch.linspace(-end, end, SHOWN, dtype=torch.float64))
    return sorted(set((shares * n).long().clamp(0, n - 1).tolist()))
