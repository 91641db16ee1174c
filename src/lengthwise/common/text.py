"""Text as token sequences of a wanted length.

Without a text of the user's, prose that ships with the package serves: about 110,000 characters written for it.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from lengthwise.errors import BadInput, require

PROSE = ("harbour.txt", "railway.txt", "workshop.txt")
LONGEST = 100_000_000  # tokens


def shipped_prose() -> str:
    """The prose that ships with the package."""
    folder = resources.files("lengthwise.common") / "prose"
    return "\n\n".join((folder / name).read_text(encoding="ascii").strip() for name in PROSE)


def read_texts(paths: Sequence[str | Path]) -> str:
    """The texts of several files, one after the other."""
    texts = []
    for path in paths:
        try:
            texts.append(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"cannot read the text file {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8 text") from None
    return "\n\n".join(texts)


def text_or_prose(text: str | None, files: Sequence[str | Path]) -> tuple[str, str]:
    """The name and the content of the text to use: a given text, files, or the prose that ships with the package."""
    require(text is None or not files, "give a text or files, not both")
    if files:
        return ", ".join(Path(path).name for path in files), read_texts(files)
    return ("given text", text) if text is not None else ("shipped prose", shipped_prose())


def parse_lengths(value: object) -> list[int]:
    """Lengths in tokens as Python integers, from one number or several of any library."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) != 0:
        return [_length(length) for length in value]
    return [_length(value)]


def _length(value: object) -> int:
    # Python and torch take true for 1
    is_bool = "bool" in str(getattr(value, "dtype", type(value)))
    if isinstance(value, SupportsIndex) and not is_bool:
        with suppress(TypeError):
            tokens = operator.index(value)
            # Making the text alone would take hours
            require(tokens <= LONGEST, f"a length of {tokens:,} tokens is beyond all models; give at most {LONGEST:,}")
            return tokens
    raise BadInput(f"a length is a whole number of tokens, not {value!r}")


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
    cuts = [inside[:, start : start + body] for start in starts]
    framed = [torch.cat([_column(before, cut), cut, _column(after, cut)], 1) for cut in cuts]
    return torch.cat(framed)


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


def _column(tokens: list[int], like: Tensor) -> Tensor:
    return torch.tensor(tokens, dtype=like.dtype).expand(len(like), -1)
