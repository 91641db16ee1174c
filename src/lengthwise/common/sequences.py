"""Token sequences of a wanted length: cut from a text, cut short, and padded to a batch."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import BadInput, require


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
    """Tokens that the tokenizer puts before and after a text."""
    plain = tokenizer("a", add_special_tokens=False).input_ids
    framed = tokenizer("a").input_ids
    for start in range(len(framed) - len(plain) + 1):
        if framed[start : start + len(plain)] == plain:
            return list(framed[:start]), list(framed[start + len(plain) :])
    return [], []


def _body(length: int, before: list[int], after: list[int]) -> int:
    """Tokens of text in a sequence of `length` tokens."""
    special = len(before) + len(after)
    require(length > special, f"length {length} leaves no room for text beside {special} special tokens")
    return length - special
