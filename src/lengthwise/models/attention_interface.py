"""The one attention function that lengthwise puts into transformers, while a model is extended and no longer.

Each attention module carries its `Layer`; the function turns what transformers hands it into an `Equation` and solves it. On
inputs up to the training length that the method leaves alone, the model's own implementation runs with its own arguments, so
that short inputs give bit for bit what they gave before.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.attention import DistanceBias, Equation, Part, Rest, Visible, as_they_stand, attention, scan
from lengthwise.attention.segments import within_segments
from lengthwise.errors import BadInput
from lengthwise.methods.base import FrequencyRotation, bias_radius, follows_length, method_name
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask, build_mask, decode
from lengthwise.models.position_ids import GivenPositions, given_positions
from lengthwise.models.rotary import Rotary, rotated
from lengthwise.models.state import LAYER

# Must not contain "sdpa", "flex" or "flash": transformers reads meaning into those
NAME = "lengthwise"


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
    layer = LAYER.on(module)
    if layer is None:
        raise BadInput(f"{type(module).__name__} shares a config with an extended stack but is not part of it")
    layer.visits += 1
    causal = kwargs.get("is_causal")
    causal = getattr(module, "is_causal", False) if causal is None else causal
    mask = decode(attention_mask, query.shape[2], key.shape[2], causal, query.device, layer.read)
    places = _places(layer, mask, kwargs.get("position_ids"))
    reach = key.shape[2] if places is None else max(key.shape[2], places.reach)
    if mask.stock is not None and layer.is_stock(reach):
        query, key = _rotated_as_trained(module, layer, mask, query, key, kwargs.get("position_ids"))
        if scaling is not None:
            kwargs["scaling"] = scaling
        return _stock(module, layer, mask, query, key, value, {**kwargs, "dropout": dropout})
    _refuse_unknown(module, kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if layer.slots.similarity is not None:
        query, key, scale = layer.slots.similarity.similarity(query, key)
    first, *more = _runs(module, layer, mask, query, key, places)
    equation = Equation(
        *first[:2],
        value,
        first[2],
        float(scale),
        _bias(layer, mask, query.shape[1]),
        dropout=dropout if module.training else 0.0,
        more=tuple(Rest(q, k, value, visible) for q, k, visible in more),
    )
    if layer.slots.segmented is not None:
        output = _solved_in_segments(layer, equation)
    else:
        output = _solved(layer, _tempered(layer, equation))
    return output.transpose(1, 2).contiguous(), None


def _places(layer: Layer, mask: ForwardMask, position_ids: Tensor | None) -> GivenPositions | None:
    """The caller's positions, where queries and keys arrive unrotated and some row sees them leap."""
    if layer.rotary is None or position_ids is None:
        return None
    places: GivenPositions | None = mask.once("places", lambda: given_positions(mask.visible, position_ids))
    if places is not None and layer.slots.parts is not None:
        raise BadInput(
            f"{method_name(layer.slots.parts)} counts distances in tokens, and these position_ids leap, up to {places.reach} "
            f"positions in {mask.visible.keys} tokens; give none, or take a method that changes frequencies"
        )
    return places


def _runs(
    module: nn.Module, layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor, places: GivenPositions | None
) -> list[tuple[Tensor, Tensor, Visible]]:
    """Queries, keys and mask of every part of the rows; the tables of their positions are made once a forward."""
    narrowed, frequencies, in_parts, rotary = layer.slots.narrowed, layer.slots.frequencies, layer.slots.parts, layer.rotary
    seen = mask.visible
    if narrowed is not None:
        seen = mask.once(("seen", id(narrowed)), lambda: narrowed.narrow(mask.visible))
    if rotary is None:
        return [(query, key, seen)]

    def placed() -> list[tuple[Part, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
        if frequencies is not None and follows_length(frequencies):
            _refuse_packed(frequencies, rotary.own, mask.visible)
        parts = [as_they_stand(seen)] if in_parts is None else in_parts.distances(seen, mask.visible)
        if places is not None:
            parts = [Part(seen, places.at, places.at)]
        lengths = mask.visible.count.amax(-1).clamp_min(1).tolist() if places is None else [places.reach]
        tables = [[_tables(rotary, frequencies, query, at, lengths) for at in (part.query, part.key)] for part in parts]
        return [(part, q, k) for part, (q, k) in zip(parts, tables, strict=True)]

    parts = mask.once(("placed", id(layer.slots.rotation), id(seen)), placed)
    turn = partial(rotated, module, layer.rotated_part)
    return [(turn(query, at_q), turn(key, at_k), part.visible) for part, at_q, at_k in parts]


def _refuse_packed(rotation: FrequencyRotation, own: Tensor, visible: Visible) -> None:
    """Where sequences of one row would each have their own. A token that sees nothing before itself begins one."""
    begins = (visible.start == visible.position) & (visible.count > 0)
    for packed, count in zip(begins, visible.count, strict=True):
        if int(packed.sum()) > 1:
            lengths = {int(count[part].max()) for part in _between(packed.nonzero()[:, 0].tolist(), len(count))}
            first, *others = (rotation.frequencies(own, length) for length in lengths)
            if not all(torch.equal(first, other) for other in others):
                raise BadInput(
                    f"{method_name(rotation)} gives each sequence the frequencies of its length, and these are packed, several "
                    "to a row; give each a row of its own"
                )


def _between(starts: list[int], end: int) -> list[slice]:
    return [slice(*ends) for ends in itertools.pairwise([*starts, end])]


def _tables(
    rotary: Rotary, rotation: FrequencyRotation | None, like: Tensor, at: Tensor, lengths: list[int]
) -> tuple[Tensor, Tensor]:
    """Frequencies may follow the length: each sequence of a batch has those of its own, whatever it is padded to."""
    if rotation is None:
        return rotary.tables(like, at)
    of = {length: rotation.frequencies(rotary.own, length) for length in set(lengths)}
    if len(of) == 1:
        return rotary.tables(like, at, of[lengths[0]])
    at = at.expand(len(lengths), -1)
    each = [rotary.tables(like, at[b : b + 1], of[length]) for b, length in enumerate(lengths)]
    cos, sin = (torch.cat(tables) for tables in zip(*each, strict=True))
    return cos, sin


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
    turn = partial(rotated, module, layer.rotated_part)
    return turn(query, at_query), turn(key, at_key)


def _bias(layer: Layer, mask: ForwardMask, heads: int) -> DistanceBias | None:
    method, owner = layer.slots.bias, layer.bias_owner
    if method is None:
        if owner is None:
            return None
        found: DistanceBias = mask.once(("bias", owner), lambda: bias_of(owner))
        return found
    device = mask.visible.start.device
    # A bias that is constant from some distance on needs no longer table
    radius = bias_radius(method, mask.visible.keys)
    found = mask.once(("bias", id(method), heads), lambda: DistanceBias(method.distance_bias(heads, radius).to(device)))
    return found


def _tempered(layer: Layer, equation: Equation, heads: slice = slice(None)) -> Equation:
    """With the temperatures of its rows; the entropy that adaptive ones ask for is read without a gradient."""

    @torch.no_grad()
    def entropy(g: Tensor | None) -> Tensor:  # [batch, heads, queries]
        g = equation.query.new_ones((1, 1, 1)) if g is None else g
        return scan(equation, g[None]).entropy[0]

    return replace(equation, inverse_temperature=layer.slots.inverse_temperature(equation.n, layer.index, entropy, heads))


def _solved(layer: Layer, equation: Equation) -> Tensor:
    if layer.observer is None:
        return attention(equation, implementation=layer.implementation)[0]
    tempered = equation.inverse_temperature
    equation = layer.observer.before(layer.index, equation)
    if equation.inverse_temperature is not tempered:
        layer.slots.refuse_adaptive()
    output, rows = attention(equation, statistics=True, implementation=layer.implementation)
    assert rows is not None
    layer.observer.after(layer.index, equation, rows)
    return output


def _solved_in_segments(layer: Layer, equation: Equation) -> Tensor:
    method, seen = layer.slots.segmented, equation.visible
    assert method is not None
    if seen.queries != seen.keys:
        raise BadInput(
            f"{method_name(method)} is for training on whole sequences, and here {seen.queries} tokens meet a cache of "
            f"{seen.keys - seen.queries}; leave it out to generate"
        )
    if layer.observer is not None:
        raise BadInput(f"{method_name(method)} is for training; leave it out to measure attention")

    def solve(segment: Equation, heads: slice) -> Tensor:
        return attention(_tempered(layer, segment, heads), implementation=layer.implementation)[0]

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
_counting = threading.Lock()


@contextmanager
def registered() -> Iterator[None]:
    """Put the function and the mask into transformers' two lists while somebody needs them."""
    global _users
    lists = type(ALL_ATTENTION_FUNCTIONS)._global_mapping, type(ALL_MASK_ATTENTION_FUNCTIONS)._global_mapping
    with _counting:
        if _users == 0:
            for mapping, function in zip(lists, (attention_forward, build_mask), strict=True):
                mapping[NAME] = function
        _users += 1
    try:
        yield
    finally:
        with _counting:
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
