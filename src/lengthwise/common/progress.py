"""Progress of long work, on standard error: a bar with the time left in a terminal, a line a step elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

_end = ContextVar("end", default=math.inf)  # of the time limit, by the monotonic clock


class TimeIsUp(Exception):
    """Long work has come to the end of its time limit."""


class ProgressCallback(Protocol):
    """Reports progress: `done` adds to the bar, `label` renames it. Raises `TimeIsUp` at the end of a time limit."""

    def __call__(self, done: float = 1.0, label: str | None = None) -> None: ...


def no_progress(done: float = 1.0, label: str | None = None) -> None:
    """Report nothing."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stop long work in the block with `TimeIsUp`, where it reports its progress, once so many seconds are gone."""
    token = _end.set(min(_end.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _end.reset(token)


@contextmanager
def progress(label: str, total: float, shown: bool = True) -> Iterator[ProgressCallback]:
    """Show a progress bar for the time of the block; yields the callback that moves it."""
    with _shown_progress(label, total, shown) as show:

        def tick(done: float = 1.0, label: str | None = None) -> None:
            show(done, label)
            if time.monotonic() > _end.get():
                raise TimeIsUp

        yield tick


@contextmanager
def _shown_progress(label: str, total: float, shown: bool) -> Iterator[ProgressCallback]:
    """`progress` without a time limit."""
    if not shown:
        yield no_progress
    elif not sys.stderr.isatty():
        yield _line
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(label, total=total)

            def tick(done: float = 1.0, label: str | None = None) -> None:
                bars.update(task, advance=done, description=label)

            yield tick


def stage(name: str, shown: bool = True) -> None:
    """Say what the steps that follow are for."""
    if shown:
        print(name, file=sys.stderr, flush=True)


def _line(done: float = 1.0, label: str | None = None) -> None:
    if label is not None:
        print(label, file=sys.stderr, flush=True)
