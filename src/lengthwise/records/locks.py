"""Locks that the kernel releases when their holder dies, however it dies.

Not filelock: it locks a file of its own, where `exclusive` locks the very file that is written, so that no second file stands
in a run directory and processes of earlier versions keep each other out; it leaves the files of released locks behind, where
a finished claim is gone; and where a file system knows no flock it falls back on a lock that outlives a killed holder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(descriptor: int) -> Iterator[None]:
    """Hold a file's lock, which one process has at a time; wait for it."""
    # Here and not above: lengthwise must be importable where there is no flock
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """True when the file at `path` is ours while the `with` lasts, False at once when somebody else holds it."""
    descriptor = _claimed(path)
    if descriptor is None:
        yield False
        return
    try:
        yield True
    finally:
        # Removed while still held: whoever opened it meanwhile finds another file, or none, at the path and tries again
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _claimed(path: Path) -> int | None:
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        try:
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)
