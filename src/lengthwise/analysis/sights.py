"""How far the learned bias alone would make a head look (Chi et al., Figure 1).

    sight(n) = sum over d of p(d) |d|,   p = softmax of bias(d) over the distances d that a row of n keys sees

The row stands in the middle of n tokens, or at their end in a causal model. Near-sighted heads look at neighbours; far-sighted
ones look past them. The bias is constant from some distance on, so a head's sight grows with the length all by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lengthwise.analysis.records import Sight
from lengthwise.attention import DistanceBias
from lengthwise.models.anatomy import Anatomy
from lengthwise.models.attention_interface import bias_of


def sights(anatomy: Anatomy, longest: int) -> list[Sight]:
    """Of all heads with a learned bias of their own, near-sighted ones first; none for models without a learned bias."""
    found: list[Sight] = []
    for index, (layer, owner) in enumerate(zip(anatomy.layers, anatomy.bias_owners, strict=True)):
        if owner is not layer:
            continue
        with torch.no_grad():
            bias = DistanceBias(bias_of(owner).table.double().cpu())
        near, far = (sight(bias, n, anatomy.causal).tolist() for n in (anatomy.train_length, longest))
        found += [Sight(index + 1, head + 1, near[head], far[head], curve) for head, curve in enumerate(bias.table.tolist())]
    return sorted(found, key=lambda one: one.sight_train)


def sight(bias: DistanceBias, n: int, causal: bool) -> Tensor:  # [heads], tokens
    first = 1 - n if causal else -(n // 2)
    distance = torch.arange(first, first + n)
    weights = torch.softmax(bias.line(first, first + n - 1), -1)
    return weights @ distance.abs().to(weights)
