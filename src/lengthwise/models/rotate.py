"""Rotate the queries and keys of one layer: at the positions that a method gives them, or as the model itself would.

Only where the model's rotary embedding was made to rotate nothing (`install`); elsewhere they arrive rotated and stay so.
"""

from __future__ import annotations

import itertools
from functools import partial

import torch
from torch import Tensor, nn

from lengthwise.attention import Part, Visible, as_they_stand
from lengthwise.errors import BadInput
from lengthwise.methods.base import FrequencyRotation, follows_length, method_name
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask
from lengthwise.models.position_ids import GivenPositions, given_positions
from lengthwise.models.rotary import Rotary, rotated

Tables = tuple[Tensor, Tensor]  # cos and sin, [batch or 1, tokens, pairs or key_size]


def leaping_positions(layer: Layer, mask: ForwardMask, position_ids: Tensor | None) -> GivenPositions | None:
    """The caller's positions, where we rotate and some row sees them leap."""
    if layer.rotary is None or position_ids is None:
        return None
    given: GivenPositions | None = mask.once("positions", lambda: given_positions(mask.visible, position_ids))
    if given is not None and layer.slots.parts is not None:
        raise BadInput(
            f"{method_name(layer.slots.parts)} counts distances in tokens, and these position_ids leap, up to {given.reach} "
            f"positions in {mask.visible.keys} tokens; give none, or take a method that changes frequencies"
        )
    return given


def rotate_parts(
    module: nn.Module, layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor, given: GivenPositions | None
) -> list[tuple[Tensor, Tensor, Visible]]:
    """Queries, keys and visible keys of every part of the rows."""
    narrowed, rotary = layer.slots.narrowed, layer.rotary
    seen = mask.visible
    if narrowed is not None:
        seen = mask.once(("seen", id(narrowed)), lambda: narrowed.narrow(mask.visible))
    if rotary is None:
        return [(query, key, seen)]
    tables = mask.once(
        ("tables", id(layer.slots.rotation), id(seen)), lambda: _part_tables(layer, rotary, mask.visible, seen, query, given)
    )
    turn = partial(rotated, module, layer.rotated_part)
    return [(turn(query, at_query), turn(key, at_key), part.visible) for part, at_query, at_key in tables]


def _part_tables(
    layer: Layer, rotary: Rotary, whole: Visible, seen: Visible, like: Tensor, given: GivenPositions | None
) -> list[tuple[Part, Tables, Tables]]:
    """Every part of the rows, with the tables of its queries and of its keys."""
    frequencies, in_parts = layer.slots.frequencies, layer.slots.parts
    if frequencies is not None and follows_length(frequencies):
        _refuse_packed(frequencies, rotary.trained, whole)
    parts = [as_they_stand(seen)] if in_parts is None else in_parts.distances(seen, whole)
    if given is None:
        lengths = whole.count.amax(-1).clamp_min(1).tolist()
    else:
        parts, lengths = [Part(seen, given.at, given.at)], [given.reach]
    tables = partial(_tables, rotary, frequencies, like, lengths=lengths)
    return [(part, tables(part.query), tables(part.key)) for part in parts]


def _refuse_packed(rotation: FrequencyRotation, trained: Tensor, visible: Visible) -> None:
    """Raise where sequences packed into one row need different frequencies; a token that sees none before it begins one."""
    first_tokens = (visible.start == visible.position) & (visible.count > 0)
    for starts, count in zip(first_tokens, visible.count, strict=True):
        if int(starts.sum()) > 1:
            lengths = {int(count[part].max()) for part in _between(starts.nonzero()[:, 0].tolist(), len(count))}
            first, *others = (rotation.frequencies(trained, length) for length in lengths)
            if not all(torch.equal(first, other) for other in others):
                raise BadInput(
                    f"{method_name(rotation)} gives each sequence the frequencies of its length, and these are packed, several "
                    "to a row; give each a row of its own"
                )


def _between(starts: list[int], end: int) -> list[slice]:
    return [slice(*ends) for ends in itertools.pairwise([*starts, end])]


def _tables(rotary: Rotary, rotation: FrequencyRotation | None, like: Tensor, at: Tensor, lengths: list[int]) -> Tables:
    """cos and sin at positions `at`, [batch or 1, tokens]; each sequence by the frequencies of its own length."""
    if rotation is None:
        return rotary.tables(like, at)
    frequencies = {length: rotation.frequencies(rotary.trained, length) for length in set(lengths)}
    if len(frequencies) == 1:
        return rotary.tables(like, at, frequencies[lengths[0]])
    at = at.expand(len(lengths), -1)
    each = [rotary.tables(like, at[b : b + 1], frequencies[length]) for b, length in enumerate(lengths)]
    cos, sin = (torch.cat(tables) for tables in zip(*each, strict=True))
    return cos, sin


def rotate_as_trained(
    module: nn.Module, layer: Layer, mask: ForwardMask, query: Tensor, key: Tensor, position_ids: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What the model's own rotary embedding would have made of queries and keys."""
    rotary = layer.rotary
    if rotary is None:
        return query, key

    def tables() -> tuple[Tables, Tables]:
        by_index = as_they_stand(mask.visible)
        if position_ids is None:
            return rotary.tables(query, by_index.query), rotary.tables(query, by_index.key)
        # The keys of a cache stand in one row before the queries
        before = by_index.key + position_ids[:, -1:] - by_index.query[:, -1:]
        at_key = position_ids if position_ids.shape[-1] == key.shape[2] else before
        return rotary.tables(query, position_ids), rotary.tables(query, at_key)

    at_query, at_key = mask.once(("as trained", id(rotary.module)), tables)
    turn = partial(rotated, module, layer.rotated_part)
    return turn(query, at_query), turn(key, at_key)
