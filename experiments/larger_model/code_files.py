"""The code that training reads: Python files of folders, never the standard library, which evaluation asks about.

A folder that is the standard library, or holds it, is refused; a file of which much stands in the standard library, such as a
vendored copy, is dropped, and so is a second file of the same content.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from lengthwise.errors import require
from lengthwise.tasks import code_key_retrieval
from lengthwise.tasks.material.code_files import LEFT_OUT, LEFT_OUT_OF_PYTHON, CodeFile, read_code, standard_library

MOST = 60_000_000  # letters of code
SHARERS = 4  # folders that code is taken from at least, where so many are given
NOT_READ = LEFT_OUT_OF_PYTHON | {"include"}
LONGEST = 200_000  # letters of a file; longer ones are mostly tables
TELLING = 30  # letters of a line that two files share by copying only
SHARED = 0.25  # of a file's telling lines in the standard library: then it is a copy
DOCSTRING = re.compile(r'"""(.*?)"""', re.S)
PROSE = {".md", ".rst", ".txt"}
SHORTEST_PROSE = 200  # letters
LETTERS = 0.75  # of what is no white space: less is a table


def read(folders: Sequence[Path], most: int = MOST) -> list[CodeFile]:
    """At most so many letters, a quarter of them of one folder, in an order that depends on the files' names only."""
    for folder in folders:
        check(folder)
    found = [(folder, file) for folder in folders for file in read_code(folder, NOT_READ) if file.name.endswith(".py")]
    found.sort(key=lambda one: _hash(f"{one[0].name}/{one[1].name}"))
    library = telling(line for file in standard_library() for line in file.lines)
    kept: dict[str, CodeFile] = {}
    left = dict.fromkeys(folders, most // min(SHARERS, len(folders)))
    for folder, file in found:
        text = "\n".join(file.lines)
        # The function that hides a number must be the only one of its name
        if len(text) > LONGEST or code_key_retrieval.NAME in text or is_copy(file, library):
            continue
        if len(text) <= min(left[folder], most) and kept.setdefault(_hash(text), file) is file:
            left[folder] -= len(text)
            most -= len(text)
    require(bool(kept), f"no Python file is left to train on in {', '.join(map(str, folders))}; give more folders (--code)")
    return list(kept.values())


def check(folder: Path) -> None:
    require(folder.is_dir(), f"--code {folder} is no folder")
    own, library = folder.resolve(), Path(sysconfig.get_paths()["stdlib"]).resolve()
    installed = own.is_relative_to(library) and set(own.relative_to(library).parts) & {"site-packages", "dist-packages"}
    inside = own.is_relative_to(library) or library.is_relative_to(own)
    require(
        bool(installed) or not inside,
        f"--code {folder} holds Python's standard library, which evaluation asks about; give folders of installed packages",
    )


def telling(lines: Iterable[str]) -> set[int]:
    return {hash(bare) for line in lines if len(bare := line.strip()) >= TELLING}


def is_copy(file: CodeFile, library: set[int]) -> bool:
    own = telling(file.lines)
    return len(own & library) > SHARED * len(own)


def prose(folders: Sequence[Path], files: Iterable[CodeFile]) -> list[str]:
    """Docstrings of the files, and texts that lie beside code, each once."""
    texts = (inspect.cleandoc(found) for file in files for found in DOCSTRING.findall("\n".join(file.lines)))
    found = dict.fromkeys(text for text in texts if len(text) >= SHORTEST_PROSE)
    for path in (path for folder in folders for path in _beside(folder)):
        text = path.read_text(encoding="utf-8", errors="ignore").strip()
        if SHORTEST_PROSE <= len(text) <= LONGEST:
            found[text] = None
    kept = [text for text in found if _letters(text) > LETTERS]
    require(bool(kept), f"there is no prose in or beside the code of {', '.join(map(str, folders))}; give more (--code)")
    return kept


def _beside(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix in PROSE and path.is_file())
    return [path for path in paths if not LEFT_OUT & set(path.relative_to(folder).parts)]


def _letters(text: str) -> float:
    bare = "".join(text.split())
    return sum(map(str.isalpha, bare)) / len(bare)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
