"""One model of the table: what it is asked to read, with which methods, and what was found, in a folder of its own.

OUT/MODEL/subject.json    what numbers depend on, the machine, and the rows that were asked for
OUT/MODEL/streams.json    the text;   alignments/   what was calibrated;   refused.json   methods that do not go with the model
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments._lib.processes import Once, share_out
from experiments.output_alignment.correlation_cells import LONG, SHORT, Cells, Reader, text_tokens
from experiments.rope_methods import books, comparison, contenders, stories
from experiments.rope_methods.alignments import Alignments
from experiments.rope_methods.comparison import Source, Subject
from experiments.rope_methods.refused import Refused, say
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load

FILE = "subject.json"
Asked = tuple[str, int]  # a method by its name, with places to fill, and the long length


@dataclass(frozen=True)
class Settings:
    """What is asked of every model."""

    books: tuple[Path, ...] = ()  # the model's own stories when empty
    streams: int = 4
    pairs: int = 16
    seed: int = 0
    methods: tuple[str, ...] = ()  # ours when empty
    stages: int = len(contenders.STAGES)  # of ours, the most important first
    dtype: str = "auto"
    device: str | None = None

    def __post_init__(self) -> None:
        most = len(contenders.STAGES)
        require(self.streams >= 1, f"--streams must be at least 1, not {self.streams}")
        require(self.pairs >= 2, f"--pairs must be at least 2 for an interval, not {self.pairs}")
        require(self.seed >= 0, f"--seed must be 0 or more, not {self.seed}")
        require(1 <= self.stages <= most, f"--stages must be from 1 to {most}, not {self.stages}")

    def names(self) -> list[tuple[str, ...]]:
        return [self.methods] if self.methods else list(contenders.STAGES[: self.stages])


@dataclass(frozen=True)
class Noted:
    """What a model's folder says of itself."""

    name: str
    made: dict[str, Any]  # other values would make other numbers
    made_with: dict[str, str]
    command: str  # of the last call that measured
    asked: list[Asked]

    @property
    def train_length(self) -> int:
        return int(self.made["train_length"])


def measure(
    name: str, lengths: tuple[str, ...], train_length: int | None, settings: Settings, folder: Path, command: str
) -> None:
    """Everything that is not yet measured, together with other processes that do the same."""
    model, tokenizer = load(name, settings.dtype, settings.device)
    train = anatomy_of(model, train_length).train_length
    asked = asked_of(settings, [tokens_of(length, train, name) for length in lengths])
    # A name that cannot be filled is said before hours of work, not after
    for method, length in asked:
        contenders.filled(method, length, train)
        contenders.split_aligned(method)
    subject = Subject(_as_rope_methods(name, settings, folder), model, tokenizer, train)
    source = stories.source(subject) if not settings.books else books.source(subject)
    _note(folder, Path(name).name, subject, source, settings.pairs, command, asked)
    longest = max(length for _, length in asked)
    say(f"{Path(name).name}: {len(asked)} rows, {settings.streams} streams of {longest:,} tokens")
    # One token more than is read: the last prediction has a target, too
    ids, text = source.read(max(longest + 1, text_tokens(train, settings.pairs, settings.streams)))
    reader = Reader(model, ids, train, source.stretch, settings.pairs, settings.seed)
    share_out(_works(asked, reader, Alignments(model, tokenizer, text, train, folder / "alignments"), folder))


def tokens_of(length: str, train_length: int, name: str) -> int:
    """`8x` is eight times the training length, `2048` so many tokens."""
    number = length.removesuffix("x")
    require(number.isdecimal(), f"a length must be a number of tokens or a multiple such as 8x, not {length!r}")
    tokens = int(number) * (train_length if length.endswith("x") else 1)
    require(
        tokens > train_length,
        f"length {length} is not beyond the {train_length:,} tokens that {name} was trained on; give more, such as 2x",
    )
    return tokens


def asked_of(settings: Settings, lengths: list[int]) -> list[Asked]:
    """(method, length), the most important methods first."""
    return [(name, length) for stage in settings.names() for length in sorted(set(lengths)) for name in stage]


def read_noted(folder: Path) -> Noted:
    try:
        found = json.loads((folder / FILE).read_text())
        asked = [(name, length) for name, length in found["asked"]]
        return Noted(found["name"], found["made"], found["made_with"], found["command"], asked)
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{folder / FILE} does not say what was measured there; give another --out") from None


def _works(asked: list[Asked], reader: Reader, alignments: Alignments, folder: Path) -> list[Once]:
    cells, refused, train = Cells(folder), Refused(folder), reader.train_length
    works = []
    for name, length in asked:
        spec = contenders.filled(name, length, train)

        def short(name: str = name, length: int = length, spec: str = spec) -> Any:
            say(f"{spec} up to the training length")
            return reader.short(alignments.method(name, length))

        def long(name: str = name, length: int = length, spec: str = spec) -> Any:
            say(f"{spec} at {length:,} tokens")
            return reader.long(alignments.method(name, length), length)

        works.append(refused.instead(spec, train, cells.once(SHORT, spec, train, short)))
        works.append(refused.instead(spec, length, cells.once(LONG, spec, length, long)))
    return works


def _as_rope_methods(name: str, settings: Settings, folder: Path) -> comparison.Options:
    """As experiments/rope_methods takes it, which makes the streams; it is not asked to re-encode them."""
    make = partial(books.Options, books=settings.books, stride=1) if settings.books else comparison.Options
    return make(model=name, out=folder, lengths=(1,), streams=settings.streams, seed=settings.seed)


def _note(folder: Path, name: str, subject: Subject, source: Source, pairs: int, command: str, asked: list[Asked]) -> None:
    made = {**asdict(subject.made), "source": source.told, "pairs": pairs}
    before = read_noted(folder) if (folder / FILE).exists() else None
    for key, now in made.items():
        if before and (was := before.made.get(key)) != now:
            raise BadInput(f"{folder} was begun with another {key}: {was} then, {now} now; give another --out")
    machine = before.made_with if before else made_with(next(subject.model.parameters()).device.type)
    rows = list(dict.fromkeys([*(before.asked if before else []), *asked]))
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, json.dumps(asdict(Noted(name, made, machine, command, rows))) + "\n")
