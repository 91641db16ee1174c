"""What the runs are of: a model, novels, and how it is trained and asked; OUT/settings.json keeps what numbers depend on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.output_alignment import fine_tuning_babilong, fine_tuning_text
from experiments.output_alignment.fine_tuning_grid import LENGTHS, STAGES, Run, stages
from experiments.output_alignment.fine_tuning_measures import Reader
from experiments.output_alignment.fine_tuning_text import Book
from experiments.output_alignment.fine_tuning_training import Recipe
from lengthwise.common.files import write_whole
from lengthwise.errors import BadInput, require
from lengthwise.evaluation.sweep.run_config import made_with, parameters_digest, tokenizer_digest
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.tasks.sample import sentences
from lengthwise.training.settings import DTYPES

FILE = "settings.json"
FORMAT = "lengthwise.experiments.output_alignment.fine_tuning/1"
RATES = (1e-4, 3e-4, 1e-3, 3e-3)


@dataclass(frozen=True)
class Settings:
    model: str
    books: tuple[Path, ...]
    held_out: tuple[Path, ...]
    babi: Path
    steps: int = 200
    seeds: int = 3
    stages: int = len(STAGES)
    batch: int = 16
    rates: tuple[float, ...] = RATES
    streams: int = 8  # of every novel held out
    pairs: int = 24  # of readings that misalignment is measured on
    samples: int = 30  # of a cell of BABILong
    kinds: tuple[str, ...] = fine_tuning_babilong.KINDS
    dtype: str = "bfloat16"  # of training; measured is in float32
    device: str | None = None

    def __post_init__(self) -> None:
        require(bool(self.books), "give novels to train on: --books FILE ...")
        require(bool(self.held_out), "give novels to measure on: --held-out FILE ...")
        both = sorted({path.resolve() for path in self.books} & {path.resolve() for path in self.held_out})
        require(not both, f"{both[0] if both else ''} is trained on and held out; give it to one of --books and --held-out")
        require(self.steps >= 4, f"--steps must be at least 4, to be measured after a quarter of them, not {self.steps}")
        for name in ("seeds", "batch", "streams", "samples"):
            require(getattr(self, name) >= 1, f"--{name} must be at least 1, not {getattr(self, name)}")
        require(self.pairs >= 2, f"--pairs must be at least 2, not {self.pairs}")
        require(1 <= self.stages <= len(STAGES), f"--stages must be from 1 to {len(STAGES)}, not {self.stages}")
        require(bool(self.rates) and min(self.rates) > 0, f"--rates must be above 0, not {list(self.rates)}")
        require(self.dtype in DTYPES, f"--dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}")

    @property
    def runs(self) -> list[Run]:
        return [run for stage in stages(self.seeds)[: self.stages] for run in stage]


class Subject:
    """The model as it is measured, and the text; both are read when first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.model, self.tokenizer = load(settings.model, "float32", settings.device)
        self.train_length = anatomy_of(self.model).train_length
        self.books = fine_tuning_text.read_books(settings.books)
        self.own_weights = {name: weight.clone() for name, weight in self.model.state_dict().items()}

    @property
    def lengths(self) -> list[int]:
        return [factor * self.train_length for factor in LENGTHS]

    @cached_property
    def held_out(self) -> list[Book]:
        return fine_tuning_text.read_books(self.settings.held_out)

    @cached_property
    def reader(self) -> Reader:
        return self._reader(self.held_out, self.settings.streams, self.lengths)

    @cached_property
    def chooser(self) -> Reader:
        """Of learning rates: on what is held back of the novels trained on, at twice the model's own length."""
        books = [fine_tuning_text.held_back(book) for book in self.books]
        return self._reader(books, max(1, self.settings.streams // 2), [2 * self.train_length])

    def _reader(self, books: list[Book], count: int, lengths: list[int]) -> Reader:
        ids = fine_tuning_text.streams(self.tokenizer, books, count, max(lengths) + 1)
        return Reader(self.model, ids, lengths)

    @property
    def maker(self) -> fine_tuning_babilong.Maker:
        filler = [sentence for book in self.held_out for sentence in sentences("\n\n".join(book))]
        settings = self.settings
        return fine_tuning_babilong.Maker(self.tokenizer, self.train_length, settings.babi, filler, settings.samples)

    def recipe(self, steps: int) -> Recipe:
        one = self.settings
        return Recipe(one.model, self.train_length, steps, one.batch, one.dtype, one.device)

    @property
    def made(self) -> dict[str, Any]:
        """Other values would make other numbers."""
        one = self.settings
        kept = {name: getattr(one, name) for name in ("steps", "batch", "streams", "pairs", "samples", "dtype")}
        return {
            "model": parameters_digest(self.model),
            "tokenizer": tokenizer_digest(self.tokenizer),
            "train_length": self.train_length,
            "books": fine_tuning_text.digest(self.books),
            "held_out": fine_tuning_text.digest(self.held_out),
            "rates": list(one.rates),
            "kinds": list(one.kinds),
            **kept,
        }


@dataclass(frozen=True)
class Noted:
    """What OUT/settings.json says."""

    format: str
    name: str  # of the model
    books: list[str]
    held_out: list[str]
    made: dict[str, Any]
    made_with: dict[str, str]
    seeds: int
    stages: int
    command: str  # of the last call that trained

    @property
    def runs(self) -> list[Run]:
        return [run for stage in stages(self.seeds)[: self.stages] for run in stage]

    @property
    def train_length(self) -> int:
        return int(self.made["train_length"])

    @property
    def steps(self) -> int:
        return int(self.made["steps"])


def read_noted(out: Path) -> Noted:
    try:
        return Noted(**json.loads((out / FILE).read_text()))
    except FileNotFoundError:
        raise BadInput(f"nothing is trained in {out} yet; run the same command without --page first") from None
    except (OSError, ValueError, TypeError):
        raise BadInput(f"{out / FILE} does not say what was trained there; give another --out") from None


def note(subject: Subject, out: Path, command: str) -> None:
    """Refuses to mix runs of different settings; more seeds and more stages may join."""
    before = read_noted(out) if (out / FILE).exists() else None
    made, settings = subject.made, subject.settings
    for key, now in made.items():
        if before and (was := before.made.get(key)) != now:
            raise BadInput(f"{out} was begun with another {key}: {was} then, {now} now; give another --out")
    device = next(subject.model.parameters()).device.type
    noted = Noted(
        format=FORMAT,
        name=Path(settings.model).name,
        books=[path.stem for path in settings.books],
        held_out=[path.stem for path in settings.held_out],
        made=made,
        made_with=before.made_with if before else made_with(device),
        seeds=max(settings.seeds, before.seeds if before else 0),
        stages=max(settings.stages, before.stages if before else 0),
        command=command,
    )
    write_whole(out / FILE, json.dumps(asdict(noted)) + "\n")
