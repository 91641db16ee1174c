"""The novels: what is trained on, what is held back of them to choose a learning rate, and streams of novels never trained on.

A seed draws the order of the books and the paragraph that each begins with; what stood before it follows at its end. So rows
of tokens are cut at other places for every seed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments._lib.novels import unwrapped
from lengthwise.common.files import write_whole
from lengthwise.common.text import read_texts
from lengthwise.errors import require

HELD_BACK = 10  # one paragraph in so many, the last ones of a book

Book = list[str]  # paragraphs


def read_books(paths: Sequence[Path]) -> list[Book]:
    return [unwrapped(read_texts([path])).split("\n\n") for path in paths]


def digest(books: Sequence[Book]) -> str:
    return hashlib.sha256("\0".join("\n\n".join(book) for book in books).encode()).hexdigest()[:16]


def trained_on(book: Book) -> Book:
    return book[: _kept(book)]


def held_back(book: Book) -> Book:
    return book[_kept(book) :]


def _kept(book: Book) -> int:
    return len(book) - len(book) // HELD_BACK


def training_files(books: Sequence[Book], seed: int, folder: Path) -> list[str]:
    """The seed's text, a file a book, written where it is missing."""
    randomness = random.Random(f"fine-tuning {seed}")
    order = randomness.sample(range(len(books)), len(books))
    files = []
    for at, which in enumerate(order):
        book = trained_on(books[which])
        first = randomness.randrange(len(book))
        file = folder / f"seed-{seed}" / f"{at}.txt"
        if not file.exists():
            write_whole(file, "\n\n".join([*book[first:], *book[:first]]) + "\n")
        files.append(str(file))
    return files


def streams(tokenizer: Any, books: Sequence[Book], count: int, tokens: int) -> Tensor:  # [books * count, tokens]
    """`count` of every book, evenly spread, each from a paragraph on; without a token of the tokenizer's own in front, as rows
    that are trained on have none."""
    found = []
    for book in books:
        for part in range(count):
            first, last = (len(book) * end // count for end in (part, part + 1))
            # A token of running text has far fewer than 16 characters
            text = "\n\n".join(book[first:last])[: 16 * tokens]
            ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids[:tokens]
            require(
                len(ids) == tokens,
                f"a part of a book has {len(ids):,} tokens, a stream takes {tokens:,}; give longer books or fewer --streams",
            )
            found.append(ids)
    return torch.tensor(found)
