"""Novels as token sequences for language modelling, and as sentences that hide a number.

A text is read twice, once as printed and once with its lines joined into paragraphs: users feed both kinds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments._lib import held_out
from experiments._lib.bpe import Pieces
from lengthwise.errors import BadInput
from lengthwise.tasks.sample import sentences


@dataclass(frozen=True)
class Books:
    """Everything drawn from one set of novels."""

    texts: list[NDArray[np.int16]]  # token sequences, each one version of a novel
    sentences: list[str]  # in reading order
    sizes: list[int]  # tokens of each sentence with the space before it
    words: list[str]  # lower-case words of 3 to 10 letters, sorted
    pieces: Pieces

    def stretch(self, randomness: random.Random, tokens: int) -> list[str]:
        """Sentences in their order that take at most so many tokens; the last one may be cut short."""
        at = randomness.randrange(len(self.sentences))
        taken: list[str] = []
        while tokens > 0:
            sentence, size = self.sentences[at % len(self.sentences)], self.sizes[at % len(self.sentences)]
            if size > tokens:
                beginning = self.pieces.beginning(sentence, tokens, size)
                return [*taken, beginning] if beginning else taken
            taken.append(sentence)
            tokens -= size
            at += 1
        return taken


def drawn(texts: Sequence[NDArray[np.int16]], randomness: random.Random, tokens: int) -> list[int]:
    """So many tokens of a text, from any place."""
    text = randomness.choices(texts, [len(text) for text in texts])[0]
    start = randomness.randrange(max(1, len(text) - tokens))
    passage: list[int] = text[start : start + tokens].tolist()
    return passage


def names(data: Path, wanted: Callable[[str], bool]) -> list[Path]:
    found = sorted(path for path in (data / "gutenberg").glob("*.txt") if wanted(path.stem))
    if not found:
        raise BadInput(f"{data / 'gutenberg'} holds no novel of the kind wanted; --data takes a folder with gutenberg/*.txt")
    return found


def training(data: Path) -> list[Path]:
    return names(data, lambda stem: not held_out.book(stem))


def evaluation(data: Path) -> list[Path]:
    return names(data, held_out.book)


def read(paths: list[Path], pieces: Pieces) -> Books:
    printed = [path.read_text(encoding="utf-8") for path in paths]
    joined = [unwrapped(text) for text in printed]
    texts = [np.array(pieces.tokens(text), np.int16) for text in [*printed, *joined]]
    parts = [re.sub(r"\s+", " ", part) for text in joined for part in sentences(text)]
    # Books have chapter lists and tables, which are not sentences
    parts = [part for part in parts if len(part) < 400]
    sizes = [len(pieces.tokens(" " + part)) for part in parts]
    words = sorted(set(re.findall(r"\b[a-z]{3,10}\b", " ".join(joined))))
    return Books(texts, parts, sizes, words, pieces)


def unwrapped(text: str) -> str:
    """Line ends within a paragraph become spaces."""
    paragraphs = (re.sub(r"\s+", " ", paragraph).strip() for paragraph in re.split(r"\n\s*\n", text))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
