"""An experiment works for as many minutes as it may; the same command goes on where it stopped."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TimeIsUp(BaseException):
    """Not an Exception, so that nothing on the way takes it for a failure and goes on."""


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def work_for(minutes: float, work: Callable[[], None]) -> None:
    """As much of `work` as there is time for; what it has finished stays."""
    try:
        with at_most(minutes):
            work()
    except TimeIsUp:
        say(f"{minutes:g} minutes are over; the same command goes on")


@contextmanager
def at_most(minutes: float) -> Iterator[None]:
    """TimeIsUp is raised in the main thread once the minutes are over; infinity is no limit."""
    if minutes == float("inf"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    # 0 would switch the timer off
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, 60 * minutes))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
