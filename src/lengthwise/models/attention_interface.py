"""The one attention function that lengthwise puts into transformers, while a model is extended and no longer.

Each attention module carries its `Layer`; the function turns what transformers hands it into an `Equation` and solves it. On
inputs up to the training length that the method leaves alone, the model's own implementation runs with its own arguments, so
that short inputs give bit for bit what they gave before.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.attention import Equation, Rest, attention, scan
from lengthwise.attention.segments import within_segments
from lengthwise.errors import BadInput, require
from lengthwise.methods.base import method_name
from lengthwise.models.bias import direct_attention, layer_bias
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask, build_mask, decode
from lengthwise.models.next_token import planned, token_plan
from lengthwise.models.patches import Patches
from lengthwise.models.rotate import leaping_positions, rotate_as_trained, rotate_parts, turns_of_parts
from lengthwise.models.state import LAYER

# Must not contain "sdpa", "flex" or "flash": transformers reads meaning into those
NAME = "lengthwise"


def attention_forward(
    module: nn.Module,
    query: Tensor,  # [batch, heads, queries, key_size]
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Any]:
    """The entry for transformers' AttentionInterface."""
    layer = LAYER.on(module)
    if layer is None:
        raise BadInput(f"{type(module).__name__} shares a config with an extended stack but is not part of it")
    if not torch.compiler.is_compiling():
        layer.visits += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    if query.size(2) == 1 and (plan := planned(layer, attention_mask, key)) is not None:
        output = plan.solve(module, layer, query, key, value, scale)
        if output is not None:
            return output.transpose(1, 2).contiguous(), None
    causal = kwargs.get("is_causal")
    causal = getattr(module, "is_causal", False) if causal is None else causal
    mask = decode(attention_mask, query.shape[2], key.shape[2], causal, query.device, layer.read, layer.empties_padding)
    given = leaping_positions(layer, mask, kwargs.get("position_ids"))
    # What a window has let go moves positions, too, where chunks of a sequence have their own
    reach = key.shape[2] + (0 if layer.slots.parts is None else int(mask.dropped))
    reach = reach if given is None else max(reach, given.reach)
    if mask.stock is not None and layer.is_stock(reach):
        if scaling is not None:
            kwargs["scaling"] = scaling
        return _stock_attention(module, layer, mask, query, key, value, {**kwargs, "dropout": dropout})
    _refuse_unknown(module, kwargs)
    if layer.only_biased and not (module.training and dropout > 0):
        output = direct_attention(layer, mask, query, key, value, position_bias, scale)
        if output is not None:
            return output, None
    if layer.slots.similarity is not None:
        query, key, scale = layer.slots.similarity.similarity(query, key)
    turns = turns_of_parts(layer, mask, query, given)
    if query.shape[2] == 1 and len(turns) == 1 and not module.training:
        plan = token_plan(layer, mask, turns[0], query, value, float(scale))
        output = None if plan is None else plan.solve(module, layer, query, key, value, float(scale))
        if output is not None:
            return output.transpose(1, 2).contiguous(), None
    first, *more = rotate_parts(module, layer, turns, query, key)
    equation = Equation(
        *first[:2],
        value,
        first[2],
        float(scale),
        layer_bias(layer, mask, query.shape[1], position_bias),
        dropout=dropout if module.training else 0.0,
        more=tuple(Rest(q, k, value, visible) for q, k, visible in more),
    )
    if layer.slots.segmented is not None:
        solved = _solve_in_segments(layer, equation)
    else:
        solved = _solve(layer, _with_temperature(layer, equation))
    return solved.transpose(1, 2).contiguous(), None


def _stock_attention(
    module: nn.Module,
    layer: Layer,
    mask: ForwardMask,
    query: Tensor,  # [batch, heads, queries, key_size]
    key: Tensor,
    value: Tensor,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Any]:
    """Output and weights of the implementation that the model came with; what it needs is made here, as it no longer is."""
    assert mask.stock is not None
    query, key = rotate_as_trained(module, layer, mask, query, key, kwargs.get("position_ids"))
    owner = layer.bias_owner
    if owner is not None:
        q, k = query.shape[2], key.shape[2]
        # A static cache has room behind the queries
        past = int(mask.visible.position[0]) if q < k else 0
        kwargs["position_bias"] = mask.once(
            (owner, q, k),
            lambda: type(owner).compute_bias(owner, q, k, device=query.device, past_seen_tokens=past),  # type: ignore[attr-defined]
        )
    stock_mask = mask.once(layer.stock, partial(mask.stock, layer.stock))
    eager = sys.modules[type(module).__module__].__dict__.get("eager_attention_forward")
    function = ALL_ATTENTION_FUNCTIONS.get(layer.stock, eager)
    if function is None:
        raise BadInput(f"{type(module).__name__}'s own attention implementation {layer.stock!r} cannot be found")
    return function(module, query, key, value, stock_mask, **kwargs)  # type: ignore[no-any-return]


def _with_temperature(layer: Layer, equation: Equation, heads: slice = slice(None)) -> Equation:
    """The equation with g of every row; the entropy that adaptive temperatures ask for is read without a gradient."""
    if not layer.slots.temperature:
        return equation

    @torch.no_grad()
    def entropy(g: Tensor | None) -> Tensor:  # [batch, heads, queries]
        g = equation.query.new_ones((1, 1, 1)) if g is None else g
        return scan(equation, g[None]).entropy[0]

    return replace(equation, inverse_temperature=layer.slots.inverse_temperature(equation.n, layer.index, entropy, heads))


def _solve(layer: Layer, equation: Equation) -> Tensor:
    if layer.observer is None:
        return attention(equation, implementation=layer.implementation)[0]
    equation = layer.observer.before(layer.index, equation)
    output, rows = attention(equation, statistics=True, implementation=layer.implementation)
    assert rows is not None
    layer.observer.after(layer.index, equation, rows)
    return output


def _solve_in_segments(layer: Layer, equation: Equation) -> Tensor:
    method, seen = layer.slots.segmented, equation.visible
    assert method is not None
    name, cached = method_name(method), seen.keys - seen.queries
    problem = f"{name} is for training on whole sequences, and here {seen.queries} tokens meet a cache of {cached}"
    require(cached == 0, f"{problem}; leave it out to generate")
    require(layer.observer is None, f"{name} is for training; leave it out to measure attention")

    def solve(segment: Equation, heads: slice) -> Tensor:
        return attention(_with_temperature(layer, segment, heads), implementation=layer.implementation)[0]

    return within_segments(equation, method.segments(seen.keys), solve)


def _refuse_unknown(module: nn.Module, kwargs: dict[str, Any]) -> None:
    """Raise for what some families put inside the softmax and the equation does not have."""
    for name, what in (("softcap", "caps its logits (softcap)"), ("s_aux", "has learned attention sinks")):
        if kwargs.get(name) is not None:
            raise BadInput(f"{type(module).__name__} {what}, which is outside lengthwise's equation: it cannot be extended")
    if kwargs.get("output_attentions", getattr(getattr(module, "config", None), "output_attentions", False)):
        raise BadInput("attention weights are never kept while a model is extended; ask lengthwise.row_statistics instead")


def register(patches: Patches) -> None:
    """Put both functions into transformers' lists while some model is extended; the last to end takes them out."""
    for known, function in ((ALL_ATTENTION_FUNCTIONS, attention_forward), (ALL_MASK_ATTENTION_FUNCTIONS, build_mask)):
        patches.set_shared(type(known)._global_mapping, NAME, function)
