"""One training example, and what all sources of them draw from."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from experiments._lib import novels as books
from experiments._lib.novels import Books
from experiments._lib.pieces import Pieces
from experiments._lib.reader import Bound
from experiments.larger_model import code_files, code_tokens, natural_questions
from experiments.larger_model.code_tokens import Code
from experiments.larger_model.natural_questions import Asked
from experiments.larger_model.vocabulary import SPLIT
from lengthwise.errors import require
from lengthwise.tasks.material.code_files import CodeFile

One = TypeVar("One")
LEAST = 1000  # tokens, more than an example takes
SAMPLE = 4_000_000  # letters of code and of its prose that the vocabulary is learnt from, besides all novels and passages


@dataclass(frozen=True)
class Example:
    """Tokens in, tokens out; `</s>` included where it belongs."""

    source: str
    tokens: list[int]
    target: list[int]
    bound: tuple[Bound, ...] = ()  # what the encoder must know at some of the tokens


@dataclass(frozen=True)
class Texts:
    """What training reads, as text."""

    novels: list[Path]
    files: list[CodeFile]
    prose: list[str]
    questions: list[Asked]

    def sample(self) -> list[str]:
        """For the vocabulary."""
        novels = [path.read_text(encoding="utf-8") for path in self.novels]
        code = "\n\n".join("\n".join(file.lines) for file in self.files)[:SAMPLE]
        passages = [line for one in self.questions for line in (one.question.text, one.question.gold.told)]
        return [*novels, code, "\n\n".join(self.prose)[:SAMPLE], *passages]


@dataclass(frozen=True)
class Stock:
    """The same as tokens."""

    pieces: Pieces
    books: Books
    code: Code
    prose: NDArray[np.int16]
    questions: list[Asked]
    train: bool = True

    def answered(self, source: str, text: str, answer: str) -> Example:
        eos = [self.pieces.eos]
        return Example(source, self.pieces.tokens(text) + eos, self.pieces.tokens(answer) + eos)


def texts(data: Path, questions: Path, folders: Sequence[Path]) -> Texts:
    files = code_files.read(folders)
    return Texts(books.training(data), files, code_files.prose(folders, files), natural_questions.training(questions))


def stock(texts: Texts, tokenizer: Any, processes: int) -> Stock:
    # What looks like a special token within a text is text
    tokenizer.encode_special_tokens = True
    pieces = Pieces(tokenizer, SPLIT)
    with multiprocessing.get_context("fork").Pool(max(1, processes), _inherit, (pieces,)) as pool:
        code = pool.map_async(_code, _parts(texts.files, 4 * processes), chunksize=1)
        prose = pool.map_async(_row, _parts(texts.prose, 2 * processes), chunksize=1)
        novels = books.read(texts.novels, pieces)
        made = Stock(pieces, novels, code_tokens.joined(code.get()), np.concatenate(prose.get()), texts.questions)
    require(len(made.code.asked) > 0, "the files of code have no line to be completed; give more of them (--code)")
    for row, what in ((made.code.tokens, "code"), (made.prose, "prose in and beside code")):
        require(len(row) >= LEAST, f"there are {len(row)} tokens of {what}, fewer than {LEAST}; give more folders (--code)")
    return made


_inherited: list[Pieces] = []  # of a process that tokenises


def _inherit(pieces: Pieces) -> None:
    _inherited.append(pieces)


def _code(files: list[CodeFile]) -> Code:
    return code_tokens.tokenised(files, _inherited[0])


def _row(texts: list[str]) -> NDArray[np.int16]:
    """Texts one after the other, with blank lines between."""
    return np.array(_inherited[0].tokens("\n\n\n".join(texts)), np.int16)


def _parts(whole: list[One], count: int) -> list[list[One]]:
    size = max(1, -(-len(whole) // max(1, count)))
    return [whole[at : at + size] for at in range(0, len(whole), size)]
