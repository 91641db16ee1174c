"""The bias of a layer as a table over distances: T5's learned one, or a method's; the L x L tensor of it is never made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.attention import DistanceBias
from lengthwise.methods.base import bias_radius
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask


def layer_bias(layer: Layer, mask: ForwardMask, heads: int) -> DistanceBias | None:
    """The bias that the layer's equation adds to its logits, made once a forward."""
    method, owner = layer.slots.bias, layer.bias_owner
    bias: DistanceBias | None = None
    if method is not None:
        # A bias that is constant from some distance on needs no longer table
        radius, device = bias_radius(method, mask.visible.keys), mask.visible.start.device
        bias = mask.once(("bias", id(method), heads), lambda: DistanceBias(method.distance_bias(heads, radius).to(device)))
    elif owner is not None:
        bias = mask.once(("bias", owner), lambda: learned_bias(owner))
    return bias


def learned_bias(owner: nn.Module) -> DistanceBias:
    """T5's bias as a table over distances, with the bucket edges that transformers itself computes."""
    radius = int(owner.relative_attention_max_distance)  # type: ignore[arg-type]
    # The class's function: the instance's is replaced while the model is extended
    dense = type(owner).compute_bias(owner, 1, 2 * radius + 1, past_seen_tokens=radius)  # type: ignore[attr-defined]
    return DistanceBias(dense[0, :, 0])


def no_dense_bias(owner: nn.Module) -> Callable[..., Tensor]:
    """Takes the place of `compute_bias`, whose (1, heads, L, L) tensor nobody reads any more."""

    def compute_bias(*_: Any, **__: Any) -> Tensor:
        weight: Tensor = owner.relative_attention_bias.weight  # type: ignore[assignment, union-attr]
        return torch.zeros((1, 1, 1, 1), dtype=weight.dtype, device=weight.device)

    return compute_bias
