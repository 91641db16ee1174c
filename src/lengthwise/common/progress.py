"""Progress of long work, on standard error: a bar with the time left in a terminal, a line a step elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class ProgressCallback(Protocol):
    """Reports progress: `done` adds to the bar, `label` renames it."""

    def __call__(self, done: float = 1.0, label: str | None = None) -> None: ...


def no_progress(done: float = 1.0, label: str | None = None) -> None:
    """Report nothing."""


@contextmanager
def progress(label: str, total: float, shown: bool = True) -> Iterator[ProgressCallback]:
    """Show a progress bar for the time of the block; yields the callback that moves it."""
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
