"""Pass keys in books: the package's task with other text around the number, which stands at every depth in turn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments._lib.novels import unwrapped
from lengthwise.common.text import read_texts, shipped_prose
from lengthwise.tasks import TASKS, Sample, Task
from lengthwise.tasks.sample import sentences

TASK = "passkey"
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)


def hidden_in(books: Sequence[Path], most: int) -> Task:
    """The task, with up to `most` samples a length; the package's prose where there are no books."""
    texts = [unwrapped(read_texts([path])) for path in books] or [shipped_prose()]
    parts = [" ".join(part.split()) for text in texts for part in sentences(text)]
    # Lists of chapters are not sentences
    filler = [part for part in parts if len(part) < 400]
    digest = hashlib.sha256(" ".join(filler).encode()).hexdigest()[:16]
    named = ", ".join(path.stem for path in books) or "the package's prose"

    # Every method asks for the same ones, and at 16,384 tokens a sample takes half a second to make
    @lru_cache(maxsize=2)
    def made(tokenizer: Any, length: int, seed: int) -> list[Sample]:
        return in_turn(tokenizer, length, most, seed, filler)

    def samples(tokenizer: Any, length: int, n: int, seed: int) -> list[Sample]:
        return made(tokenizer, length, seed)[:n]

    depths = ", ".join(map(str, DEPTHS))
    return replace(TASKS[TASK], samples=samples, material=f"{named} ({digest}), at depths {depths} in turn")


def in_turn(tokenizer: Any, length: int, count: int, seed: int, filler: Sequence[str]) -> list[Sample]:
    """The depths one after another; prompt and answer together take the length."""
    task = TASKS[TASK]
    each, room = -(-count // len(DEPTHS)), length - task.answer_tokens
    columns = [
        task.samples(tokenizer, room, each, len(DEPTHS) * seed + at, depth, filler=filler) for at, depth in enumerate(DEPTHS)
    ]
    return [sample for row in zip(*columns, strict=True) for sample in row][:count]
