"""What the larger T5 is trained on: novels, code and its prose, questions of people, and a vocabulary of 16,384 tokens.

Code is Python files of folders, never the standard library, which evaluation asks about: a file of which much stands in it,
such as a vendored copy, is dropped. Code becomes one row of tokens, file after file, so
that a prompt of code is a slice: in this vocabulary every newline, digit and run of spaces is a token of its own, so a
line's tokens do not depend on its neighbours.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, pre_tokenizers

from experiments._lib import bpe, t5_examples
from experiments._lib import novels as books
from experiments._lib.bpe import Pieces
from experiments._lib.code_rows import Code, copied, telling, tokenised
from experiments._lib.natural_questions import Asked, training_questions
from lengthwise.errors import require
from lengthwise.tasks import code_key_retrieval
from lengthwise.tasks.material.code_files import LEFT_OUT, LEFT_OUT_OF_PYTHON, CodeFile, read_code, standard_library

VOCABULARY = 16384
# Ranges and no classes such as \w, which Python and the tokenizer's own engine understand differently
LETTERS = "A-Za-z\u00c0-\u1fff\u2c00-\U0010ffff"
CURLY = "\u2019"  # an apostrophe of printed books
SPACES = r"\t\x0b\x0c\r"
# A space, a dot or a low line belongs to the word behind it; 's and the like are words
RULE = rf"\n|[0-9]|['{CURLY}](?:[stmd]|re|ve|ll)(?![{LETTERS}])|[ ._]?[{LETTERS}]+| ?[^ \n{SPACES}0-9{LETTERS}]+| +|[{SPACES}]+"
SPLIT = re.compile(RULE)


def learn_vocabulary(texts: Iterable[str], size: int | None = None) -> Tokenizer:
    split = [
        pre_tokenizers.Split(Regex(RULE), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return bpe.learn(texts, size or VOCABULARY, split)


MOST_CODE = 60_000_000  # letters of code
SHARERS = 4  # folders that code is taken from at least, where so many are given
NOT_READ = LEFT_OUT_OF_PYTHON | {"include"}
LONGEST_FILE = 200_000  # letters of a file; longer ones are mostly tables
DOCSTRING = re.compile(r'"""(.*?)"""', re.S)
PROSE = {".md", ".rst", ".txt"}
SHORTEST_PROSE = 200  # letters
LEAST_LETTERS = 0.75  # of what is no white space: less is a table


def read_code_files(folders: Sequence[Path], most: int = MOST_CODE) -> list[CodeFile]:
    """At most so many letters, a quarter of them of one folder, in an order that depends on the files' names only."""
    found = [(folder, file) for folder in folders for file in read_code(folder, NOT_READ) if file.name.endswith(".py")]
    found.sort(key=lambda one: _hash(f"{one[0].name}/{one[1].name}"))
    library = telling(line for file in standard_library() for line in file.lines)
    kept: dict[str, CodeFile] = {}
    left = dict.fromkeys(folders, most // min(SHARERS, len(folders)))
    for folder, file in found:
        text = "\n".join(file.lines)
        # The function that hides a number must be the only one of its name
        if len(text) > LONGEST_FILE or code_key_retrieval.NAME in text or copied(file, library):
            continue
        if len(text) <= min(left[folder], most) and kept.setdefault(_hash(text), file) is file:
            left[folder] -= len(text)
            most -= len(text)
    require(bool(kept), f"no Python file is left to train on in {', '.join(map(str, folders))}; give more folders (--code)")
    return list(kept.values())


def prose_of(folders: Sequence[Path], files: Iterable[CodeFile]) -> list[str]:
    """Docstrings of the files, and texts that lie beside code, each once."""
    texts = (inspect.cleandoc(found) for file in files for found in DOCSTRING.findall("\n".join(file.lines)))
    found = dict.fromkeys(text for text in texts if len(text) >= SHORTEST_PROSE)
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.suffix in PROSE and path.is_file()):
            text = path.read_text(encoding="utf-8", errors="ignore").strip()
            if SHORTEST_PROSE <= len(text) <= LONGEST_FILE and not LEFT_OUT & set(path.relative_to(folder).parts):
                found[text] = None
    return [text for text in found if sum(map(str.isalpha, text)) > LEAST_LETTERS * len("".join(text.split()))]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


SAMPLE = 4_000_000  # letters of code and of its prose that the vocabulary is learnt from, besides all novels and passages


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


@dataclass(frozen=True, kw_only=True)
class Stock(t5_examples.Stock):
    """The same as tokens."""

    code: Code
    prose: NDArray[np.int16]
    questions: list[Asked]


def texts(data: Path, questions: Path, folders: Sequence[Path]) -> Texts:
    files = read_code_files(folders)
    return Texts(books.training(data), files, prose_of(folders, files), training_questions(questions))


def stock(texts: Texts, tokenizer: Any) -> Stock:
    # What looks like a special token within a text is text
    tokenizer.encode_special_tokens = True
    pieces = Pieces(tokenizer, SPLIT)
    code, prose = tokenised(texts.files, pieces), np.array(pieces.tokens("\n\n\n".join(texts.prose)), np.int16)
    return Stock(pieces=pieces, books=books.read(texts.novels, pieces), code=code, prose=prose, questions=texts.questions)
