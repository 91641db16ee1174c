"""What the larger T5 is trained on: novels, code and its prose, questions of people, and a vocabulary of 16,384 tokens.

    python -m experiments.larger_model.data --nq nq-open-oracle.jsonl.gz --out held_out.jsonl

writes the questions that training never sees, those on a third of the pages: a page is held out by a hash of its title.

Code is Python files of folders, never the standard library, which evaluation asks about: a file of which much stands in it,
such as a vendored copy, is dropped. Code becomes one row of tokens, file after file, so
that a prompt of code is a slice: in this vocabulary every newline, digit and run of spaces is a token of its own, so a
line's tokens do not depend on its neighbours.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, pre_tokenizers

from experiments._lib import bpe, t5_examples
from experiments._lib import novels as books
from experiments._lib.bpe import Pieces
from experiments._lib.command import main, option
from lengthwise.errors import require
from lengthwise.tasks import code_key_retrieval
from lengthwise.tasks.code_completion import BEFORE, CODE, COMMENT, LONGEST, SHORTEST
from lengthwise.tasks.material.case_files import cases
from lengthwise.tasks.material.code_files import LEFT_OUT, LEFT_OUT_OF_PYTHON, CodeFile, read_code, standard_library
from lengthwise.tasks.material.documents import Document, Question, documents_of, read_questions
from lengthwise.tasks.scoring import normalised

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
TELLING = 30  # letters of a line that two files share by copying only
SHARED = 0.25  # of a file's telling lines in the standard library: then it is a copy
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
        lines = telling(file.lines)
        # The function that hides a number must be the only one of its name
        if len(text) > LONGEST_FILE or code_key_retrieval.NAME in text or len(lines & library) > SHARED * len(lines):
            continue
        if len(text) <= min(left[folder], most) and kept.setdefault(_hash(text), file) is file:
            left[folder] -= len(text)
            most -= len(text)
    require(bool(kept), f"no Python file is left to train on in {', '.join(map(str, folders))}; give more folders (--code)")
    return list(kept.values())


def telling(lines: Iterable[str]) -> set[int]:
    return {hash(bare) for line in lines if len(bare := line.strip()) >= TELLING}


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


QUOTES = ('"""', "'''")


@dataclass(frozen=True)
class Code:
    tokens: NDArray[np.int16]
    lines: NDArray[np.int64]  # where each line starts
    begins: NDArray[np.bool_]  # of each line: whether it begins something new
    files: NDArray[np.int64]  # each file's first line
    asked: NDArray[np.int64]  # [lines worth completing, 3]: where the line starts, where behind its indentation, where it ends


def tokenised(files: Sequence[CodeFile], pieces: Pieces) -> Code:
    newline = pieces.tokens("\n")
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


LONGEST_ANSWER = 80  # letters
MANY_PASSAGES = 40  # passages among which there are enough without the answer


@dataclass(frozen=True)
class Asked:
    """A question, and what is needed to choose passages around it."""

    question: Question
    standing: tuple[str, ...]  # its answers that stand in its passage as they are written
    plain_answers: tuple[str, ...]  # normalised
    plain_passage: str


def held_out_page(title: str) -> bool:
    return int(hashlib.sha256(f"title {title.strip().lower()}".encode()).hexdigest(), 16) % 3 == 0


def training_questions(path: Path) -> list[Asked]:
    """Those whose answer can be copied from the passage."""
    found = (_asked(question) for question in read_questions(path) if not held_out_page(question.gold.title))
    return [one for one in found if one.standing]


def held_out_questions(path: Path) -> list[Question]:
    return [question for question in read_questions(path) if held_out_page(question.gold.title)]


def others(randomness: random.Random, asked: Asked, all_asked: list[Asked]) -> Iterator[Document]:
    """Some passages of other questions, none of which holds an answer."""
    for one in randomness.sample(all_asked, min(MANY_PASSAGES, len(all_asked))):
        if one.question.gold != asked.question.gold and not any(a in one.plain_passage for a in asked.plain_answers):
            yield one.question.gold


def window(randomness: random.Random, text: str, answer: str, words: int) -> str:
    """About so many words of a text, the answer among them, anywhere."""
    before, _, after = " ".join(text.split()).partition(answer)
    left, right = before.split(" "), after.split(" ")
    spare = max(2, words - len(answer.split()))
    taken = min(len(left), max(randomness.randint(0, spare), spare - len(right)))
    return (" ".join(left[len(left) - taken :]) + answer + " ".join(right[: max(1, spare - taken)])).strip()


def _asked(question: Question) -> Asked:
    text = " ".join(question.gold.text.split())
    standing = [answer for answer in question.answers if answer in text and len(answer) <= LONGEST_ANSWER]
    plain = tuple(map(normalised, question.answers))
    return Asked(question, tuple(standing), plain, normalised(question.gold.told))


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


@dataclass(frozen=True, kw_only=True)
class Options:
    nq: Path = option(help="JSON lines with question, answers and ctxs, plain or .gz")
    out: Path = option(help="file of the held-out lines")


def write_held_out(options: Options) -> None:
    """Writes the lines of held-out pages, as they are."""
    lines = []
    for case in cases(options.nq):
        documents, gold = documents_of(case)
        if held_out_page(documents[gold or 0].title):
            lines.append(json.dumps(case.fields) + "\n")
    options.out.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} questions in {options.out}")


if __name__ == "__main__":
    sys.exit(main(Options, write_held_out, __doc__))
