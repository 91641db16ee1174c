"""The truncation baseline: the last tokens of a prompt, as many as the model was trained on, the question among them."""

from __future__ import annotations

from typing import Any

from lengthwise.common.text import last_tokens, text_within
from lengthwise.errors import require
from lengthwise.tasks import Sample


def truncated(tokenizer: Any, sample: Sample, length: int) -> list[int]:
    """At most `length` token ids: special tokens kept at both ends, the beginning of the text left out."""
    ids = [int(token) for token in tokenizer(sample.prompt, verbose=False).input_ids]
    if len(ids) <= length:
        return ids
    special = set(tokenizer.all_special_ids)
    first, last = text_within(ids, special)
    room = length - first - (len(ids) - last)
    question = len(tokenizer(sample.question, add_special_tokens=False, verbose=False).input_ids)
    require(
        question <= room,
        f"truncate keeps the last {length} tokens, {room} of them text, but the question alone takes {question}; "
        "leave truncate and hedge out, or give a larger --train-length",
    )
    return last_tokens(ids, length, special)
