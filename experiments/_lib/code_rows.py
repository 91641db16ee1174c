"""Code as one row of tokens, file after file, so that a prompt is a slice; and which of its lines are worth completing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments._lib.bpe import Pieces
from lengthwise.tasks.code_completion import BEFORE, CODE, COMMENT, LONGEST, SHORTEST
from lengthwise.tasks.material.code_files import CodeFile

TELLING = 30  # letters of a line that two files share by copying only
SHARED = 0.25  # of a file's telling lines in other files: then it is a copy
QUOTES = ('"""', "'''")


@dataclass(frozen=True)
class Code:
    tokens: NDArray[np.int16]
    lines: NDArray[np.int64]  # where each line starts
    asked: NDArray[np.int64]  # [lines worth completing, 3]: where the line starts, where behind its indentation, where it ends


def tokenised(files: Sequence[CodeFile], pieces: Pieces) -> Code:
    newline = pieces.tokens("\n")
    row: list[int] = []
    lines: list[int] = []
    asked: list[tuple[int, int, int]] = []
    for file in files:
        worth = set(_worth_completing(file))
        for at, line in enumerate((*file.lines, "")):
            lines.append(len(row))
            tokens = pieces.tokens(line)
            if at in worth:
                bare = pieces.tokens(line.strip())
                skipped = len(tokens) - len(bare)
                if 0 <= skipped <= 1 and tokens[skipped:] == bare:
                    asked.append((len(row), len(row) + skipped, len(row) + len(tokens)))
            row += tokens
            row += newline
    return Code(np.array(row, np.int16), np.array(lines, np.int64), np.array(asked, np.int64).reshape(-1, 3))


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


def copied(file: CodeFile, others: set[int]) -> bool:
    """Whether much of a file stands in others, of which the telling lines are given."""
    lines = telling(file.lines)
    return len(lines & others) > SHARED * len(lines)


def telling(lines: Iterable[str]) -> set[int]:
    return {hash(bare) for line in lines if len(bare := line.strip()) >= TELLING}
