"""The tasks of the experiment, made of what the embedded model never saw in training; other models get the same.

Names of lines and labels of topics are the held-out ones, the number hides in the package's prose, and where a data folder is
given also in held-out novels. Samples are made once and kept in files: at 15,000 tokens making them takes longer than
answering them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments._lib import held_out
from experiments._lib import novels as books
from experiments._lib.processes import Once
from lengthwise.common.files import write_whole
from lengthwise.common.text import shipped_prose
from lengthwise.errors import BadInput
from lengthwise.evaluation.sweep.run_config import tokenizer_digest
from lengthwise.tasks import TASKS, Sample, Task, line, passkey, topic
from lengthwise.tasks.sample import sentences

NOVELS = "passkey-novels"
# The most important first
NAMES = (NOVELS, "passkey", "line", "topic")
# A run directory holds one material a task; what its tasks are called in our tables, where that differs
RUNS: dict[str, dict[str, str]] = {"run": {}, "run-novels": {"passkey": NOVELS}}


@dataclass(frozen=True)
class Asked:
    """A task as it is asked here."""

    name: str  # in our tables
    task: str  # in the catalogue
    run: str  # run directory of its records
    make: Callable[..., list[Sample]]  # (tokenizer, length, n, seed)
    material: str

    def kept(self, folder: Path, tokenizer: Any, length: int, n: int, seed: int) -> Path:
        """The file of these samples."""
        what = f"{self.material} {tokenizer_digest(tokenizer)} {n} {seed}"
        return folder / f"{self.name}-{length}-{_digest(what)}.jsonl.gz"

    def once(self, folder: Path, tokenizer: Any, length: int, n: int, seed: int) -> Once:
        """The making of these samples, by one process for all."""
        path = self.kept(folder, tokenizer, length, n, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        make = partial(_write, path, self, tokenizer, length, n, seed)
        return Once(path.with_name(f".claim-{path.name}"), path.exists, make)

    def in_files(self, folder: Path, made: int | None = None) -> Task:
        """The catalogue's task with these samples, read from their files where they have been made.

        Where `made` is given files hold so many, and fewer are the first of them.
        """

        def samples(tokenizer: Any, length: int, n: int, seed: int) -> list[Sample]:
            path = self.kept(folder, tokenizer, length, max(n, made or 0), seed)
            return _read(path)[:n] if path.exists() else self.make(tokenizer, length, n, seed)

        return replace(TASKS[self.task], samples=samples, material=self.material)


def asked(names: Sequence[str], data: Path | None) -> list[Asked]:
    """Those named, or all there are, the most important first."""
    known = {one.name: one for one in _all(data)}
    for name in names:
        if name not in known:
            why = "needs --data FOLDER with gutenberg/*.txt" if name == NOVELS else f"is none of {', '.join(known)}"
            raise BadInput(f"the task {name!r} {why}")
    return [known[name] for name in NAMES if name in (names or known)]


def made_once(some: Sequence[Asked], tokenizer: Any, lengths: Sequence[int], n: int, seed: int, folder: Path) -> list[Once]:
    """Long ones first, so that several processes end together."""
    return [one.once(folder, tokenizer, length, n, seed) for length in sorted(lengths, reverse=True) for one in some]


def _all(data: Path | None) -> list[Asked]:
    names = tuple(filter(held_out.word, line.ADJECTIVES)), tuple(filter(held_out.word, line.NOUNS))
    labels = tuple(filter(held_out.label, topic.LABELS))
    prose = f"the package's prose ({_digest(shipped_prose())})"
    words = f"{len(names[0])} and {len(names[1])} words never used as names in training ({_digest(str(names))})"
    topics = f"{len(labels)} labels never used in training ({_digest(str(labels))}) and {prose}"
    found = [
        Asked("line", "line", "run", partial(line.samples, names=names), words),
        Asked("topic", "topic", "run", partial(topic.samples, labels=labels), topics),
        Asked("passkey", "passkey", "run", passkey.samples, prose),
    ]
    if data is not None:
        paths = books.evaluation(data)
        filler = _sentences(paths)
        stems = ", ".join(path.stem for path in paths)
        novels = f"novels never read in training: {stems} ({_digest(' '.join(filler))})"
        found.append(Asked(NOVELS, "passkey", "run-novels", partial(passkey.samples, filler=filler), novels))
    return found


def _sentences(paths: Sequence[Path]) -> list[str]:
    texts = (books.unwrapped(path.read_text(encoding="utf-8")) for path in paths)
    parts = [" ".join(part.split()) for text in texts for part in sentences(text)]
    # Lists of chapters are not sentences
    return [part for part in parts if len(part) < 400]


def _write(path: Path, one: Asked, tokenizer: Any, length: int, n: int, seed: int) -> None:
    lines = [json.dumps(asdict(sample)) for sample in one.make(tokenizer, length, n, seed)]
    write_whole(path, gzip.compress("\n".join(lines).encode(), mtime=0))


def _read(path: Path) -> list[Sample]:
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().split("\n")]
    return [Sample(**{**row, "labels": tuple(row.get("labels", ()))}) for row in rows]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
