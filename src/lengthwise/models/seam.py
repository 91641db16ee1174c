"""The one attention function that lengthwise puts into transformers, while a model is extended and no longer.

Each attention module carries its `Layer`; the function turns what transformers hands it into an `Equation` and solves it. On
inputs up to the training length that the method leaves alone, the model's own implementation runs with its own arguments, so
that short inputs give bit for bit what they gave before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.attention import DistanceBias, Equation, Part, Rest, RowStatistics, Visible, as_they_stand, attention
from lengthwise.attention.segments import within_segments
from lengthwise.errors import BadInput
from lengthwise.models.masks import ForwardMask, build_mask, decode
from lengthwise.models.rotary import Rotary, rotated
from lengthwise.slots import Slots, name_of

# Must not contain "sdpa", "flex" or "flash": transformers reads meaning into those
NAME = "lengthwise"
LAYER = "_lengthwise_layer"


class Observer(Protocol):
    """Watches the layers of a running forward; calibration and measurement are observers."""

    def before(self, layer: int, equation: Equation) -> Equation:
        """May replace the equation that the layer is about to solve."""
        ...

    def after(self, layer: int, equation: Equation, rows: RowStatistics) -> None: ...


@dataclass
class Layer:
    """What one attention module knows while its model is extended."""

    index: int
    slots: Slots
    stock: str  # the implementation the model came with
    train_length: int
    bias_owner: nn.Module | None
    implementation: str = "auto"
    observer: Observer | None = None
    rotary: Rotary | None = None  # set where queries and keys arrive unrotated
    visits: int = 0
    _short: dict[int, bool] = field(default_factory=dict)

    def is_stock(self, keys: int) -> bool:
        """Whether inputs of this many keys are the old model's, bit for bit."""
        if self.observer is not None or self.implementation != "auto" or keys > self.train_length:
            return False
        if keys not in self._short:
            self._short[keys] = self.slots.leaves_alone(keys, self.index)
        return self._short[keys]


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Any]:
    """The entry for transformers' AttentionInterface."""
    layer: Layer | None = module.__dict__.get(LAYER)
    if layer is None:
        raise BadInput(f"{type(module).__name__} shares a config with an extended stack but is not part of it")
    layer.visits += 1
    causal = kwargs.get("is_causal")
    causal = getattr(module, "is_causal", False) if causal is None else causal
    mask = decode(attention_mask, query.shape[2], key.shape[2], causal, query.device)
    if mask.stock is not None and layer.is_stock(key.shape[2]):
        query, key = _rotated_as_trained(module, layer, mask, query, key, kwargs.get("position_ids"))
        if scaling is not None:
            kwargs["scaling"] = scaling
        return _stock(module, layer, mask, query, key, value, {**kwargs, "dropout": dropout})
    _refuse_unknown(module, kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if layer.slots.similarity is not None:
        query, key, scale = layer.slots.similarity.similarity(query, key)
    first, *more = _runs(module, layer, mask, query, key)
    equation = Equation(
        *first[:2],
        value,
        first[2],
        float(scale),
        _bias(layer, mask, query.shape[1]),
        dropout=dropout if module.training else 0.0,
        more=tuple(Rest(q, k, value, visible) for q, k, visible in more),
    )
    if hasattr(layer.slots.visible, "segments"):
        output = _solved_in_segments(layer, equation)
    else:
        equation = replace(equation, inverse_temperature=layer.slots.inverse_temperature(equation.n, layer.index))
        output = _solved(layer, equation)
    return output.transpose(1, 2).contiguous(), None


def _runs(
    module: nn.Module, layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor
) -> list[tuple[Tensor, Tensor, Visible]]:
    """Queries, keys and mask of every part of the rows; the tables of their positions are made once a forward."""
    narrow, rotation, rotary = layer.slots.visible, layer.slots.rotation, layer.rotary
    seen = mask.visible
    if hasattr(narrow, "narrow"):
        seen = mask.once(("seen", id(narrow)), lambda: narrow.narrow(mask.visible))
    if rotary is None:
        return [(query, key, seen)]

    def placed() -> list[tuple[Part, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
        apart = rotation is not None and hasattr(rotation, "distances")
        parts = rotation.distances(seen, mask.visible) if apart else [as_they_stand(seen)]
        frequencies = None
        if rotation is not None and hasattr(rotation, "frequencies"):
            frequencies = rotation.frequencies(rotary.own, int(mask.visible.count.amax()))
        tables = [[rotary.tables(query, at, frequencies) for at in (part.query, part.key)] for part in parts]
        return [(part, q, k) for part, (q, k) in zip(parts, tables, strict=True)]

    parts = mask.once(("placed", id(rotation), id(seen)), placed)
    return [(rotated(module, query, at_q), rotated(module, key, at_k), part.visible) for part, at_q, at_k in parts]


def _rotated_as_trained(
    module: nn.Module, layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor, position_ids: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What the model's own rotary embedding would have made of them."""
    rotary = layer.rotary
    if rotary is None:
        return query, key

    def tables() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        own = as_they_stand(mask.visible)
        if position_ids is None:
            return rotary.tables(query, own.query), rotary.tables(query, own.key)
        # The keys of a cache stand in one row before the queries
        before = own.key + position_ids[:, -1:] - own.query[:, -1:]
        at_key = position_ids if position_ids.shape[-1] == key.shape[2] else before
        return rotary.tables(query, position_ids), rotary.tables(query, at_key)

    at_query, at_key = mask.once(("as trained", id(rotary.module)), tables)
    return rotated(module, query, at_query), rotated(module, key, at_key)


def _bias(layer: Layer, mask: ForwardMask, heads: int) -> DistanceBias | None:
    method, owner = layer.slots.bias, layer.bias_owner
    if method is None:
        if owner is None:
            return None
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in owner.parameters()):
            # Layers that are computed again in the backward pass must find nothing made
            return bias_of(owner)
        found: DistanceBias = mask.once(("bias", owner), lambda: bias_of(owner))
        return found
    device = mask.visible.start.device
    # A bias that is constant from some distance on needs no longer table
    radius = min(mask.visible.keys, getattr(method, "max_distance", mask.visible.keys))
    found = mask.once(("bias", id(method), heads), lambda: DistanceBias(method.distance_bias(heads, radius).to(device)))
    return found


def _solved(layer: Layer, equation: Equation) -> Tensor:
    if layer.observer is None:
        return attention(equation, implementation=layer.implementation)[0]
    equation = layer.observer.before(layer.index, equation)
    output, rows = attention(equation, statistics=True, implementation=layer.implementation)
    assert rows is not None
    layer.observer.after(layer.index, equation, rows)
    return output


def _solved_in_segments(layer: Layer, equation: Equation) -> Tensor:
    method, seen = layer.slots.visible, equation.visible
    if seen.queries != seen.keys:
        raise BadInput(
            f"{name_of(method)} is for training on whole sequences, and here {seen.queries} tokens meet a cache of "
            f"{seen.keys - seen.queries}; leave it out to generate"
        )
    if layer.observer is not None:
        raise BadInput(f"{name_of(method)} is for training; leave it out to measure attention")

    def solve(segment: Equation, heads: slice) -> Tensor:
        g = layer.slots.inverse_temperature(segment.n, layer.index)
        if g is not None and g.shape[1] > 1:
            g = g[:, heads]
        return attention(replace(segment, inverse_temperature=g), implementation=layer.implementation)[0]

    return within_segments(equation, method.segments(seen.keys), solve)


def bias_of(owner: nn.Module) -> DistanceBias:
    """The learned bias as a table over distances, with the bucket edges transformers itself computes."""
    radius = int(owner.relative_attention_max_distance)  # type: ignore[arg-type]
    # The class's own function: the instance's is replaced while the model is extended
    dense = type(owner).compute_bias(owner, 1, 2 * radius + 1, past_seen_tokens=radius)  # type: ignore[attr-defined]
    return DistanceBias(dense[0, :, 0])


def _stock(
    module: nn.Module, layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor, value: Tensor, kwargs: dict[str, Any]
) -> tuple[Tensor, Any]:
    assert mask.stock is not None
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


def _refuse_unknown(module: nn.Module, kwargs: dict[str, Any]) -> None:
    """Things some families put inside the softmax that the equation does not have."""
    for name, what in (("softcap", "caps its logits (softcap)"), ("s_aux", "has learned attention sinks")):
        if kwargs.get(name) is not None:
            raise BadInput(f"{type(module).__name__} {what}, which is outside lengthwise's equation: it cannot be extended")
    if kwargs.get("output_attentions"):
        raise BadInput("attention weights are never kept while a model is extended; ask lengthwise.row_statistics instead")


_users = 0


@contextmanager
def registered() -> Iterator[None]:
    """Put the function and the mask into transformers' two lists while somebody needs them."""
    global _users
    lists = type(ALL_ATTENTION_FUNCTIONS)._global_mapping, type(ALL_MASK_ATTENTION_FUNCTIONS)._global_mapping
    if _users == 0:
        for mapping, function in zip(lists, (attention_forward, build_mask), strict=True):
            mapping[NAME] = function
    _users += 1
    try:
        yield
    finally:
        _users -= 1
        if _users == 0:
            for mapping in lists:
                mapping.pop(NAME, None)


def no_dense_bias(owner: nn.Module) -> Callable[..., Tensor]:
    """Takes the place of `compute_bias`, whose (1, heads, L, L) tensor nobody reads any more."""

    def compute_bias(*_: Any, **__: Any) -> Tensor:
        weight: Tensor = owner.relative_attention_bias.weight  # type: ignore[assignment, union-attr]
        return torch.zeros((1, 1, 1, 1), dtype=weight.dtype, device=weight.device)

    return compute_bias
