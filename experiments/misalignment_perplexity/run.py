"""Measures models, plain and with every training-free length method, up to their training length and beyond it.

    python -m experiments.misalignment_perplexity.run MODEL ... --length 2x 4x 8x --out OUT                 # its own stories
    python -m experiments.misalignment_perplexity.run MODEL ... --books FILE ... --length 2x 4x --out OUT   # text of books

    l_train       mean cross-entropy of readings of the training length L, one after the other through the text
    l_misalign    L_SCE of the same place told from L/2 to L tokens: `lengthwise.misalignment`;   kl   its symmetric KL
    log_ppl       mean cross-entropy of one forward over more than L tokens;   beyond   of those told from more than L of them

All in nats. OUT/MODEL/cells.jsonl gets a line a number: the same command again goes on where the last one stopped, several at
once share the work, and another MODEL may be added to the same OUT later. Stories suit a model that tells texts within its
training length, such as stories15M; other models need --books.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

import lengthwise as lw
from experiments._lib.command import main, option
from experiments._lib.processes import Once, share_out, work_for
from experiments._lib.rotary_methods import (
    PLAIN,
    STAGES,
    Alignments,
    Refused,
    filled,
    read_refused,
    refusal,
    say,
    split_aligned,
)
from experiments._lib.settings import SETTINGS, kept_settings
from experiments._lib.streams import source_of
from experiments.misalignment_perplexity import page
from experiments.misalignment_perplexity.strength import GROUPINGS, Row, groups
from lengthwise.common.files import write_whole
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.evaluation.likelihood import token_nll, windowed_nll
from lengthwise.evaluation.sweep.run_config import dtype_of, made_with, parameters_digest
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import DTYPES, load
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.tasks.perplexity import Bucket, SlidingWindows, by_bucket

FORMAT = "lengthwise.experiments.output_alignment.correlation/1"
CELLS = "cells.jsonl"
SHORT, LONG = ("l_train", "l_misalign", "kl"), ("log_ppl", "beyond")
# Differences below half of it, in nats, are rounding of the arithmetic and must not make ranks
DECIMALS = 3
Estimate = tuple[float, float, float]  # mean and the ends of its 95 % interval, nats
Asked = tuple[str, int]  # a method by its name, with places to fill, and the long length


@dataclass(frozen=True, kw_only=True)
class Options:
    """One call."""

    models: tuple[str, ...] = option(help="directories, hub names or GGUF files of causal language models", positional=True)
    out: Path = option(help="folder of the experiment")
    lengths: tuple[str, ...] = option(("2x", "4x", "8x"), "tokens, or multiples of each training length", flag="--length")
    train_lengths: tuple[int, ...] = option((), "one a model; their own if none", flag="--train-length")
    books: tuple[Path, ...] = option((), "text files, a book each; else the model's own stories")
    streams: int = option(4, "streams of text")
    pairs: int = option(16, "pairs of readings that misalignment is measured on")
    methods: tuple[str, ...] = option((), "specs with places to fill; all of ours if none", flag="--method")
    stages: int = option(len(STAGES), "how many of our lists of methods, the most important first")
    seed: int = option(0, "of streams and pairs")
    dtype: str = option("auto", "of the model", choices=list(DTYPES))
    device: str | None = option(None, "cuda where there is one")
    minutes: float = option(math.inf, "stop after so long; the next call goes on")
    command: str = ""  # as typed

    def __post_init__(self) -> None:
        models, names = len(self.models), [Path(model).name for model in self.models]
        given = len(self.train_lengths)
        require(given in (0, models), f"--train-length needs one number a model, {models} of them, not {given}")
        require(len(set(names)) == len(names), f"models of one name would share a folder: {', '.join(names)}")
        require(self.streams >= 1, f"--streams must be at least 1, not {self.streams}")
        require(self.pairs >= 2, f"--pairs must be at least 2 for an interval, not {self.pairs}")
        require(1 <= self.stages <= len(STAGES), f"--stages must be from 1 to {len(STAGES)}, not {self.stages}")


@dataclass(frozen=True)
class Cell(Declared):
    """One number."""

    measure: str
    spec: str  # the method, with its places filled
    length: int  # tokens of the readings
    mean: float
    low: float
    high: float
    seconds: float  # of the readings, which give other measures as well

    @property
    def key(self) -> tuple[str, str, int]:
        return self.measure, self.spec, self.length


@dataclass(frozen=True)
class Reader:
    """A model, the streams it reads, and how numbers are made of them."""

    model: Any
    ids: Tensor  # [streams, tokens]
    train_length: int
    stretch: int | None  # tokens of a stream that are independent of those after them
    pairs: int  # pairs of two readings
    seed: int

    def short(self, method: Any) -> dict[str, Estimate]:
        """Training loss and misalignment: readings of at most the training length."""
        length, text = self.train_length, self.ids[:, : text_tokens(self.train_length, self.pairs, len(self.ids))]
        whole = (text.shape[1] - 1) // length * length
        windows = SlidingWindows(length + 1, length)
        nll = windowed_nll(self.model, text[:, : whole + 1], windows, method=method, train_length=length)
        apart = lw.misalignment(
            self.model,
            text.flatten(),
            train_length=length,
            pairs=self.pairs,
            seed=self.seed,
            method=method,
            show_progress=False,
        )
        (loss,) = by_bucket(nll, [0, whole], self.stretch)
        return {
            "l_train": _logarithm(loss),
            "l_misalign": (apart.sce, *apart.interval),
            "kl": (apart.kl, *apart.kl_interval),
        }

    def long(self, method: Any, length: int) -> dict[str, Estimate]:
        """Long perplexity: one forward over `length` tokens of every stream."""
        nll = token_nll(self.model, self.ids[:, : length + 1], method=method, train_length=self.train_length)
        (whole,) = by_bucket(nll, [0, length], self.stretch)
        (beyond,) = by_bucket(nll, [self.train_length, length], self.stretch)
        return {"log_ppl": _logarithm(whole), "beyond": _logarithm(beyond)}


def text_tokens(train_length: int, pairs: int, streams: int) -> int:
    """Tokens of each stream that misalignment reads, so that no two pairs need the same ones."""
    return math.ceil(pairs * (train_length + train_length // 2) / streams)


def _logarithm(bucket: Bucket) -> Estimate:
    return math.log(bucket.perplexity), math.log(bucket.low), math.log(bucket.high)


class Cells:
    """The numbers of one folder, shared with other processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.lines = AppendOnly(folder / CELLS, Cell)

    def once(self, measures: Sequence[str], spec: str, length: int, measured: Callable[[], dict[str, Estimate]]) -> Once:
        """Measures that come from the same readings, as a piece of work that one process does for all."""

        def make() -> None:
            begun = time.perf_counter()
            numbers, seconds = measured(), round(time.perf_counter() - begun, 2)
            self.lines.append([Cell(name, spec, length, *numbers[name], seconds) for name in measures])

        def done() -> bool:
            self.lines.refresh()
            return all((name, spec, length) in self.lines.lines for name in measures)

        digest = hashlib.sha256(f"{tuple(measures)} {spec} {length}".encode()).hexdigest()[:16]
        return Once(self.folder / f".claim-{digest}", done, make)


def run(options: Options) -> list[Row]:
    """Measures as much as there is time for; writes the results and the page of all that is measured, by any process."""
    work_for(options.minutes, lambda: _measure_all(options))
    models = [(file.parent, json.loads(file.read_text())) for file in sorted(options.out.glob(f"*/{SETTINGS}"))]
    rows = [row for folder, noted in models for row in rows_of(folder, noted)]
    if rows:
        write_whole(options.out / page.RESULTS, json.dumps(document_of(models, rows), indent=1) + "\n")
        page.write_pages(options.out, options.out)
    return rows


def _measure_all(options: Options) -> None:
    for model, train_length in zip(options.models, options.train_lengths or (None,) * len(options.models), strict=True):
        measure(options, model, train_length, options.out / Path(model).name)


def measure(options: Options, name: str, train_length: int | None, folder: Path) -> None:
    """Everything of one model that is not yet measured, together with other processes that do the same."""
    model, tokenizer = load(name, options.dtype, options.device)
    train = anatomy_of(model, train_length).train_length
    asked = asked_of(options, [tokens_of(length, train, name) for length in options.lengths])
    # A name that cannot be filled is said before hours of work, not after
    for method, length in asked:
        filled(method, length, train)
        split_aligned(method)
    source = source_of(model, tokenizer, train, options.seed, options.streams, options.books, folder)
    settings = {
        "model": parameters_digest(model),
        "dtype": dtype_of(model),
        "train_length": train,
        "seed": options.seed,
        "streams": options.streams,
        "source": source.words,
        "pairs": options.pairs,
    }
    facts = {"name": Path(name).name, "made_with": made_with(next(model.parameters()).device.type), "asked": []}
    noted = kept_settings(
        folder, settings, command=f"python -m experiments.misalignment_perplexity.run {options.command}", **facts
    )
    noted["asked"] = list(dict.fromkeys([*map(tuple, noted["asked"]), *asked]))
    write_whole(folder / SETTINGS, json.dumps(noted) + "\n")
    longest = max(length for _, length in asked)
    say(f"{Path(name).name}: {len(asked)} rows, {options.streams} streams of {longest:,} tokens")
    # One token more than is read: the last prediction has a target, too
    ids, text = source.read(max(longest + 1, text_tokens(train, options.pairs, options.streams)))
    reader = Reader(model, ids, train, source.stretch, options.pairs, options.seed)
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


def asked_of(options: Options, lengths: list[int]) -> list[Asked]:
    """(method, length), the most important methods first."""
    stages = [options.methods] if options.methods else STAGES[: options.stages]
    return [(name, length) for stage in stages for length in sorted(set(lengths)) for name in stage]


def _works(asked: list[Asked], reader: Reader, alignments: Alignments, folder: Path) -> list[Once]:
    cells, refused, train = Cells(folder), Refused(folder), reader.train_length
    works = []
    for name, length in asked:
        spec = filled(name, length, train)

        def short(name: str = name, length: int = length, spec: str = spec) -> Any:
            say(f"{spec} up to the training length")
            return reader.short(alignments.method(name, length))

        def long(name: str = name, length: int = length, spec: str = spec) -> Any:
            say(f"{spec} at {length:,} tokens")
            return reader.long(alignments.method(name, length), length)

        works.append(refused.instead(spec, train, cells.once(SHORT, spec, train, short)))
        works.append(refused.instead(spec, length, cells.once(LONG, spec, length, long)))
    return works


def rows_of(folder: Path, noted: dict[str, Any]) -> list[Row]:
    """The rows of one model that are measured: numbers are rounded, so that arithmetic does not make an order."""
    cells = {cell.key: cell for cell in read_lines(folder / CELLS, Cell)}
    train = noted["settings"]["train_length"]

    def numbers(spec: str, length: int) -> dict[str, dict[str, float]] | None:
        keys = [*((name, spec, train) for name in SHORT), *((name, spec, length) for name in LONG)]
        if not all(key in cells for key in keys):
            return None
        return {key[0]: {end: round(getattr(cells[key], end), DECIMALS) for end in ("mean", "low", "high")} for key in keys}

    plain = [round(cells[key].mean, DECIMALS) for name in SHORT if (key := (name, PLAIN, train)) in cells]
    rows: list[Row] = []
    for method, length in noted["asked"]:
        spec = filled(method, length, train)
        if (measured := numbers(spec, length)) is not None:
            row = {"model": noted["name"], "method": method, "spec": spec, "length": length, "factor": length / train}
            rows.append({**row, **measured, "unchanged": [measured[name]["mean"] for name in SHORT] == plain})
    return rows


def document_of(models: Sequence[tuple[Path, dict[str, Any]]], rows: Sequence[Row]) -> dict[str, Any]:
    """All of it as JSON, the coefficients included."""
    refused = {noted["name"]: read_refused(folder) for folder, noted in models}
    asked = sum(len(noted["asked"]) for _, noted in models)
    never = sum(_is_refused(noted, refused[noted["name"]], *key) for _, noted in models for key in noted["asked"])
    coefficients = []
    for group in groups(rows):
        for acting in (False, True):
            chosen = group.acting if acting else group
            own = {f"{kind} with {quality}": chosen.strength(kind, quality) for kind, quality in GROUPINGS}
            measured = {key: asdict(strength) for key, strength in own.items() if strength is not None}
            coefficients.append({"models": group.models, "lengths": group.lengths, "acting": acting, **measured})
    about = [
        {"name": noted["name"], **noted["settings"], **{key: noted[key] for key in ("made_with", "command")}}
        for _, noted in models
    ]
    return {
        "format": FORMAT,
        "models": about,
        "refused": {name: why for name, why in refused.items() if why},
        "missing": asked - never - len(rows),
        "coefficients": coefficients,
        "rows": list(rows),
    }


def _is_refused(noted: dict[str, Any], refused: dict[str, str], method: str, length: int) -> bool:
    train = noted["settings"]["train_length"]
    spec = filled(method, length, train)
    return bool({refusal(spec, train), refusal(spec, length)} & set(refused))


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
