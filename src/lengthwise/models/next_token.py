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
    """Output [batch, heads, 1, value_size]; None where the equation asks for more than another scale."""
    simple = layer.only_sharpens and query.dtype == key.dtype == value.dtype and value.shape[-1] <= WIDEST
    if not simple or torch.compiler.is_compiling() or autocast.is_on(query.device.type) or not visible.is_full:
        return None
    slots, index = layer.slots, layer.index
    g = mask.once(("g", id(slots), None if slots.layers_agree else index), lambda: _sharpness(layer, visible))
    if isinstance(g, Tensor):
        # g is float32, and so is the product until it is rounded
        query = (query * g[..., None]).to(query.dtype)
    else:
        scale *= g
    if scale <= 0:
        return None
    return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=key.shape[1] < query.shape[1])


def _sharpness(layer: Layer, visible: Visible) -> Tensor | float:
    """g of the query: a number where all sequences and heads share it, which a GPU is waited for."""
    g = layer.slots.inverse_temperature(visible.n, layer.index)
    if g is None:
        return 1.0
    return float(g) if g.numel() == 1 and not g.requires_grad else g
