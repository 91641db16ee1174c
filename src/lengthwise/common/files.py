"""Read and write files of a user's: no input that makes a reader wait, no output that is half written, no refusal of two lines.

A file or a folder is written beside its place under a name that nobody can guess, and moved there when it is whole and on the
disk, however many processes write it and whenever one is killed. Permission bits and symbolic links stay as they were.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lengthwise.errors import BadInput, is_out_of_memory

PART = ".part-"  # begins the name of a file or a folder that is being written
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux
LARGEST = 4 << 30  # bytes of a file that is read
# What may be no file, in the words of a refusal
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a disk"}
# How the libraries in Rust and C++ tell what an OSError is in Python, and Python that a path is none
SYSTEM_ERRORS = (
    "(os error ",
    "PytorchStreamWriter failed",
    "Parent directory ",
    "embedded null byte",
    "surrogates not allowed",
)


def read_file(path: str | Path) -> bytes:
    """The content of a regular file; an OSError for all else, as for a pipe, whose reader might wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        require_regular(descriptor)
        if os.fstat(descriptor).st_size > LARGEST:
            raise OSError(errno.EFBIG, f"it is larger than {LARGEST >> 30} GiB")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def require_regular(descriptor: int) -> None:
    """Raise an OSError unless an open file is a regular one."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or leave the old one; makes its folder if need be.

    What is there and is no regular file, as a pipe or a device, is written to as it is; so is standard output by another name.
    """
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    with writing(path):
        place, old = _place(path)
        if old is None or (stat.S_ISREG(old.st_mode) and standard_stream(old) is None):
            place.parent.mkdir(parents=True, exist_ok=True)
            _replace(place, old, data)
        else:
            _write_through(path, old, data)


def append_text(path: str | Path, text: str) -> None:
    """Add text to the end of a file."""
    with writing(path), Path(path).open("a", encoding="utf-8") as file:
        file.write(text)


def save_whole(path: Path, parts: Iterable[Any], *, overwrite: bool = False) -> None:
    """Call `save_pretrained` of all parts on one folder and move it into place when complete.

    An empty folder is replaced; one that holds something only with `overwrite`.
    """
    with writing(path):
        place = Path(os.path.realpath(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=PART, dir=place.parent, ignore_cleanup_errors=True) as name:
            new, old = Path(name, "new"), Path(name, "old")
            new.mkdir()
            for part in parts:
                part.save_pretrained(new)
            for saved in (*new.rglob("*"), new):
                _sync(saved)
            if place.exists() and not overwrite:
                place.rmdir()
            if not (place.exists() and _exchange(new, place)):
                _move(new, place, old)
            _sync(place.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step, at which nothing can be lost; False where the system cannot."""
    try:
        rename: Any = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0)


def _move(new: Path, place: Path, old: Path) -> None:
    """Put a folder in the place of another, which goes to `old`, or comes back."""
    try:
        if place.exists():
            place.rename(old)
        new.rename(place)
    except BaseException:
        if old.exists() and not place.exists():
            old.rename(place)
        raise


def check_writable(path: str | Path) -> None:
    """Refuse before hours of work, not after: by a file made and removed there, because permissions do not tell everything."""
    with writing(path):
        place, old = _place(path)
        if old is None or stat.S_ISREG(old.st_mode):
            folder = next(folder for folder in place.parents if folder.exists())
            with tempfile.TemporaryFile(prefix=PART, dir=folder):
                pass


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Say in one line why `path` cannot be written: a full disk, no permission, a name that is too long."""
    try:
        yield
    except Exception as error:
        if (reason := system_reason(error)) is None:
            raise
        raise BadInput(f"cannot write {path}: {reason}; give another place") from error


def system_reason(error: BaseException) -> str | None:
    """The operating system's reason for an error, in one line; None for an error of another kind."""
    message = " ".join(str(error).split())
    if is_out_of_memory(error):
        return None
    if isinstance(error, OSError):
        return error.strerror or message or type(error).__name__
    return message if not isinstance(error, BadInput) and any(sign in message for sign in SYSTEM_ERRORS) else None


def _place(path: str | Path) -> tuple[Path, os.stat_result | None]:
    """Where a file is once all links are followed, and what is there; refuses what may not be replaced or written to."""
    place = Path(os.path.realpath(path))
    try:
        old = Path(path).stat()
    except FileNotFoundError:
        return place, None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if stat.S_ISBLK(old.st_mode):
        raise OSError(errno.EINVAL, "it is a disk, not a file")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return place, old


def _replace(place: Path, old: os.stat_result | None, data: bytes) -> None:
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o777
    part = place.with_name(f"{PART}{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if old is not None:
                with suppress(PermissionError):
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        part.replace(place)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    _sync(place.parent)


def _write_through(path: str | Path, old: os.stat_result, data: bytes) -> None:
    stream = standard_stream(old)
    if stream is not None and sys.stdout is not None:
        sys.stdout.flush()
    # Without waiting for somebody who reads a pipe; once open, a slow reader is waited for
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY) if stream is None else stream
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb", closefd=stream is None) as file:
        file.write(data)


def standard_stream(old: os.stat_result) -> int | None:
    """The descriptor of standard output or standard error where a file is what they write to."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), old):
                return descriptor
    return None


def _sync(path: Path) -> None:
    """Ask for a file or a folder on the disk; some file systems cannot with a folder."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
