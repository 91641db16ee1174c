"""The bias of a layer as a table over distances: T5's learned one, or a method's; the L x L tensor of it is never made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from lengthwise.attention import DistanceBias, Visible, autocast
from lengthwise.attention.bias import widened_reach
from lengthwise.attention.triton.direct import direct
from lengthwise.methods.base import bias_radius
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask


def layer_bias(layer: Layer, mask: ForwardMask, heads: int, position_bias: Tensor | None) -> DistanceBias | None:
    """The bias that the layer's equation adds to its logits; `position_bias` is what a bias owner's `compute_bias` gave."""
    method, owner = layer.slots.bias, layer.bias_owner
    bias: DistanceBias | None = None
    if method is not None:
        # A bias that is constant from some distance on needs no longer table
        radius, device = bias_radius(method, mask.visible.keys), mask.visible.start.device
        bias = mask.once(("bias", id(method), heads), lambda: DistanceBias(method.distance_bias(heads, radius).to(device)))
    elif owner is not None and isinstance(owner.relative_attention_bias, nn.Embedding):
        assert position_bias is not None
        # FSDP's mixed precision rounds what one block hands to the next; kernels read float32
        line = position_bias
        bias = mask.of_tensor(line, lambda: DistanceBias.of_widened(line[0, :, 0].float(), _radius(owner)))
    elif owner is not None:
        bias = mask.once(("bias", owner), lambda: learned_bias(owner))
    return bias


def direct_attention(
    layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor, value: Tensor, position_bias: Tensor | None, scale: float
) -> Tensor | None:  # [batch, queries, heads, size]
    """The output of a layer that adds T5's bias and does nothing else, at the least cost to the host; None where it cannot."""
    if torch.compiler.is_compiling() or position_bias is None or position_bias.shape[-1] == 1:
        return None
    if torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value, position_bias)):
        return None
    if query.is_cuda or layer.implementation == "triton":
        return direct(query, key, value, mask.visible, position_bias.float(), _radius(layer.bias_owner), scale)
    if query.shape[2] == 1 and query.device.type == "cpu":
        return _one_token(layer_bias(layer, mask, query.shape[1], position_bias), mask.visible, query, key, value, scale)
    return None


def _one_token(
    bias: DistanceBias | None, visible: Visible, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor | None:  # [batch, 1, heads, size]
    """A decoder's next token by PyTorch's own attention; None where sequences see different keys."""
    run = visible.run
    if bias is None or run is None or run[0] >= run[1] or autocast.is_on("cpu") or not query.dtype == key.dtype == value.dtype:
        return None
    row = bias.at(torch.arange(*run) - visible.position).to(torch.promote_types(query.dtype, torch.float32))
    key, value = key[:, :, slice(*run)], value[:, :, slice(*run)]
    return scaled_dot_product_attention(query, key, value, attn_mask=row[None, :, None], scale=scale).transpose(1, 2)


def learned_bias(owner: nn.Module) -> DistanceBias:
    """T5's bias as a table over distances, with the bucket edges that transformers itself computes."""
    device: Any = owner.relative_attention_bias.weight.device  # type: ignore[union-attr]
    return DistanceBias(_line(owner, owner, _radius(owner), device)[0, :, 0])


def table_instead_of_matrix(owner: nn.Module) -> Callable[..., Tensor]:
    """Takes the place of `compute_bias`: instead of (1, heads, L, L), T5's bias at every distance that a kernel reads.

    T5 hands it from layer to layer as it handed the matrix, so it is made once a forward, with its gradient. Of another bias,
    whose table is read by itself, nothing.
    """
    embedding: Any = owner.relative_attention_bias
    if not isinstance(embedding, nn.Embedding):
        return no_bias
    reach = widened_reach(_radius(owner))
    # Made where a tensor has numbers and may serve a gradient, whatever the model is made or accelerated in
    with torch.inference_mode(False):
        buckets = _line(owner, _without_embedding(owner), reach, torch.device("cpu"))[0, 0, 0]
    moved = {buckets.device: buckets}

    def compute_bias(*_: Any, device: torch.device | None = None, **__: Any) -> Tensor:  # [1, heads, 1, 2 reach + 1]
        held: torch.device = owner.relative_attention_bias.weight.device  # type: ignore[union-attr, assignment]
        # The weights of an offloaded model are nowhere until its embedding is called
        device = device if held.type == "meta" and device is not None else held
        if torch.compiler.is_compiling():
            # All of it in the graph: a tensor that comes from outside would be copied into a CUDA graph at every call
            return _line(owner, owner, reach, device).float().contiguous()
        if device not in moved:
            with torch.inference_mode(False):
                moved[device] = buckets.to(device)
        values: Tensor = owner.relative_attention_bias(moved[device])  # type: ignore[operator]
        return values.float().T.contiguous()[None, :, None]

    return compute_bias


def no_bias(*_: Any, device: torch.device | None = None, **__: Any) -> Tensor:
    """Takes the place of `compute_bias` where nobody reads what it makes."""
    return torch.zeros((1, 1, 1, 1), device=device)


def _line(owner: Any, as_if: nn.Module, reach: int, device: torch.device) -> Tensor:  # [1, heads, 1, 2 reach + 1]
    """The bias of one query at every distance, by the class's own function: the instance's may be replaced."""
    line: Tensor = type(owner).compute_bias(as_if, 1, 2 * reach + 1, device=device, past_seen_tokens=reach)
    return line


def _without_embedding(owner: nn.Module) -> nn.Module:
    """As `owner`, but what it says of a distance is the row of its embedding, not what stands there."""

    class WithoutEmbedding(type(owner)):  # type: ignore[misc]
        def __init__(self) -> None:
            self.__dict__.update(vars(owner))

        def relative_attention_bias(self, buckets: Tensor) -> Tensor:
            return buckets[..., None]

    return WithoutEmbedding()


def _radius(owner: Any) -> int:
    return int(owner.relative_attention_max_distance)
