"""Code for prompts: the files of a folder, by default Python's standard library."""

from __future__ import annotations

import itertools
import os
import random
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lengthwise.errors import require

SUFFIXES = set(".c .cc .cpp .cs .go .h .hpp .java .js .jl .kt .lua .php .py .r .rb .rs .scala .sh .swift .ts".split())
LEFT_OUT = {"__pycache__", "dist-packages", "node_modules", "site-packages"}
# Tests, and tables of characters and help texts, which are no code to complete
LEFT_OUT_OF_PYTHON = {"encodings", "idlelib", "pydoc_data", "test", "tests"}


@dataclass(frozen=True)
class CodeFile:
    name: str  # its path in the folder
    lines: tuple[str, ...]  # without white space at their ends

    def __hash__(self) -> int:
        # Of all lines of a library it takes as long as making a prompt
        return hash((self.name, len(self.lines)))


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
    paths = sorted(_code_in(folder, LEFT_OUT | (left_out or set())))
    files = [CodeFile(path.relative_to(folder).as_posix(), lines) for path in paths if (lines := _lines(path))]
    require(bool(files), f"{folder} holds no files of code ({', '.join(sorted(SUFFIXES))}); give another folder")
    return tuple(files)


def _code_in(folder: Path, ignored: set[str]) -> Iterator[Path]:
    """Paths of files of code. Ignored folders are not walked: an environment's packages are ten times its standard library."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in ignored and not name.startswith(".")]
        for path in (Path(parent, name) for name in names if name not in ignored and not name.startswith(".")):
            if path.suffix.lower() in SUFFIXES and path.is_file():
                yield path


def take(path: Path) -> dict[str, Any]:
    """Read the code that the samples of a task are made of where a folder is given."""
    return {"files": read_code(path)}


def shuffled(files: Sequence[CodeFile], randomness: random.Random) -> Iterator[CodeFile]:
    """The files in a random order, again and again."""
    require(bool(files), "there are no files of code; give at least one")
    return itertools.cycle(randomness.sample(files, len(files)))


def _lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return ()
    # Not splitlines: it breaks at form feeds, which stand within lines of code
    return tuple(line.rstrip() for line in text.strip("\r\n").split("\n")) if text.strip() else ()
