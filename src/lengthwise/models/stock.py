"""Run the model's own attention implementation as if it were not extended: short inputs give bit for bit what they gave.

Its mask, its dense bias and its rotation are made here, because the extended model no longer makes them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.errors import BadInput
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask
from lengthwise.models.rotate import rotate_as_trained


def stock_attention(
    module: nn.Module,
    layer: Layer,
    mask: ForwardMask,
    query: Tensor,  # [batch, heads, queries, key_size]
    key: Tensor,
    value: Tensor,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Any]:
    """Output and weights of the implementation that the model came with."""
    assert mask.stock is not None
    query, key = rotate_as_trained(module, layer, mask, query, key, kwargs.get("position_ids"))
    owner = layer.bias_owner
    if owner is not None:
        q, k = query.shape[2], key.shape[2]
        kwargs["position_bias"] = mask.once(
            (owner, q, k),
            lambda: type(owner).compute_bias(owner, q, k, device=query.device),  # type: ignore[attr-defined]
        )
    make = mask.stock
    stock_mask = mask.once(layer.stock, lambda: make(layer.stock))
    output, weights = _stock_function(module, layer.stock)(module, query, key, value, stock_mask, **kwargs)
    return output, weights


def _stock_function(module: nn.Module, name: str) -> Callable[..., Any]:
    eager = sys.modules[type(module).__module__].__dict__.get("eager_attention_forward")
    function = ALL_ATTENTION_FUNCTIONS.get(name, eager)
    if function is None:
        raise BadInput(f"{type(module).__name__}'s own attention implementation {name!r} cannot be found")
    return function  # type: ignore[no-any-return]
