"""Code for prompts: the files of a folder, by default Python's standard library, and lines of them fitted to a length."""

from __future__ import annotations

import bisect
import itertools
import math
import random
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lengthwise.errors import require
from lengthwise.tasks.material.fit_length import check_room
from lengthwise.tasks.sample import token_count

SUFFIXES = set(".c .cc .cpp .cs .go .h .hpp .java .js .jl .kt .lua .php .py .r .rb .rs .scala .sh .swift .ts".split())
LEFT_OUT = {"__pycache__", "dist-packages", "node_modules", "site-packages"}
# Tests, and tables of characters and help texts, which are no code to complete
LEFT_OUT_OF_PYTHON = {"encodings", "idlelib", "pydoc_data", "test", "tests"}
GUESSES = 8  # guesses at how many lines fit, before the search halves what is left


@dataclass(frozen=True)
class CodeFile:
    name: str  # its path in the folder
    lines: tuple[str, ...]  # without white space at their ends


@lru_cache(maxsize=4)
def standard_library() -> tuple[CodeFile, ...]:
    """The standard library of the Python that runs this."""
    return read_code(Path(sysconfig.get_paths()["stdlib"]), LEFT_OUT_OF_PYTHON)


def read_code(folder: Path, left_out: set[str] | None = None) -> tuple[CodeFile, ...]:
    """The files of a folder that are code by their names, in the order of their names.

    Hidden folders, installed packages and those `left_out` are passed over, and so are files that are not UTF-8 text or empty.
    """
    folder = Path(folder)
    require(folder.is_dir(), f"{folder} is no folder; give one with files of code")
    ignored = LEFT_OUT | (left_out or set())
    files = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix.lower() not in SUFFIXES or any(part in ignored or part.startswith(".") for part in name.parts):
            continue
        if path.is_file() and (lines := _lines(path)):
            files.append(CodeFile(name.as_posix(), lines))
    require(bool(files), f"{folder} holds no files of code ({', '.join(sorted(SUFFIXES))}); give another folder")
    return tuple(files)


def take(path: Path) -> dict[str, Any]:
    """Read the code that the samples of a task are made of where a folder is given."""
    return {"files": read_code(path)}


def shuffled(files: Sequence[CodeFile], randomness: random.Random) -> Iterator[CodeFile]:
    """The files in a random order, again and again."""
    require(bool(files), "there are no files of code; give at least one")
    return itertools.cycle(randomness.sample(files, len(files)))


def fit_lines(
    tokenizer: Any, length: int, lines: Iterator[str], prompt_of: Callable[[list[str]], str], backwards: bool = False
) -> list[str]:
    """Take so many of the endless `lines` that `prompt_of` makes a prompt of `length` tokens of them, or a little less.

    The last of them is cut where the length is reached; where lines run `backwards` its end is kept.
    """

    def excess(kept: list[str]) -> int:
        return token_count(tokenizer, prompt_of(kept)) - length

    least = excess([])
    check_room(length, least + length)
    kept, over = _enough(lines, excess, least)
    letters = [0, *itertools.accumulate(len(line) + 1 for line in kept)]
    whole, under, over = _most(letters, lambda count: excess(kept[:count]), least, over)
    kept, line = kept[:whole], kept[whole]

    def cut(letters: int) -> list[str]:
        return [*kept, line[len(line) - letters :] if backwards else line[:letters]]

    some, _, _ = _most(range(len(line) + 1), lambda count: excess(cut(count)), under, over)
    return cut(some) if some else kept


def _enough(lines: Iterator[str], excess: Callable[[list[str]], int], least: int) -> tuple[list[str], int]:
    """More lines than there is room for, though not many more, and their excess."""
    kept = list(itertools.islice(lines, 16))
    while (over := excess(kept)) <= 0:
        more = math.ceil(1.1 * len(kept) * -over / max(1, over - least)) + 1
        kept += itertools.islice(lines, min(more, 7 * len(kept)))
    return kept, over


def _most(weights: Sequence[int], excess: Callable[[int], int], under: int, over: int) -> tuple[int, int, int]:
    """The largest count without excess, its excess, and that of one more; `under` and `over` are those of none and of all.

    A whole prompt is counted at every step, so steps are few: tokens grow about as `weights` do, which tells where to look.
    """
    at, end = 0, len(weights) - 1
    for step in itertools.count():
        if end - at <= 1:
            break
        target = weights[at] + (weights[end] - weights[at]) * -under / (over - under)
        guess = bisect.bisect_right(weights, target, lo=at, hi=end) - 1 if step < GUESSES else (at + end) // 2
        guess = min(max(guess, at + 1), end - 1)
        if (found := excess(guess)) > 0:
            end, over = guess, found
        else:
            at, under = guess, found
    return at, under, over


def _lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return ()
    # Not splitlines: it breaks at form feeds, which stand within lines of code
    return tuple(line.rstrip() for line in text.strip("\r\n").split("\n")) if text.strip() else ()
