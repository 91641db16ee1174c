"""The truncation baseline: the last tokens of a prompt, as many as the model was trained on, the question among them."""

from __future__ import annotations

from typing import Any

from lengthwise.errors import require
from lengthwise.tasks import Sample


def truncated(tokenizer: Any, sample: Sample, train_length: int) -> list[int]:
    """At most `train_length` token ids: special tokens kept at both ends, the beginning of the text left out."""
    ids = [int(token) for token in tokenizer(sample.prompt, verbose=False).input_ids]
    if len(ids) <= train_length:
        return ids
    special = set(tokenizer.all_special_ids)
    first = next((at for at, token in enumerate(ids) if token not in special), 0)
    last = next((at for at in range(len(ids), 0, -1) if ids[at - 1] not in special), len(ids))
    room = train_length - first - (len(ids) - last)
    question = len(tokenizer(sample.question, add_special_tokens=False, verbose=False).input_ids)
    require(
        question <= room,
        f"truncate keeps the last {train_length} tokens, {room} of them text, but the question alone takes {question}; "
        "leave truncate out, or give a larger --train-length",
    )
    return [*ids[:first], *ids[last - room : last], *ids[last:]]
