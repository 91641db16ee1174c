"""Write a file or a folder whole or not at all, however many processes write it and whenever one is killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lengthwise.errors import BadInput

PART = ".part-"  # begins the name of a file or a folder that is being written


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file beside its place, then move it there, so that it is never half written; makes the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{PART}{os.getpid()}-{path.name}")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def save_whole(path: Path, parts: Iterable[Any], *, overwrite: bool = False) -> None:
    """Call `save_pretrained` of all parts on one folder and move it into place when complete.

    An empty folder is replaced; one that holds something only with `overwrite`.
    """
    folder = path.absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=PART, dir=folder, ignore_cleanup_errors=True) as name:
            beside = Path(name)
            for part in parts:
                part.save_pretrained(beside)
            beside.chmod(0o755)
            if path.exists():
                remove = shutil.rmtree if overwrite else os.rmdir
                remove(path)
            beside.replace(path)
    except Exception as error:
        # The libraries in Rust have errors of their own for what an OSError is in Python
        if not isinstance(error, OSError) and "(os error " not in str(error):
            raise
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: Exception) -> BadInput:
    """The refusal for a full disk or a folder without write permission, in one line."""
    reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
    return BadInput(f"cannot write {path}: {reason}; give another place")
