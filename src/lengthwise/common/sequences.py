"""Token sequences of a wanted length: cut from a text or from given token ids, cut short, and padded to a batch."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import BadInput, require

MOST_ROWS = 10_000  # of a dataset, which may have no end
SHAPES = "a tensor of [sequences, tokens], lists of whole numbers, or a dataset with a column input_ids"


def token_rows(input_ids: Any, words: int) -> list[Tensor]:  # each [tokens]
    """Token ids as given: a tensor, lists, a tokenizer's batch, or a dataset's rows; `words` tokens the model knows.

    What an `attention_mask` beside them hides is left out.
    """
    if isinstance(input_ids, Mapping) and "input_ids" in input_ids:
        columns = {name: input_ids[name] for name in ("input_ids", "attention_mask") if name in input_ids}
        require(len(set(map(len, columns.values()))) == 1, "input_ids and attention_mask have different numbers of rows")
        input_ids = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    iterable = isinstance(input_ids, Iterable) and not isinstance(input_ids, Mapping)
    require(iterable, f"input_ids must be {SHAPES}, not {type(input_ids).__name__}")
    rows = [_row(given) for given in islice(input_ids, MOST_ROWS)]
    require(sum(map(len, rows)) > 0, "input_ids hold no token")
    known = torch.cat(rows)
    odd = known[(known < 0) | (known >= words)]
    require(len(odd) == 0, f"input_ids hold token {int(odd[:1].sum())}, and the model knows 0 to {words - 1} only")
    return rows


def cut_rows(rows: Sequence[Tensor], length: int, count: int, seed: int) -> Tensor:  # [count, length]
    """`count` stretches of exactly `length` tokens, none of which overlap, drawn by the seed."""
    places = [(row, start) for row in rows for start in range(0, len(row) - length + 1, length)]
    there = f"input_ids hold {len(places)} stretches of {length} tokens, and {count} are asked for"
    require(
        len(places) >= count, f"{there}; the longest sequence has {max(map(len, rows))}, give longer ones or a smaller length"
    )
    return torch.stack([row[start : start + length] for row, start in random.Random(seed).sample(places, count)])


def long_sequences(tokenizer: Any, text: str, length: int, count: int, seed: int) -> Tensor:  # [count, length]
    """`count` sequences of exactly `length` tokens, special tokens included, cut from the text at different places."""
    before, after = special_tokens(tokenizer)
    body = _body(length, before, after)
    # Tokenizers warn that a text is longer than the model; that is what we are here for
    tokens = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    if len(tokens) < body:
        raise BadInput(
            f"the text has {len(tokens)} tokens, fewer than the length {length}; "
            "give a longer text (--text FILE) or a smaller length"
        )
    spare = len(tokens) - body
    # Spread over the text, and moved by the seed within their share of it
    shift = random.Random(seed)
    starts = [int(spare * (i + shift.random()) / count) for i in range(count)]
    return torch.tensor([before + tokens[start : start + body] + after for start in starts])


def short_sequences(tokenizer: Any, long: Tensor, length: int, most: int = 16) -> Tensor:  # [count, length]
    """Sequences of `length` tokens cut from the inside of the long ones, evenly spread, each with its special tokens."""
    before, after = special_tokens(tokenizer)
    body = _body(length, before, after)
    require(length <= long.shape[1], f"sequences of {length} tokens cannot be cut from sequences of {long.shape[1]}")
    inside = long[:, len(before) : long.shape[1] - len(after)]
    pieces = max(1, min(most // len(long) or 1, inside.shape[1] // body))
    starts = [(inside.shape[1] - body) * i // max(1, pieces - 1) for i in range(pieces)]
    rows = inside.tolist()
    return torch.tensor([before + row[start : start + body] + after for start in starts for row in rows])


def last_tokens(ids: Sequence[int], length: int, special: Collection[int]) -> list[int]:
    """The last tokens of a prompt, at most `length` with the `special` ones, which are kept at both ends."""
    if len(ids) <= length:
        return list(ids)
    first, last = text_span(ids, special)
    room = length - first - (len(ids) - last)
    require(room >= 1, f"{length} tokens leave no room for text beside {length - room} special ones")
    return [*ids[:first], *ids[last - room : last], *ids[last:]]


def text_span(ids: Sequence[int], special: Collection[int]) -> tuple[int, int]:
    """Start and end of the text between `special` tokens."""
    first = next((at for at, token in enumerate(ids) if token not in special), 0)
    last = next((at for at in range(len(ids), 0, -1) if ids[at - 1] not in special), len(ids))
    return first, last


def pad_rows(rows: Sequence[Sequence[int]], pad: int, left: bool) -> tuple[Tensor, Tensor]:
    """Pad rows to the longest: token ids and mask, both [rows, longest]."""
    width = max(map(len, rows))
    ids, mask = torch.full((len(rows), width), pad), torch.zeros((len(rows), width), dtype=torch.long)
    for at, row in enumerate(rows):
        where = slice(width - len(row), width) if left else slice(0, len(row))
        ids[at, where] = torch.tensor(row)
        mask[at, where] = 1
    return ids, mask


def special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Tokens that the tokenizer puts before and after a text; none where there is no tokenizer."""
    if tokenizer is None:
        return [], []
    plain = tokenizer("a", add_special_tokens=False).input_ids
    framed = tokenizer("a").input_ids
    for start in range(len(framed) - len(plain) + 1):
        if framed[start : start + len(plain)] == plain:
            return list(framed[:start]), list(framed[start + len(plain) :])
    return [], []


def _row(given: Any) -> Tensor:  # [tokens]
    """One sequence, alone or as a row of a dataset."""
    ids, mask = (given.get("input_ids"), given.get("attention_mask")) if isinstance(given, Mapping) else (given, None)
    try:
        row = torch.as_tensor(ids).cpu()
        shown = torch.ones_like(row) if mask is None else torch.as_tensor(mask).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(f"input_ids must be {SHAPES}; one of their rows is {str(ids)[:40]!r}") from None
    whole = row.numel() == 0 or not (row.is_floating_point() or row.dtype == torch.bool)
    problem = f"one of their rows has shape {list(row.shape)} and holds {str(row.dtype).removeprefix('torch.')}"
    require(row.ndim == 1 and row.shape == shown.shape and whole, f"input_ids must be {SHAPES}; {problem}")
    return row.long()[shown.bool()]


def _body(length: int, before: list[int], after: list[int]) -> int:
    """Tokens of text in a sequence of `length` tokens."""
    special = len(before) + len(after)
    require(length > special, f"length {length} leaves no room for text beside {special} special tokens")
    return length - special
