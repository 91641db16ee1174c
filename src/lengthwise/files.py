"""Write a file whole or not at all, however many processes write it and whenever one is killed."""

from __future__ import annotations

import os
from pathlib import Path

PART = ".part-"  # begins the name of a file that is being written


def write_whole(path: Path, content: str | bytes) -> None:
    """Beside it, to the disk, then moved into place; the folder is made where it is missing."""
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
