"""The next token of a generation: one query that sees all of a cache needs PyTorch's own attention at another scale, no more.

A generation runs through every layer for each token, and on a GPU it waits for Python. So what tokens have in common is found
once a forward, and no equation is made.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lengthwise.attention import Visible, autocast
from lengthwise.attention.fused import WIDEST
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask


def next_token(
    layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor, value: Tensor, visible: Visible, scale: float
) -> Tensor | None:
    """Output [batch, heads, 1, value_size]; None where the equation asks for more than another scale of one run of keys."""
    if not layer.only_sharpens or not query.dtype == key.dtype == value.dtype:
        return None
    slots = layer.slots
    agreed = ("next token", id(slots), id(visible), None if slots.layers_agree else layer.index)
    found = mask.once(agreed, lambda: _run_and_sharpness(layer, query, value, visible))
    if found is None:
        return None
    run, g = found
    if run is not None:
        key, value = key[:, :, run], value[:, :, run]
    if isinstance(g, Tensor):
        # g is float32, and so is the product until it is rounded
        query = (query * g[..., None]).to(query.dtype)
    else:
        scale *= g
    if scale <= 0:
        return None
    return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=key.shape[1] < query.shape[1])


def _run_and_sharpness(
    layer: Layer, query: Tensor, value: Tensor, visible: Visible
) -> tuple[slice | None, Tensor | float] | None:
    """The keys that all sequences see, None for all there are, and g of the query; None where they see different ones."""
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
        return run, 1.0
    # A number where all sequences and heads share it, for which a GPU is waited
    return run, float(g) if g.numel() == 1 and not g.requires_grad else g
