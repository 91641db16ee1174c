"""Rotate the queries and keys of one layer: at the positions that a method gives them, or as the model itself would.

Only where the model's rotary embedding was made to rotate nothing (`install`), or where keys are cached rotated and a few are
turned on; elsewhere they arrive rotated and stay so.

A rotation sees differences alone: positions that count one by one through all that a row sees are as good as the keys' indices,
wherever they begin. So padding and packed sequences ask for nothing. Positions that leap, as PoSE's and RandomPos' do, must be
kept: `GivenPositions` holds them, and how far the widest row of each sequence reaches.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lengthwise.attention import Part, Visible, as_one, as_they_stand
from lengthwise.attention.visible import is_exporting
from lengthwise.errors import BadInput, require
from lengthwise.methods.base import FrequencyRotation, Temperature, follows_length, method_name
from lengthwise.models.layer import Layer
from lengthwise.models.masks import ForwardMask
from lengthwise.models.rolling_layer import Turn
from lengthwise.models.rotary import HalfTables, Rotary, rotated

IN_A_CACHE = "these position_ids leap, and a cache keeps no positions; run the whole sequence at once, without a cache"
IN_A_GRAPH = "these position_ids leap, which a graph made by torch.export under a position method cannot take"
BETWEEN = "this batch has padding between tokens, and a cache keeps no positions; pad on the left, or run without a cache"

Tables = tuple[Tensor, Tensor]  # cos and sin, [batch or 1, tokens, pairs or key_size]


@dataclass(frozen=True)
class GivenPositions:
    """Positions of a whole sequence, some of them left out."""

    at: Tensor  # [batch or 1, tokens]
    lengths: list[int]  # of each sequence: positions from the first to the last key of its widest row

    @property
    def reach(self) -> int:
        return max(self.lengths)


def leaping_positions(layer: Layer, mask: ForwardMask, position_ids: Tensor | None) -> GivenPositions | None:
    """The caller's positions, where we rotate or count distances, and some row sees them leap."""
    counting = layer.slots.parts or layer.slots.bias
    if position_ids is None or (layer.rotary is None and counting is None):
        return None
    given: GivenPositions | None = mask.once("positions", lambda: _given_positions(mask.visible, position_ids))
    if given is not None and counting is not None:
        raise BadInput(
            f"{method_name(counting)} counts distances in tokens, and these position_ids leap, up to {given.reach} "
            f"positions in {mask.visible.keys} tokens; give none, or take a method that changes frequencies"
        )
    return given


def _given_positions(visible: Visible, given: Tensor) -> GivenPositions | None:  # [batch or 1, queries]
    """None where no row sees a leap."""
    if visible.queries != visible.keys:
        # Here and in `check_caches`: a single token cannot leap, and a GPU is asked for nothing
        require(given.shape[-1] < 2 or not leaps(given, visible.count > 0, visible.position), IN_A_CACHE)
        require(not _counts_past_holes(visible, given), BETWEEN)
        return None
    if not is_exporting() and bool((given.diff(dim=-1) == 1).all()):
        return None
    batch = max(given.shape[0], visible.start.shape[0], visible.stop.shape[0])
    first = visible.start.clamp_max(visible.keys - 1).expand(batch, -1).long()
    last = (visible.stop - 1).clamp_min(0).expand(batch, -1).long()
    given = given.expand(batch, -1)
    # Whatever the first token's is, it is in all of a row. Not by `diff`, whose size a graph would take to be above 1
    breaks = (given.roll(1, -1) != given - 1).cumsum(-1)
    real = visible.count > 0
    leaping = (real & (breaks.gather(-1, last) > breaks.gather(-1, first))).any()
    if is_exporting():
        torch._assert_async(~leaping, IN_A_GRAPH)
        return None
    if not bool(leaping):
        return None
    widest = torch.where(real, given.gather(-1, last) - given.gather(-1, first) + 1, 0).amax(-1)
    return GivenPositions(given, torch.maximum(widest.ceil(), visible.count.amax(-1).clamp_min(1)).long().tolist())


def _counts_past_holes(visible: Visible, given: Tensor) -> bool:
    """Whether a row sees keys on both sides of hidden ones, by positions that leave these out: so the first stand nearer."""
    if visible.hidden is None:
        return False
    return bool(((visible.count < visible.stop - visible.start) & (given != visible.position)).any())


def leaps(given: Tensor, real: Tensor | None = None, index: Tensor | None = None) -> bool:
    """Whether the real ones of these tokens, of one sequence a row, do not stand one by one."""
    if given.shape[-1] < 2:
        return False
    index = torch.arange(given.shape[-1], device=given.device) if index is None else index
    shift = given - index
    real = torch.ones_like(shift, dtype=torch.bool) if real is None else real
    low = torch.where(real, shift, torch.inf).amin(-1)
    high = torch.where(real, shift, -torch.inf).amax(-1)
    return bool((low < high).any())


class Turns(NamedTuple):
    """The keys that one part of the rows sees, and the tables of its queries and of its keys; None where they stay."""

    visible: Visible
    at_query: Tables | None
    at_key: Tables | None


def turns_of_parts(layer: Layer, mask: ForwardMask, like: Tensor, given: GivenPositions | None) -> list[Turns]:
    """How every part of the rows is rotated, found once a forward."""
    narrowed, rotary = layer.slots.narrowed, layer.rotary
    if layer.arrive_rotated and _all_in_line(layer, mask.visible):
        return [Turns(mask.visible, None, None)]
    seen = mask.visible
    if narrowed is not None:
        seen = mask.once(("seen", id(narrowed)), lambda: narrowed.narrow(mask.visible))
    if rotary is None:
        return [Turns(seen, None, None)]
    if torch.compiler.is_compiling():
        return _part_turns(layer, rotary, mask.visible, seen, like, given)
    turns: list[Turns] = mask.once(
        ("turns", id(layer.slots.rotation), id(seen)), lambda: _part_turns(layer, rotary, mask.visible, seen, like, given)
    )
    return turns


def rotate_parts(
    module: nn.Module, layer: Layer, turns: list[Turns], query: Tensor, key: Tensor
) -> list[tuple[Tensor, Tensor, Visible]]:
    """Queries, keys and visible keys of every part of the rows."""
    turn = partial(rotated, module, layer.rotated_part)
    # Parts whose keys stand at the same places share them
    parts: list[tuple[Tensor, Tensor, Visible]] = []
    made: list[tuple[Tables | None, Tensor]] = []
    for visible, at_query, at_key in turns:
        keys = next((keys for at, keys in made if at is at_key), None)
        if keys is None:
            heads = 1 if at_key is None or at_key[0].dim() < 4 else at_key[0].shape[1]
            fits = key.shape[1] % heads == 0
            require(fits, f"these positions are for {heads} key heads, and the model has {key.shape[1]}; give key_heads right")
            keys = key if at_key is None else turn(key, at_key)
            made.append((at_key, keys))
        parts.append((query if at_query is None else turn(query, at_query), keys, visible))
    return parts


def _all_in_line(layer: Layer, visible: Visible) -> bool:
    """Whether this is a token after a cache that rolls, which has brought its keys to where the token must see them."""
    rolling = layer.slots.rolling
    return rolling is not None and visible.queries == 1 and visible.keys <= rolling.sinks + rolling.window and visible.is_full


def turned_on(module: nn.Module, layer: Layer) -> Turn:
    """How a rolling cache turns the keys of this layer that stay while others are dropped."""
    rotary, part = layer.rotary, layer.rotated_part
    assert rotary is not None

    def turn(keys: Tensor, first: int, count: int) -> Tensor:
        shifts = torch.arange(first, first + count, device=keys.device).repeat_interleave(keys.shape[2])
        turned = rotated(module, part, keys.repeat(1, 1, count, 1), rotary.without_scaling().tables(keys, shifts[None]))
        return turned.view(*keys.shape[:2], count, *keys.shape[2:])

    return turn


def _part_turns(
    layer: Layer, rotary: Rotary, whole: Visible, seen: Visible, like: Tensor, given: GivenPositions | None
) -> list[Turns]:
    frequencies, in_parts = layer.slots.frequencies, layer.slots.parts
    if frequencies is not None and follows_length(frequencies):
        asks = f"{method_name(frequencies)} goes by the length of each input, which torch.export cannot ask for"
        require(not is_exporting(), f"{asks}; export a method that does not")
        if whole.queries > 1:
            _refuse_packed(frequencies, rotary.trained, whole)
    parts = [as_they_stand(seen)] if in_parts is None else [*in_parts.distances(seen, whole)]
    if whole.queries == 1:
        parts = [as_one(parts)]
    if layer.arrive_rotated:
        return [Turns(part.visible, *_turned_on_from(rotary, part, like)) for part in parts]
    if given is not None:
        parts = [Part(seen, given.at, given.at)]
    lengths = [] if frequencies is None else _lengths(seen) if given is None else given.lengths
    tables = partial(_tables, rotary, frequencies, like, lengths=lengths)
    # A single query stands at 0, which turns nothing but where a family scales its tables
    stays = whole.queries == 1 and given is None and rotary.only_turns
    in_halves = HalfTables.of if layer.turns_halves and like.shape[-1] == 2 * len(rotary.trained) else lambda made: made
    at_key = {id(part.key): in_halves(tables(part.key)) for part in {id(part.key): part for part in parts}.values()}
    return [Turns(part.visible, None if stays else in_halves(tables(part.query)), at_key[id(part.key)]) for part in parts]


def _lengths(seen: Visible) -> list[int]:
    """How many keys the widest row of each sequence sees, or of all of them: what temperatures of one s go by, too."""
    if seen.row is not None:
        start, stop, _ = seen.row
        return [max(stop - start, 1)]
    lengths: list[int] = seen.count.amax(-1).clamp_min(1).tolist()
    return lengths


def _turned_on_from(rotary: Rotary, part: Part, like: Tensor) -> tuple[Tables | None, Tables | None]:
    """Tables that take queries and keys from where they stand to where the part wants them; only differences matter."""
    here = as_they_stand(part.visible)
    moved = part.query - here.query
    start = moved[:, :1]
    shifts = moved - start, part.key - here.key - start
    turns = rotary.without_scaling()
    at_query, at_key = (turns.tables(like, shift) if is_exporting() or bool(shift.any()) else None for shift in shifts)
    return at_query, at_key


def _refuse_packed(rotation: FrequencyRotation, trained: Tensor, visible: Visible) -> None:
    """Raise where sequences packed into one row are read differently; a token that sees none before it begins one."""
    first_tokens = (visible.start == visible.position) & (visible.count > 0)
    for starts, count in zip(first_tokens, visible.count, strict=True):
        if int(starts.sum()) > 1:
            ends = itertools.pairwise([*starts.nonzero()[:, 0].tolist(), len(count)])
            lengths = {int(count[start:end].max()) for start, end in ends}
            first, *others = (_at_length(rotation, trained, length) for length in lengths)
            if not all(torch.equal(first, other) for other in others):
                raise BadInput(
                    f"{method_name(rotation)} goes by the length of each sequence, and these are packed, several to a row; "
                    "give each a row of its own"
                )


def _at_length(rotation: FrequencyRotation, trained: Tensor, length: int) -> Tensor:
    """The frequencies of a sequence, and its temperature where the method has one for all rows."""
    frequencies = rotation.frequencies(trained, length)
    if not isinstance(rotation, Temperature):
        return frequencies
    g = rotation.inverse_temperature(torch.full((1, 1, 2), length, device=trained.device), 0)
    # A number for each row is right for packed sequences, too
    return frequencies if g.shape[-1] > 1 else torch.cat([frequencies, g.flatten().to(frequencies)])


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
    if rotary is None or layer.arrive_rotated:
        return query, key

    def tables() -> tuple[Tables, Tables]:
        by_index = as_they_stand(mask.visible)
        if position_ids is None:
            return rotary.tables(query, by_index.query), rotary.tables(query, by_index.key)
        # The keys of a cache stand in one row before the queries, of which padding says nothing
        rows = max(len(position_ids), len(mask.visible.count))
        real = (mask.visible.count > 0).expand(rows, -1).int().argmax(-1, keepdim=True)
        moved = position_ids.expand(rows, -1).gather(-1, real) - by_index.query.expand(rows, -1).gather(-1, real)
        at_key = position_ids if position_ids.shape[-1] == key.shape[2] else by_index.key + moved
        return rotary.tables(query, position_ids), rotary.tables(query, at_key)

    at_query, at_key = mask.once(("as trained", id(rotary.module)), tables)
    turn = partial(rotated, module, layer.rotated_part)
    return turn(query, at_query), turn(key, at_key)
