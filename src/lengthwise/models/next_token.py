"""The next token of a generation: one query that sees all of a cache needs PyTorch's own attention at another scale, no more.

A generation runs through every layer for each token, and on a GPU it waits for Python. So what tokens have in common is found
once a forward, and no equation is made.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lengthwise.attention import Visible, autocast
from lengthwise.attention.fused import WIDEST, one_sees_all
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask
from lengthwise.models.rotary import HalfTables, rotated
from lengthwise.models.rotate import Tables, Turns
from lengthwise.models.state import MASK


class TokenPlan(NamedTuple):
    """What the layers of one forward have in common when they attend from one query."""

    run: slice | None  # the keys that it sees; None for all
    g: Tensor | float
    at_query: Tables | None  # where queries are rotated; None where they stay as they are
    at_key: Tables | None

    def solve(self, module: nn.Module, layer: Layer, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor | None:
        """Output, [batch, heads, 1, value_size]; None where rotation leaves numbers of different types."""
        run, g, at_query, at_key = self
        if run is not None:
            key, value = key[:, :, run], value[:, :, run]
        if at_query is not None:
            query = rotated(module, layer.rotated_part, query, at_query)
        if at_key is not None:
            key = rotated(module, layer.rotated_part, key, at_key)
        if not query.dtype == key.dtype == value.dtype:
            return None
        if isinstance(g, Tensor):
            # g is float32, and so is the product until it is rounded
            query = (query * g[..., None]).to(query.dtype)
        else:
            scale *= g
        return one_sees_all(query, key, value, scale)


def planned(layer: Layer, mask: Tensor | None, key: Tensor) -> TokenPlan | None:
    """The plan that an earlier layer of this forward made, where those after it need nothing else."""
    known = None if mask is None else MASK.on(mask)
    # Every layer runs this for every token: no needless calls
    return None if known is None else known.token_plans.get((id(layer.slots), key.size(2), key.get_device()))


def token_plan(layer: Layer, mask: ForwardMask, turns: Turns, query: Tensor, value: Tensor, scale: float) -> TokenPlan | None:
    """How this layer attends from one query; None where the equation asks for more than another scale of one run of keys.

    Where layers agree, those after this one find the plan at once.
    """
    if torch.compiler.is_compiling() or not layer.only_sharpens or scale <= 0:
        return None
    slots = layer.slots
    agreed = ("next token", id(slots), id(turns.visible), None if slots.layers_agree else layer.index)
    plan: TokenPlan | None = mask.once(agreed, lambda: _plan(layer, query, value, turns))
    if plan is not None and slots.layers_agree and slots.similarity is None and not torch.is_grad_enabled():
        mask.token_plans[id(slots), value.size(2), value.get_device()] = plan
    return plan


def _plan(layer: Layer, query: Tensor, value: Tensor, turns: Turns) -> TokenPlan | None:
    """None where sequences see different keys, or PyTorch's attention would not do."""
    if autocast.is_on(query.device.type) or value.shape[-1] > WIDEST:
        return None
    run = turns.visible.run
    if run is None or run[0] >= run[1]:
        return None
    g = _sharpness(layer, turns.visible, run[1] - run[0])
    if isinstance(g, float) and g <= 0:
        return None
    if turns.visible.is_full:
        return TokenPlan(None, g, turns.at_query, turns.at_key)
    at_key = None if turns.at_key is None else _along(turns.at_key, slice(*run))
    return TokenPlan(slice(*run), g, turns.at_query, at_key)


def _sharpness(layer: Layer, visible: Visible, n: int) -> Tensor | float:
    """g of `n` keys: a number where all sequences and heads share it."""
    slots = layer.slots
    if not slots.laws:
        return 1.0
    # A law that is one number a forward is asked in the host's memory: a GPU would have to be waited for
    here = slots.layers_agree and not any(isinstance(law, nn.Module) for law in slots.laws)
    g = slots.inverse_temperature(torch.full((1, 1, 1), n, device="cpu") if here else visible.n, layer.index)
    assert g is not None
    return g.to(visible.device) if g.numel() > 1 or g.requires_grad else float(g)


def _along(tables: Tables, keys: slice) -> Tables:
    cos, sin = (table[..., keys, :] for table in tables)
    return HalfTables(cos, sin) if isinstance(tables, HalfTables) else (cos, sin)
