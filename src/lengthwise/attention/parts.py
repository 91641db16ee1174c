"""Rows in parts: different keys of one row may be rotated as if they stood elsewhere.

ReRoPE sees near keys where they are and all far ones at one distance; StreamingLLM sees its sinks just before its window. Each
such set of keys is a run with its own positions. The parts of a row are disjoint, so outputs and statistics merge exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from lengthwise.attention.visible import Visible


@dataclass(frozen=True)
class Part:
    """One run of every row, and where the row and its keys stand when they are rotated; only differences matter.

    Positions are in tokens, fractions allowed. They have an axis of key heads, [batch or 1, key_heads, tokens], where heads are
    placed differently, and one of pairs besides, [batch or 1, key_heads or 1, tokens, pairs], where pairs of dimensions are.
    """

    visible: Visible
    query: Tensor  # [batch or 1, queries]
    key: Tensor  # [batch or 1, keys]


def as_they_stand(visible: Visible) -> Part:
    """The part in which every query and every key is at its own place."""
    index = torch.arange(visible.keys, device=visible.position.device)
    return Part(visible, visible.position[None], index[None])


def near_and_far(seen: Visible, window: int) -> tuple[Visible, Visible, Visible]:
    """The keys of each row at distances below `window`, those before them, and those behind them."""
    return seen.around(1 - window, window), seen.around(None, 1 - window), seen.around(window, None)


def first_keys(whole: Visible, seen: Visible, count: int) -> Visible:
    """The first `count` keys of each row's run in `whole`, as far as they stand before its run in `seen`."""
    if whole.row is not None and seen.row is not None:
        start, stop, own = whole.row
        return Visible.one_row(start, max(start, min(stop, start + count, seen.row[0])), own, whole.keys, whole.device)
    return whole.within(whole.start, torch.minimum(whole.start + count, seen.start))


def with_keys(parts: Iterable[Part]) -> list[Part]:
    """The parts in which some row has a key; the first one in any case."""
    first, *others = parts
    return [first, *(part for part in others if part.visible.sees_some)]


def as_one(parts: Sequence[Part]) -> Part:
    """The parts of single rows, one query a sequence, as one part: the query at 0, each key at its distance from it.

    So a token that is generated needs its keys rotated once, and no merging. Keys that are in no part are hidden.
    """
    return _joined(parts) or _overlaid(parts)


def _joined(parts: Sequence[Part]) -> Part | None:
    """Parts of one row that follow one another through all keys; None for others, and where a device had to be asked."""
    known, keys = [part.visible.row for part in parts], parts[0].visible.keys
    if None in known:
        return None
    rows = sorted((*row, index) for index, row in enumerate(known) if row is not None)
    if [*(start for start, *_ in rows), keys] != [0, *(stop for _, stop, *_ in rows)]:
        return None
    axes = max(part.key.dim() for part in parts)
    along = -1 if axes < 4 else -2
    placed = [
        _lifted(parts[index].key, axes).narrow(along, start, stop - start) - _lifted(parts[index].query, axes)
        for start, stop, _, index in rows
    ]
    shape = [max(sizes) for sizes in zip(*(at.shape for at in placed), strict=True)]
    shape[along] = -1
    key = placed[0] if len(placed) == 1 else torch.cat([at.expand(shape) for at in placed], along)
    visible = parts[0].visible if len(parts) == 1 else Visible.one_row(0, keys, rows[0][2], keys, key.device)
    return Part(visible, torch.zeros_like(key.narrow(along, 0, 1)), key)


def _overlaid(parts: Sequence[Part]) -> Part:
    shown = [part.visible.mask()[:, 0] for part in parts]  # [batch or 1, keys]
    axes = max(part.key.dim() for part in parts)
    key = torch.zeros((), device=shown[0].device)
    for part, here in zip(parts, shown, strict=True):
        key = torch.where(_lifted(here, axes), _lifted(part.key, axes) - _lifted(part.query, axes), key)
    seen = reduce(torch.logical_or, shown)
    first = seen.int().argmax(-1, keepdim=True)
    stop = seen.shape[-1] - seen.flip(-1).int().argmax(-1, keepdim=True)
    stop = torch.where(seen.any(-1, keepdim=True), stop, first)
    whole = bool((seen.sum(-1, keepdim=True) == stop - first).all())
    visible = Visible(first, stop, parts[0].visible.position, seen.shape[-1], None if whole else ~seen)
    return Part(visible, torch.zeros_like(key[..., :1] if axes < 4 else key[..., :1, :]), key)


def _lifted(tensor: Tensor, axes: int) -> Tensor:
    """[batch, tokens], or with an axis of heads or of heads and pairs, with as many axes as the others have."""
    tensor = tensor[:, None] if tensor.dim() < axes and tensor.dim() == 2 else tensor
    return tensor[..., None] if tensor.dim() < axes else tensor
