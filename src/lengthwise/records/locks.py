"""Locks that the operating system releases when their holder dies, however it dies.

Both lock with the file system's own lock (flock), as earlier versions did, so processes of both keep each other out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor, unlock_descriptor


@contextmanager
def exclusive(descriptor: int) -> Iterator[None]:
    """Hold a file's lock, which one process has at a time; wait for it."""
    lock_descriptor(descriptor, poll_interval=0.01)
    try:
        yield
    finally:
        unlock_descriptor(descriptor)


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """True when the file at `path` is ours while the `with` lasts, False at once when somebody else holds it."""
    # A lock that merely exists as a file would outlive a killed holder
    lock = FileLock(path, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        # Removed while still held: whoever opened it meanwhile finds another file, or none, at the path and tries again
        path.unlink(missing_ok=True)
        lock.release()
