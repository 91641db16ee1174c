"""What training never sees, decided by names and by hashes, so that every run and every test draws the same line."""

from __future__ import annotations

import hashlib

from lengthwise.tasks.material.code_files import CodeFile

BOOKS = ("moby_dick", "pride", "sherlock")
# These numbers split the package's word lists and LongEval's labels evenly; others leave some lists lopsided
WORD_SALT, LABEL_SALT = 93, 1


def book(stem: str) -> bool:
    """Three novels, by the beginning of their file name."""
    return stem.startswith(BOOKS)


def word(text: str) -> bool:
    """Half of all words: they never name a line in training, whichever list they come from."""
    return _hash(f"word {WORD_SALT}", text) % 2 == 1


def code(file: CodeFile) -> bool:
    """A third of the standard library, by the name of the module or package."""
    return _hash("code", file.name.partition("/")[0].removesuffix(".py")) % 3 == 0


def label(text: str) -> bool:
    """A third of the topics."""
    return _hash(f"label {LABEL_SALT}", text) % 3 == 0


def _hash(kind: str, text: str) -> int:
    return int(hashlib.sha256(f"{kind} {text.lower()}".encode()).hexdigest(), 16)
