"""Cosines of queries and keys in gated attention units, before and after the rotation, and how much of them the rotation makes.

content(i)  = variance over keys j of cos(q_i, k_j) before the rotation
rotation(i) = variance over keys of what the rotation adds to it
share       = rotation / (rotation + content), of means over rows                        Theorem 3.5 says: rises with S
distance    = share of the variance after the rotation, within rows, that the distance i - j alone explains
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize, silu

import lengthwise as lw
from lengthwise.attention import Equation, RowStatistics


def before_rotation(unit: Any, hidden: Tensor) -> Tensor:  # [batch, tokens, hidden_size] -> [batch, tokens, tokens]
    """The cosines of every two tokens, from what a gated attention unit is given."""
    shared = silu(unit.inward(hidden))[..., -unit.config.head_dim :]
    query, key = (normalize((shared * gamma).float(), dim=-1) for gamma in (unit.gamma_q, unit.gamma_k))
    return query @ key.transpose(-1, -2)


class Equations:
    """Keeps the rotated cosines of every layer that is solved."""

    def __init__(self) -> None:
        self.cosines: dict[int, Tensor] = {}

    def before(self, layer: int, equation: Equation) -> Equation:
        query, key = (normalize(side.float(), dim=-1) for side in (equation.query, equation.key))
        self.cosines[layer] = (query @ key.transpose(-1, -2))[0, 0]
        return equation

    def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None:
        pass


@torch.inference_mode()
def by_layer(model: Any, ids: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each layer the cosines of every two tokens before and after the rotation, [tokens, tokens] each."""
    bare: list[Tensor] = []
    units, rotated = [layer.attention for layer in model.model.layers], Equations()
    hooks = [
        unit.register_forward_pre_hook(lambda unit, args: bare.append(before_rotation(unit, args[0])[0])) for unit in units
    ]
    try:
        with lw.extend(model, "none", observer=rotated):
            model.model(torch.from_numpy(ids)[None].to(model.device))
    finally:
        for hook in hooks:
            hook.remove()
    return zip(bare, (rotated.cosines[layer] for layer in range(len(units))), strict=True)


def rotation_shares(before: Tensor, after: Tensor) -> dict[str, float]:
    """The spread of content and rotation over keys, and the two shares."""
    before, after = before.double(), after.double()
    content, added, whole = (float(part.var(1, correction=0).mean()) for part in (before, after - before, after))
    centred = after - after.mean(1, keepdim=True)
    places = torch.arange(len(after), device=after.device)
    at = (places[:, None] - places + len(after) - 1).flatten()
    sums, counts = (
        torch.zeros(2 * len(after) - 1, dtype=after.dtype, device=after.device).index_add(0, at, values)
        for values in (centred.flatten(), torch.ones_like(centred).flatten())
    )
    told = float((sums / counts)[at].square().mean())
    return {
        "content": content**0.5,
        "rotation": added**0.5,
        "share": added / (added + content) if added + content else 0.0,
        "distance": told / whole if whole else 0.0,
    }
