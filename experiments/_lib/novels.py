"""Novels as token sequences for language modelling, and as sentences that hide a number.

A text is read twice, once as printed and once with its lines joined into paragraphs: users feed both kinds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments._lib import held_out
from experiments._lib.bpe import Pieces
from lengthwise.errors import require
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


def _novels(data: Path, held_out_ones: bool) -> list[Path]:
    paths = sorted(path for path in (data / "gutenberg").glob("*.txt") if held_out.book(path.stem) == held_out_ones)
    require(bool(paths), f"{data / 'gutenberg'} holds no novel of the kind wanted; --data takes a folder with gutenberg/*.txt")
    return paths


def training(data: Path) -> list[Path]:
    return _novels(data, held_out_ones=False)


def evaluation(data: Path) -> list[Path]:
    return _novels(data, held_out_ones=True)


def read(paths: list[Path], pieces: Pieces) -> Books:
    printed = [path.read_text(encoding="utf-8") for path in paths]
    joined = [unwrapped(text) for text in printed]
    texts = [np.array(pieces.tokens(text), np.int16) for text in [*printed, *joined]]
    # Books have chapter lists and tables, which are not sentences
    parts = filler(printed)
    sizes = [len(pieces.tokens(" " + part)) for part in parts]
    words = sorted(set(re.findall(r"\b[a-z]{3,10}\b", " ".join(joined))))
    return Books(texts, parts, sizes, words, pieces)


def unwrapped(text: str) -> str:
    """Line ends within a paragraph become spaces."""
    paragraphs = (re.sub(r"\s+", " ", paragraph).strip() for paragraph in re.split(r"\n\s*\n", text))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def filler(texts: Sequence[str]) -> list[str]:
    """Sentences that a number can hide among; lists of chapters are none."""
    parts = [" ".join(part.split()) for text in texts for part in sentences(unwrapped(text))]
    return [part for part in parts if len(part) < 400]
