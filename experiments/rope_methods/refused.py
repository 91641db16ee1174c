"""Methods that do not go with a model: one must not cost the others, and the page tells of it.

A refusal is tried again by the next call, because a newer version may have what this one lacks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from experiments._lib.processes import Once
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput

FILE = "refused.json"


def refusal(spec: str, length: int) -> str:
    """What is refused, in words."""
    return f"{spec} at {length:,} tokens"


def read_refused(folder: Path) -> dict[str, str]:
    """What is refused -> why, as of the last try."""
    file = folder / FILE
    return dict(json.loads(file.read_text())) if file.exists() else {}


class Refused:
    """The refusals that this process has met."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.met: set[str] = set()

    def instead(self, spec: str, length: int, work: Once) -> Once:
        """The same work, done also when it is refused."""

        def make() -> None:
            with self.noted(spec, length):
                work.make()

        return replace(work, done=lambda: self.has(spec, length) or work.done(), make=make)

    def has(self, spec: str, length: int) -> bool:
        return refusal(spec, length) in self.met

    @contextmanager
    def noted(self, spec: str, length: int) -> Iterator[None]:
        """A refusal ends what is done inside, and is noted; success takes back an earlier one."""
        key = refusal(spec, length)
        try:
            yield
        except BadInput as error:
            say(f"refused: {error}")
            self.met.add(key)
            self._write(key, str(error))
        else:
            self._write(key, None)

    def _write(self, key: str, why: str | None) -> None:
        kept = {other: reason for other, reason in read_refused(self.folder).items() if other != key}
        write_whole(self.folder / FILE, json.dumps(kept if why is None else {**kept, key: why}, indent=1) + "\n")


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
