"""Code as one row of tokens, file after file, in which lines can be found; so a prompt of code is a slice.

A line's tokens do not depend on its neighbours (vocabulary.py), and each is followed by a newline, a file by a blank line.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments._lib.pieces import Pieces
from lengthwise.tasks.code_completion import BEFORE, CODE, COMMENT, LONGEST, SHORTEST
from lengthwise.tasks.material.code_files import CodeFile

QUOTES = ('"""', "'''")


@dataclass(frozen=True)
class Code:
    tokens: NDArray[np.int16]
    lines: NDArray[np.int64]  # where each line starts
    begins: NDArray[np.bool_]  # of each line: whether it begins something new
    files: NDArray[np.int64]  # each file's first line
    asked: NDArray[np.int64]  # [lines worth completing, 3]: where the line starts, where behind its indentation, where it ends

    def before(self, end: int, tokens: int) -> list[int]:
        """At most so many tokens that end at a place."""
        taken: list[int] = self.tokens[max(0, end - tokens) : end].tolist()
        return taken

    def from_a_file(self, randomness: random.Random, tokens: int) -> tuple[int, list[int]]:
        """So many tokens from the beginning of a file on, and the number of their first line."""
        line = int(randomness.choice(self.files))
        # The row's end is too short for many tokens; its beginning never is
        if self.lines[line] + tokens > len(self.tokens):
            line = 0
        start = int(self.lines[line])
        return line, self.tokens[start : start + tokens].tolist()


def tokenised(files: Sequence[CodeFile], pieces: Pieces) -> Code:
    newline = pieces.tokens("\n")
    assert len(newline) == 1, "the vocabulary must have a newline of its own"
    row: list[int] = []
    lines: list[int] = []
    firsts: list[int] = []
    begins: list[bool] = []
    asked: list[tuple[int, int, int]] = []
    for file in files:
        worth = set(_worth_completing(file))
        firsts.append(len(lines))
        for at, line in enumerate((*file.lines, "")):
            begins.append(bool(line[:1].strip()) and at > 0 and not file.lines[at - 1])
            lines.append(len(row))
            tokens = pieces.tokens(line)
            if at in worth:
                bare = pieces.tokens(line.strip())
                skipped = len(tokens) - len(bare)
                if 0 <= skipped <= 1 and tokens[skipped:] == bare:
                    asked.append((len(row), len(row) + skipped, len(row) + len(tokens)))
            row += tokens
            row += newline
    return Code(
        np.array(row, np.int16),
        np.array(lines, np.int64),
        np.array(begins, np.bool_),
        np.array(firsts, np.int64),
        np.array(asked, np.int64).reshape(-1, 3),
    )


def joined(parts: Sequence[Code]) -> Code:
    tokens = _offsets(len(part.tokens) for part in parts)
    lines = _offsets(len(part.lines) for part in parts)
    return Code(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.lines + at for part, at in zip(parts, tokens, strict=True)]),
        np.concatenate([part.begins for part in parts]),
        np.concatenate([part.files + at for part, at in zip(parts, lines, strict=True)]),
        np.concatenate([part.asked + at for part, at in zip(parts, tokens, strict=True)]),
    )


def _worth_completing(file: CodeFile) -> Iterator[int]:
    """As the task: behind some other lines, of some length, neither comment nor within a text of several lines."""
    inside = False
    for at, line in enumerate(file.lines):
        quotes = sum(map(line.count, QUOTES))
        bare = line.strip()
        code = SHORTEST <= len(bare) <= LONGEST and not bare.startswith(COMMENT) and CODE.search(bare)
        if code and at >= BEFORE and not inside and not quotes:
            yield at
        inside ^= quotes % 2 == 1


def _offsets(sizes: Iterator[int]) -> list[int]:
    at, offsets = 0, []
    for size in sizes:
        offsets.append(at)
        at += size
    return offsets
