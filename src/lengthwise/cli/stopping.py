"""A command that is stopped: Ctrl-C and SIGTERM end it alike, by an exception that leaves files whole and claims released."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lengthwise.cli.options import say


@contextmanager
def termination_as_interrupt() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt where SIGTERM is received, once; the list that is yielded then holds the signal's number.

    SIGINT is noted there, too: an import in C may lose its KeyboardInterrupt, and fail later for what it did not finish.
    """
    received: list[int] = []

    def interrupt(number: int, _: Any) -> None:
        again = number in received
        if not again:
            received.append(number)
        # A second SIGTERM would break into what is being put in order
        if number == signal.SIGINT or not again:
            raise KeyboardInterrupt

    # Python gives signals to the main thread, which alone may ask for them
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    # Behind a shell's `&` SIGINT is ignored, and stays so
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
        if raises:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def can_go_on(out: Path | None) -> Iterator[None]:
    """Say, when the work is stopped, that the same command goes on with what is in `out`."""
    try:
        yield
    except KeyboardInterrupt:
        if out is not None and out.exists():
            say(f"what was finished is in {out}; the same command goes on from there")
        raise
