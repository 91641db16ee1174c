"""Masks written down token by token, and the rows of a method read back key by key, for tests that loop."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.attention.parts import Part
from lengthwise.attention.visible import Visible

PADDING = -1


@dataclass(frozen=True)
class Case:
    """A batch as the sequence that every token belongs to; queries are the last tokens of it."""

    sequences: tuple[tuple[int, ...], ...]
    causal: bool
    queries: int
    hidden: tuple[int, ...] = ()  # tokens inside a sequence that no row may see

    @property
    def keys(self) -> int:
        return len(self.sequences[0])

    def rows(self) -> list[tuple[int, int]]:
        """(batch entry, place of the query among the keys) of every row."""
        return [(b, self.keys - self.queries + i) for b in range(len(self.sequences)) for i in range(self.queries)]

    def tokens(self, entry: int, place: int) -> list[int]:
        """The sequence of the row at `place`, as token indices; empty for padding."""
        own = self.sequences[entry][place]
        return [] if own == PADDING else [j for j, one in enumerate(self.sequences[entry]) if one == own]

    def seen(self, entry: int, place: int) -> list[int]:
        """The keys that the model's own mask shows to that row, hidden ones included."""
        return [j for j in self.tokens(entry, place) if j <= place or not self.causal]

    @property
    def visible(self) -> Visible:
        runs = [self.seen(b, p) for b, p in self.rows()]
        shape = (len(self.sequences), self.queries)
        start = torch.tensor([run[0] if run else 0 for run in runs]).view(shape)
        stop = torch.tensor([run[-1] + 1 if run else 0 for run in runs]).view(shape)
        hidden = None
        if self.hidden:
            hidden = torch.tensor([[j in self.hidden for j in range(self.keys)]])
        return Visible(start, stop, torch.arange(self.keys - self.queries, self.keys), self.keys, hidden)


CASES = {
    "causal": Case(((0,) * 13,), True, 13),
    "full": Case(((0,) * 13,), False, 13),
    "one token": Case(((0,),), True, 1),
    "left padding": Case(((PADDING,) * 4 + (0,) * 9, (0,) * 13), True, 13),
    "padding on both sides, full": Case(((PADDING,) * 2 + (0,) * 8 + (PADDING,) * 3, (0,) * 13), False, 13),
    "packed": Case(((0,) * 5 + (1,) * 7 + (2,),), True, 13),
    "packed, full": Case(((0,) * 5 + (1,) * 8, (0,) * 10 + (1,) * 3), False, 13),
    "decoding": Case(((0,) * 13,), True, 1),
    "decoding after left padding": Case(((PADDING,) * 6 + (0,) * 7, (0,) * 13), True, 1),
    "several queries after a cache": Case(((0,) * 13,), True, 4),
    "holes": Case(((0,) * 13,), True, 13, hidden=(1, 6)),
}


def distances_of(parts: list[Part], case: Case, head: int = 0, pair: int = 0) -> list[dict[int, float]]:
    """For every row of the case: which keys it sees, and how far before the row each of them stands, to one head and pair."""
    rows = []
    for entry, place in case.rows():
        i = place - (case.keys - case.queries)
        found: dict[int, float] = {}
        for part in parts:
            shown = part.visible.entry(entry).mask()[0, i]
            sides = (side[min(entry, len(side) - 1)] for side in (part.query, part.key))
            query, key = (_of_head_and_pair(side, head, pair).tolist() for side in sides)
            for j in shown.nonzero()[:, 0].tolist():
                assert j not in found, f"key {j} of row {place} is in two parts"
                found[j] = query[i] - key[j]
        rows.append(found)
    return rows


def _of_head_and_pair(side: Tensor, head: int, pair: int) -> Tensor:  # [..., tokens, ...] -> [tokens]
    by_head = side if side.dim() == 1 else side[min(head, len(side) - 1)]
    return by_head if by_head.dim() == 1 else by_head[:, pair]


def keys_of(visible: Visible, case: Case) -> list[set[int]]:
    """For every row of the case: which keys it sees."""
    offset = case.keys - case.queries
    return [set(visible.entry(b).mask()[0, p - offset].nonzero()[:, 0].tolist()) for b, p in case.rows()]
