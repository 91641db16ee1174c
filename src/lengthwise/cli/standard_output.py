"""Standard output and standard error that cannot be written, on a full disk say: one line and an exit status, no traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from lengthwise.cli.options import say


class CannotPrint(OSError):
    """An OSError of standard output, told apart from those of all other files."""


class Output:
    """Standard output that raises `CannotPrint` where it cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _marked():
            return self._stream.write(text)

    def flush(self) -> None:
        with _marked():
            self._stream.flush()


class Messages(Output):
    """Standard error, where what cannot be written is left out: no work is lost for a log on a full disk."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


@contextmanager
def _marked() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotPrint(error.errno, error.strerror) from error


def printing(run: Callable[[], int]) -> int:
    """The exit status of `run`, or 1 where standard output did not take all that was printed."""
    # Closed by the shell, either is None; print() takes that for nowhere, others do not
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = Messages(sys.stderr)
    if sys.stdout is None:
        return run()
    # A name in letters that it does not have is no reason to lose the table of hours, and standard error does the same
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout = Output(sys.stdout)
    try:
        status = run()
        # Not left to the interpreter, which would end in a traceback
        sys.stdout.flush()
    except CannotPrint as error:
        # The interpreter tries once more to write what is left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # Whoever closed a pipe, as `head` does, has read enough
        if error.errno != errno.EPIPE:
            say(f"cannot write standard output: {error.strerror}")
        return 1
    return status
