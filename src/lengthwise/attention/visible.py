"""Which keys a row may see: one run of neighbouring keys a row.

Causal masks, windows, packed sequences and padding on either side all leave each row a single run [start, stop), so two
numbers a row replace a mask of queries x keys. The rare mask with holes inside a run adds one boolean a key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lengthwise.common.kept import kept
from lengthwise.errors import BadInput


def is_exporting() -> bool:
    """Whether torch.export traces: a graph for any input, in which no number can be asked for."""
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


@dataclass(frozen=True)
class Visible:
    """The run of keys that each row sees. A row whose run is empty (a padding query) gives zeros and enters no statistic."""

    start: Tensor  # [batch or 1, queries], first key of the run
    stop: Tensor  # [batch or 1, queries], one past its last key
    position: Tensor  # [queries], the key index at which the query itself stands: distance = key - position
    keys: int
    hidden: Tensor | None = None  # [batch or 1, keys], True for keys inside a run that no row may see
    # Values of the `kept` properties
    facts: dict[Any, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    @classmethod
    def build(
        cls,
        queries: int,
        keys: int,
        *,
        causal: bool = False,
        window: int | None = None,
        offset: int | Tensor | None = None,
        padding: Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> Visible:
        """Make the runs of the usual masks.

        `offset` is the key index of the first query, by default keys - queries, as in a filled cache. `window` keys end at the
        query's own (causal), or reach window - 1 to each side. `padding` is [batch, keys], True for real tokens.
        """
        device = padding.device if padding is not None else device
        # | 0: a graph takes them as numbers; Inductor of PyTorch 2.11 makes a formula of an arange that is clamped, and fails
        own = (torch.arange(queries, device=device) | 0) + (keys - queries if offset is None else offset)
        start = torch.zeros_like(own) if window is None else (own - window + 1).clamp_min(0)
        stop = torch.full_like(own, keys)
        if causal:
            stop = own + 1
        elif window is not None:
            stop = (own + window).clamp_max(keys)
        stop = stop.clamp(0, keys)
        visible = cls(torch.minimum(start, stop)[None], stop[None], own, keys).knowing(in_line=True)
        if window is None and not isinstance(offset, Tensor):
            first = keys - queries if offset is None else offset
            # A query at the end of a cache sees all of it
            if not causal or (queries == 1 and first == keys - 1):
                visible.knowing(is_full=True, full_from=first)
        return visible if padding is None else visible.without(padding)

    @classmethod
    def one_row(cls, start: int, stop: int, position: int, keys: int, device: torch.device | str | None = None) -> Visible:
        """A single query and its run, both known here: no device is asked for them again."""
        rows = torch.tensor([[[start, stop, position]]])
        rows = rows if device is None else rows.to(device, non_blocking=True)
        full = start == 0 and stop == keys
        known = {"row": (start, stop, position), "in_line": True, "is_full": full, "full_from": position if full else None}
        first, last, own = rows.unbind(-1)  # [1, 1]
        return cls(first, last, own[0], keys).knowing(rows=rows, **known)

    def without(self, padding: Tensor, rows: bool = True) -> Visible:
        """Hide the keys that are False in `padding`, [batch, keys]; queries standing on them, as `rows` do, see nothing."""
        padding = padding.bool() if self.hidden is None else padding.bool() & ~self.hidden
        count = padding.sum(-1, keepdim=True)
        first = padding.int().argmax(-1, keepdim=True)
        last = self.keys - padding.flip(-1).int().argmax(-1, keepdim=True)
        stop = torch.minimum(self.stop, last)
        start = torch.minimum(torch.maximum(self.start, first), stop.clamp_min(0))
        stop = torch.where(count > 0, torch.maximum(stop, start), start)
        if rows:
            own = self.position.clamp(0, self.keys - 1)
            stop = torch.where(padding[:, own] & (self.position < self.keys), stop, start)
        holes = (last - first != count) & (count > 0)
        # While a graph is traced no number can be asked for: kernels then read which sequences have holes
        hidden = ~padding if torch.compiler.is_compiling() or bool(holes.any()) else None
        visible = self.standing_as_here(Visible(start, stop, self.position, self.keys, hidden))
        return visible if hidden is None else visible.knowing(holes=holes)

    def within(self, first: Tensor, last: Tensor) -> Visible:
        """Cut each row's run to the keys `first` ... `last - 1`, both broadcastable to [batch, queries]."""
        stop = torch.minimum(self.stop, last).clamp_min(0)
        start = torch.minimum(torch.maximum(self.start, first), stop)
        return self.standing_as_here(Visible(start, stop, self.position, self.keys, self.hidden))

    def around(self, low: int | None, high: int | None) -> Visible:
        """Cut each row's run to the keys that stand `low` ... `high` - 1 behind it; None leaves that side as it is."""
        if self.row is not None:
            start, stop, own = self.row
            stop = stop if high is None else max(min(stop, own + high), 0)
            return Visible.one_row(
                min(start if low is None else max(start, own + low), stop), stop, own, self.keys, self.device
            )
        row = self.position
        first = torch.zeros_like(row) if low is None else row + low
        return self.within(first, torch.full_like(row, self.keys) if high is None else row + high)

    @classmethod
    def of_mask(
        cls, mask: Callable[[Tensor], Tensor], queries: int, keys: int, position: Tensor, hidden: Tensor | None = None
    ) -> Visible:
        """Make the runs from a rule, a few rows at a time: `mask(rows)` gives [batch or 1, rows, keys], True where visible.

        Keys that are `hidden`, which no row may see, do not part a run.
        """
        rows_at_once = max(1, 2**24 // max(keys, 1))
        start, stop, count = [], [], []
        for rows in torch.split(torch.arange(queries, device=position.device), rows_at_once):
            seen = mask(rows)
            count.append(seen.sum(-1))
            start.append(seen.int().argmax(-1))
            last = keys - seen.flip(-1).int().argmax(-1)
            stop.append(torch.where(count[-1] > 0, last, start[-1]))
        visible = cls(torch.cat(start, -1), torch.cat(stop, -1), position, keys, hidden)
        _require_one_run(visible.count == torch.cat(count, -1))
        return visible

    @property
    def queries(self) -> int:
        return self.position.shape[-1]

    @property
    def device(self) -> torch.device:
        return self.position.device

    @property
    def row(self) -> tuple[int, int, int] | None:
        """Start, stop and position, where this was made by `one_row`; else None."""
        return self.facts.get("row")

    @kept
    def run(self) -> tuple[int, int] | None:
        """Start and stop, where all rows of all sequences see the same keys and none in between is hidden; else None."""
        if self.row is not None:
            return self.row[:2]
        if self.hidden is not None or self.is_full:
            return (0, self.keys) if self.hidden is None else None
        runs = {*zip(self.start.flatten().tolist(), self.stop.flatten().tolist(), strict=True)}
        return next(iter(runs)) if len(runs) == 1 else None

    @property
    def sees_some(self) -> bool:
        """Whether some row sees a key, or may, where that cannot be asked."""
        if self.row is not None:
            return self.row[0] < self.row[1]
        return is_exporting() or bool(self.count.any())

    @kept
    def cpu(self) -> Visible:
        """The same runs in the host's memory."""
        if self.position.device.type == "cpu":
            return self
        start, stop, position = (tensor.cpu() for tensor in (self.start, self.stop, self.position))
        hidden = None if self.hidden is None else self.hidden.cpu()
        return self.standing_as_here(Visible(start, stop, position, self.keys, hidden))

    @kept
    def in_line(self) -> bool:
        """Whether the queries stand one after the other."""
        return bool((self.position.diff() == 1).all())

    def standing_as_here(self, visible: Visible) -> Visible:
        """Pass on to `visible`, which has some or all of these queries, that they stand in line: no device is asked again."""
        if "holes" in self.facts and visible.hidden is self.hidden:
            visible.knowing(holes=self.holes)
        return visible.knowing(in_line=True) if self.facts.get("in_line") else visible

    def knowing(self, **properties: object) -> Visible:
        """Fill in kept properties that follow from how this was built, so that no device is asked for them."""
        self.facts.update(properties)
        return self

    @kept
    def count(self) -> Tensor:
        """n, the number of keys each row sees: [batch or 1, queries]."""
        if self.hidden is None:
            return (self.stop - self.start).clamp_min(0)
        before = torch.nn.functional.pad((~self.hidden).cumsum(-1), (1, 0))
        # Runs that a graph has read are int32, which PyTorch before 2.8 does not take for an index
        # `len` would fix the batch size in a graph that is traced
        rows = torch.broadcast_to(self.stop, (before.shape[0], self.queries)).long()
        start = torch.minimum(self.start, self.stop).expand_as(rows).long()
        return before.gather(-1, rows) - before.gather(-1, start)

    @kept
    def n(self) -> Tensor:
        """The count as temperature laws take it, [batch or 1, 1, queries]; one number where all rows of a sequence agree."""
        # A graph that is traced cannot ask whether they do
        shared = (self.facts.get("spans") if torch.compiler.is_compiling() else self.spans) is not None
        return (self.count.amax(-1, keepdim=True) if shared else self.count)[:, None]

    @kept
    def first(self) -> Tensor:  # [batch or 1, 1]
        """Index of the first token that any row sees; below 0 where a cache has dropped it and the maker of the mask knew."""
        return torch.where(self.count > 0, self.start, self.keys).amin(-1, keepdim=True)

    @kept
    def places(self) -> tuple[Tensor, Tensor]:
        """Where queries and keys stand in their own sequences, counted from 0: [batch or 1, queries] and [batch or 1, keys].

        A token that sees none before it begins a sequence, of which several may be packed into one row.
        """
        key = torch.arange(self.keys, device=self.device)
        if self.row is not None:
            first = self.row[0]
            return (self.position[None] - first, key[None] - first) if first else (self.position[None], key[None])
        begins = (self.start == self.position) & (self.count > 0)
        begun = torch.where(begins, self.position, self.first).cummax(-1).values
        # Keys of a cache belong to one sequence
        return self.position - begun, key - (begun if self.queries == self.keys else self.first)

    @kept
    def is_full(self) -> bool:
        return self.hidden is None and bool((self.start == 0).all()) and bool((self.stop == self.keys).all())

    @kept
    def full_from(self) -> int | None:
        """Where the first query stands, when all rows see all keys and stand one after the other; else, or unknown, None."""
        if not self.is_full or self.queries == 0 or not self.in_line:
            return None
        return int(self.position[0])

    @kept
    def packed(self) -> Tensor:  # [batch or 1, 3, queries], int32
        """start, stop and position, as GPU kernels read them."""
        return torch.stack([self.start, self.stop.expand_as(self.start), self.position.expand_as(self.start)], 1).int()

    @kept
    def for_kernels(self) -> tuple[Tensor | None, Tensor | None, int]:
        """Runs and hidden keys as GPU kernels read them, None where they need none, and where the first query stands then."""
        first, hidden = self.full_from, None if self.hidden is None else self.flagged
        return (self.packed, hidden, 0) if first is None else (None, hidden, first)

    @kept
    def holes(self) -> Tensor:  # [batch or 1, 1]
        """Which sequences may have hidden keys within the run of a row."""
        assert self.hidden is not None
        return self.hidden.any(-1, keepdim=True)

    @kept
    def flagged(self) -> Tensor:  # [batch or 1, keys + 1], int32
        """The hidden keys as GPU kernels read them: behind each sequence's stands whether any is within a run."""
        assert self.hidden is not None
        return torch.cat([self.hidden, self.holes], -1).int()

    @kept
    def spans(self) -> list[tuple[int, int]] | None:
        """One (start, stop) a batch entry when all its real rows stand in, and see, just that span; else None."""
        return self.spans_over_holes if self.hidden is None else None

    @kept
    def causal_spans(self) -> list[tuple[int, int]] | None:
        """The same for rows that see their span up to themselves."""
        return self.causal_spans_over_holes if self.hidden is None else None

    @kept
    def spans_over_holes(self) -> list[tuple[int, int]] | None:
        """As `spans`, where `hidden` keys may lie inside a span, and rows that see nothing stand on them."""
        return self._spans(self.stop) if self._whole else None

    @kept
    def causal_spans_over_holes(self) -> list[tuple[int, int]] | None:
        """The same for rows that see their span up to themselves."""
        if not self._whole or not bool((self.stop == self.position + 1)[self.count > 0].all()):
            return None
        return self._spans(self.stop.amax(-1, keepdim=True).expand_as(self.stop))

    @kept
    def _whole(self) -> bool:
        """Whether a query stands on every key, in the keys' order."""
        if self.queries != self.keys or not self.in_line:
            return False
        return bool((self.position[:1] == 0).all())

    def _spans(self, stop: Tensor) -> list[tuple[int, int]] | None:
        real = self.count > 0
        first = torch.where(real, self.start, self.keys).amin(-1, keepdim=True)
        last = torch.where(real, stop, 0).amax(-1, keepdim=True)
        same = (self.start == first) & (stop == last) | ~real
        inside = (self.position >= first) & (self.position < last)
        covered = inside == real if self.hidden is None else inside | ~real
        if not bool(same.all() and covered.all()):
            return None
        return [(min(a, b), b) for a, b in zip(first[:, 0].tolist(), last[:, 0].tolist(), strict=True)]

    def rows(self, first: int, last: int) -> Visible:
        start, stop = self.start[:, first:last], self.stop[:, first:last]
        visible = self.standing_as_here(Visible(start, stop, self.position[first:last], self.keys, self.hidden))
        if "full_from" not in self.facts:
            return visible
        # What is known of all rows; that a part of them sees everything is not worth asking a device
        return visible.knowing(full_from=None if self.full_from is None else self.full_from + first)

    def entry(self, index: int) -> Visible:
        """One batch entry, still with a batch axis of 1."""
        pick = slice(index, index + 1) if self.start.shape[0] > 1 else slice(None)
        hidden = self.hidden
        if hidden is not None and hidden.shape[0] > 1:
            hidden = hidden[index : index + 1]
        return self.standing_as_here(Visible(self.start[pick], self.stop[pick], self.position, self.keys, hidden))

    def mask(self, first: int = 0, last: int | None = None) -> Tensor:
        """The plain boolean mask over keys first ... last - 1: [batch or 1, queries, keys]."""
        index = torch.arange(first, self.keys if last is None else last, device=self.start.device)
        seen = (index >= self.start[..., None]) & (index < self.stop[..., None])
        if self.hidden is not None:
            seen = seen & ~self.hidden[:, None, first:last]
        return seen


def _require_one_run(rows: Tensor) -> None:
    several = "this attention mask shows a row several separate runs of keys; lengthwise needs one run a row"
    if torch.compiler.is_compiling():
        torch._assert_async(rows.all(), several)
    elif not bool(rows.all()):
        raise BadInput(several)
