"""The token sequences that a calibration reads: short ones for the target, long ones to align, of one text or one task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from lengthwise.common.sequences import long_sequences, pad_rows, short_sequences
from lengthwise.common.text import text_or_prose
from lengthwise.errors import BadInput, require_one_of
from lengthwise.tasks import TASKS

Batch = dict[str, Tensor]  # input_ids, and attention_mask where some are padded


def text_source(text: str | None, files: Sequence[str | Path], task: str | None) -> tuple[str, str]:
    """(description, text) of what sequences are cut from; a task has no text."""
    if sum((text is not None, bool(files), task is not None)) > 1:
        raise BadInput("give a text, text files or a task, not several of them")
    if task is not None:
        require_one_of("task", task, tuple(TASKS))
        return f"task {task}", ""
    return text_or_prose(text, files)


def short_and_long(
    tokenizer: Any, text: str, task: str | None, length: int, train_length: int, sequences: int, seed: int
) -> tuple[Batch, Batch]:
    """The batches (short, long): cut from the same text, or samples of the same task."""
    if task is None:
        long = long_sequences(tokenizer, text, length, sequences, seed)
        return {"input_ids": short_sequences(tokenizer, long, train_length)}, {"input_ids": long}
    make = TASKS[task].samples
    prompts = make(tokenizer, train_length, 8 * sequences, seed), make(tokenizer, length, sequences, seed)
    short_batch, long_batch = (_padded(tokenizer, [sample.prompt for sample in samples]) for samples in prompts)
    return short_batch, long_batch


def _padded(tokenizer: Any, prompts: list[str]) -> Batch:
    rows = [tokenizer(prompt, verbose=False).input_ids for prompt in prompts]
    ids, mask = pad_rows(rows, tokenizer.pad_token_id or 0, left=False)
    return {"input_ids": ids, "attention_mask": mask}
