"""A file of JSON lines that several processes append to and that no kill can damage.

Every append is one write to an O_APPEND descriptor under a lock, then fsync. A process that dies in the middle of a write
leaves half of a last line; whoever holds the lock next cuts it off. Lines that others added are read before each append, so
that no key is written twice.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from lengthwise.common.files import read_file, require_regular, writing
from lengthwise.common.formats import checked, parse_json
from lengthwise.errors import BadInput, require
from lengthwise.records.locks import exclusive


class Keyed(Protocol):
    """A line that is in its file once, however often it is appended."""

    @property
    def key(self) -> Hashable: ...


Line = TypeVar("Line", bound=Keyed)
Kind = TypeVar("Kind")
DONE_AGAIN = "take the line out, and what it held will be done again"


class AppendOnly(Generic[Line]):
    """The lines of one file by their keys, as of the last `refresh`, `append` or `locked`."""

    def __init__(self, path: Path, kind: type[Line]) -> None:
        self.path = path
        self.kind = kind
        self.lines: dict[Hashable, Line] = {}
        self._read = 0  # bytes
        self._count = 0  # lines
        self.refresh()

    def refresh(self) -> None:
        """Read the lines that others have added."""
        with self.locked():
            pass

    def append(self, lines: Iterable[Line]) -> None:
        """Add those lines whose keys the file does not hold yet; on return they are on the disk."""
        with self.locked() as descriptor:
            new = {line.key: line for line in lines if line.key not in self.lines}
            if not new:
                return
            text = "".join(self._text(line) for line in new.values()).encode()
            self._write(descriptor, text)
            self.lines.update(new)
            self._read += len(text)
            self._count += len(new)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """The file's descriptor while no other process may append; everything in the file has been read."""
        with writing(self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
            try:
                require_regular(descriptor)
                with exclusive(descriptor):
                    self._catch_up(descriptor)
                    yield descriptor
            finally:
                os.close(descriptor)

    def _write(self, descriptor: int, text: bytes) -> None:
        try:
            if os.write(descriptor, text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self._read)
            raise

    def _text(self, line: Line) -> str:
        text = json.dumps(asdict(line), allow_nan=False)  # type: ignore[call-overload]
        try:
            checked(self.kind, parse_json(text))
        except ValueError as error:
            # Nothing is written that could not be read again
            raise ValueError(f"a line for {self.path.name} is wrong: {error}") from None
        return text + "\n"

    def _catch_up(self, descriptor: int) -> None:
        longer = os.fstat(descriptor).st_size >= self._read
        require(longer, f"{self.path} became shorter while it was in use; give another --out, or restore the file")
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        for line in _parsed(whole, self.path, self.kind, self._count, DONE_AGAIN):
            self.lines.setdefault(line.key, line)
        if len(whole) < len(text):
            # Nobody writes now, so the writer of a last line without an end is dead; a file that is refused stays as it is
            os.ftruncate(descriptor, self._read + len(whole))
        self._read += len(whole)
        self._count += whole.count(b"\n")


def read_lines(path: Path, kind: type[Kind], then: str = DONE_AGAIN, *, finite: bool = True) -> list[Kind]:
    """A file's lines without touching it: no lock, and a last line that is still being written is left out."""
    try:
        text = read_file(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    return list(_parsed(text, path, kind, 0, then, finite))


def _parsed(text: bytes, path: Path, kind: type[Kind], before: int, then: str, finite: bool = True) -> Iterator[Kind]:
    """The lines in `text`, which stands in `path` after `before` other lines; `then` says what to do with a damaged one."""
    for number, line in enumerate(text.split(b"\n")[:-1], before + 1):
        try:
            yield checked(kind, parse_json(line, finite=finite))
        except ValueError as error:
            raise BadInput(f"line {number} of {path} is damaged: {error}; {then}") from None
