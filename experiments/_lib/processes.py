"""Several processes at one experiment, each for as long as it may: they share out what is done once, and stop on time."""

from __future__ import annotations

import hashlib
import signal
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.records.append_only import AppendOnly
from lengthwise.records.locks import claim

PAUSE = 0.2  # seconds between two looks at what another process is making


class TimeIsUp(BaseException):
    """Not an Exception, so that nothing on the way takes it for a failure and goes on."""


@dataclass(frozen=True)
class Once:
    """Something to be made by one process for all."""

    claim: Path  # claimed while it is made
    done: Callable[[], bool]
    make: Callable[[], None]


def lines_once(lines: AppendOnly[Any], keys: Sequence[Hashable], make: Callable[[list[Any]], None]) -> Once:
    """Lines of a shared file as work that one process does for all: `make` gets the keys that are missing and appends them."""

    def missing() -> list[Any]:
        lines.refresh()
        return [key for key in keys if key not in lines.lines]

    digest = hashlib.sha256(repr(list(keys)).encode()).hexdigest()[:16]
    return Once(lines.path.with_name(f".claim-{digest}"), lambda: not missing(), lambda: make(missing()))


def share_out(works: Sequence[Once]) -> None:
    """Returns when all are done, here or elsewhere."""
    while left := [work for work in works if not work.done()]:
        if not any(_made(work) for work in left):
            time.sleep(PAUSE)


def _made(work: Once) -> bool:
    """False when another process is at it."""
    with claim(work.claim) as mine:
        if mine and not work.done():
            work.make()
        return mine


def work_for(minutes: float, work: Callable[[], None]) -> None:
    """As much of `work` as there is time for; what it has finished stays."""
    try:
        with at_most(minutes):
            work()
    except TimeIsUp:
        print(f"{minutes:g} minutes are over; the same command goes on", file=sys.stderr, flush=True)


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
