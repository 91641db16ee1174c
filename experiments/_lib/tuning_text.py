"""Text to fine-tune on and to measure on: novels, or the standard library of the Python that runs.

A seed draws the order of the books and the paragraph that each begins with; what stood before it follows at its end. So rows of
tokens are cut at other places for every seed.
"""

from __future__ import annotations

import hashlib
import random
import sysconfig
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
CODE_BOOKS, HELD_OUT_CODE = 8, 2  # parts that the standard library is cut into, and how many are measured on
Book = list[str]  # paragraphs


def read_books(paths: Sequence[Path]) -> list[Book]:
    return [unwrapped(read_texts([path])).split("\n\n") for path in paths]


def code_books() -> tuple[list[Book], list[Book]]:
    """The standard library without its tests, to train on and to measure on; a book is many modules, a paragraph a block."""
    library = Path(sysconfig.get_path("stdlib"))
    skipped = {"test", "tests", "site-packages", "dist-packages", "idle_test", "lib2to3", "encodings", "__pycache__"}
    files = [path for path in library.rglob("*.py") if not skipped & {*path.relative_to(library).parts}]
    ranked = sorted(files, key=lambda path: hashlib.sha256(path.relative_to(library).as_posix().encode()).digest())
    parts = [ranked[at::CODE_BOOKS] for at in range(CODE_BOOKS)]
    texts = ["\n\n\n".join(path.read_text(encoding="utf-8", errors="replace") for path in part) for part in parts]
    books = [text.split("\n\n") for text in texts]
    return books[HELD_OUT_CODE:], books[:HELD_OUT_CODE]


def digest(books: Sequence[Book]) -> str:
    return hashlib.sha256("\0".join("\n\n".join(book) for book in books).encode()).hexdigest()[:16]


def held_back(book: Book) -> Book:
    """The last paragraphs, which no run is trained on: learning rates are chosen by them."""
    return book[len(book) - len(book) // HELD_BACK :]


def training_files(books: Sequence[Book], seed: int, folder: Path) -> list[str]:
    """The seed's text, a file a book, written where it is missing."""
    randomness = random.Random(f"fine-tuning {seed}")
    order = randomness.sample(range(len(books)), len(books))
    files = []
    for at, which in enumerate(order):
        book = books[which][: len(books[which]) - len(books[which]) // HELD_BACK]
        first = randomness.randrange(len(book))
        file = folder / f"seed-{seed}" / f"{at}.txt"
        if not file.exists():
            write_whole(file, "\n\n".join([*book[first:], *book[:first]]) + "\n")
        files.append(str(file))
    return files


def streams(tokenizer: Any, books: Sequence[Book], count: int, tokens: int) -> Tensor:  # [books * count, tokens]
    """`count` streams of every book, evenly spread, each from a paragraph on; without a token that begins a text, as rows that
    are trained on have none."""
    rows = []
    for book in books:
        for part in range(count):
            first, last = (len(book) * end // count for end in (part, part + 1))
            # A token of running text has far fewer than 16 characters
            text = "\n\n".join(book[first:last])[: 16 * tokens]
            ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids[:tokens]
            few = f"a part of a book has {len(ids):,} tokens, a stream takes {tokens:,}; give longer books or fewer --streams"
            require(len(ids) == tokens, few)
            rows.append(ids)
    return torch.tensor(rows)
