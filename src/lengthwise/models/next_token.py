"""The next token of a generation: one query that sees all of a cache needs PyTorch's own attention at another scale, no more.

A generation runs through every layer for each token, and on a GPU it waits for Python. So what tokens have in common is found
once a forward, and no equation is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lengthwise.attention import Visible, autocast
from lengthwise.attention.fused import WIDEST
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask
from lengthwise.models.state import MASK


@dataclass(frozen=True)
class TokenPlan:
    """What the layers of one forward have in common when they attend from one query."""

    run: slice | None  # the keys that it sees; None for all
    g: Tensor | float

    def solve(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Output, [batch, heads, 1, value_size]."""
        if self.run is not None:
            key, value = key[:, :, self.run], value[:, :, self.run]
        if isinstance(self.g, Tensor):
            # g is float32, and so is the product until it is rounded
            query = (query * self.g[..., None]).to(query.dtype)
        else:
            scale *= self.g
        return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=key.shape[1] < query.shape[1])


def planned(layer: Layer, mask: Tensor | None, keys: int) -> TokenPlan | None:
    """The plan that an earlier layer of this forward made for layers whose queries and keys stay as they arrive."""
    known = None if mask is None else MASK.on(mask)
    return known.token_plans.get(id(layer.slots)) if known is not None and known.visible.keys == keys else None


def next_token(
    layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor, visible: Visible, value: Tensor, scale: float, unmoved: bool
) -> Tensor | None:
    """Output [batch, heads, 1, value_size]; None where the equation asks for more than another scale of one run of keys.

    Where queries and keys are `unmoved`, as they arrived, and layers agree, those after this one find the plan at once.
    """
    if not layer.only_sharpens or not query.dtype == key.dtype == value.dtype or scale <= 0:
        return None
    slots = layer.slots
    agreed = ("next token", id(slots), id(visible), None if slots.layers_agree else layer.index)
    plan: TokenPlan | None = mask.once(agreed, lambda: _plan(layer, query, value, visible))
    if plan is None:
        return None
    if unmoved and slots.layers_agree and not torch.is_grad_enabled():
        mask.token_plans[id(slots)] = plan
    return plan.solve(query, key, value, scale)


def _plan(layer: Layer, query: Tensor, value: Tensor, visible: Visible) -> TokenPlan | None:
    """None where sequences see different keys, or PyTorch's attention would not do."""
    if torch.compiler.is_compiling() or autocast.is_on(query.device.type) or value.shape[-1] > WIDEST:
        return None
    run = None
    if not visible.is_full:
        rows = {*zip(visible.start.flatten().tolist(), visible.stop.flatten().tolist(), strict=True)}
        first, stop = next(iter(rows))
        if visible.hidden is not None or len(rows) > 1 or first >= stop:
            return None
        run = slice(first, stop)
    g = layer.slots.inverse_temperature(visible.n, layer.index)
    if g is None:
        return TokenPlan(run, 1.0)
    # A number where all sequences and heads share it, for which a GPU is waited
    if g.numel() > 1 or g.requires_grad:
        return TokenPlan(run, g)
    return TokenPlan(run, float(g)) if float(g) > 0 else None
