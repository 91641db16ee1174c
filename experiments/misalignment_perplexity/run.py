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

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

import lengthwise as lw
from experiments._lib import rotary_methods as rotary
from experiments._lib.command import main, option
from experiments._lib.minutes import say, work_for
from experiments._lib.results import SETTINGS, kept_settings, read, unfinished, write_json
from experiments._lib.streams import source_of
from experiments.misalignment_perplexity import page
from experiments.misalignment_perplexity.strength import GROUPINGS, Row, groups
from lengthwise.common.formats import Declared
from lengthwise.errors import require
from lengthwise.evaluation.likelihood import token_nll, windowed_nll
from lengthwise.evaluation.sweep.run_config import made_with
from lengthwise.models.anatomy import anatomy_of
from lengthwise.models.load import load
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.tasks.perplexity import SlidingWindows, by_bucket

FORMAT = "lengthwise.experiments.output_alignment.correlation/1"
CELLS = "cells.jsonl"
SHORT, LONG = ("l_train", "l_misalign", "kl"), ("log_ppl", "beyond")
# Differences below half of it, in nats, are rounding of the arithmetic and must not make ranks
DECIMALS = 3
Estimate = tuple[float, float, float]  # mean and the ends of its 95 % interval, nats
Asked = tuple[str, int]  # a method by its name, with places to fill, and the long length


@dataclass(frozen=True, kw_only=True)
class Options(rotary.Options):
    """One call."""

    models: tuple[str, ...] = option(help="directories, hub names or GGUF files of causal language models", positional=True)
    lengths: tuple[str, ...] = option(("2x", "4x", "8x"), "tokens, or multiples of each training length", flag="--length")
    streams: int = option(4, "streams of text")
    pairs: int = option(16, "pairs of readings that misalignment is measured on")
    stages: int = option(len(rotary.STAGES), "how many of our lists of methods, the most important first")


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
        how = {"train_length": length, "pairs": self.pairs, "seed": self.seed, "method": method, "show_progress": False}
        apart = lw.misalignment(self.model, text.flatten(), **how)
        loss = _logarithm(nll, 0, whole, self.stretch)
        return {"l_train": loss, "l_misalign": (apart.sce, *apart.interval), "kl": (apart.kl, *apart.kl_interval)}

    def long(self, method: Any, length: int) -> dict[str, Estimate]:
        """Long perplexity: one forward over `length` tokens of every stream."""
        nll = token_nll(self.model, self.ids[:, : length + 1], method=method, train_length=self.train_length)
        firsts = {"log_ppl": 0, "beyond": self.train_length}
        return {name: _logarithm(nll, first, length, self.stretch) for name, first in firsts.items()}


def text_tokens(train_length: int, pairs: int, streams: int) -> int:
    """Tokens of each stream that misalignment reads, so that no two pairs need the same ones."""
    return math.ceil(pairs * (train_length + train_length // 2) / streams)


def _logarithm(nll: Tensor, first: int, last: int, stretch: int | None) -> Estimate:
    (bucket,) = by_bucket(nll, [first, last], stretch)
    return math.log(bucket.perplexity), math.log(bucket.low), math.log(bucket.high)


def run(options: Options) -> list[Row]:
    """Measures as much as there is time for; writes the results and the page of all that is measured."""

    def work() -> None:
        for model in options.models:
            measure(options, model, options.out / Path(model).name)

    work_for(options.minutes, work)
    models = [(file.parent, read(file)) for file in sorted(options.out.glob(f"*/{SETTINGS}"))]
    rows = [row for folder, noted in models for row in rows_of(folder, noted)]
    if rows:
        write_json(options.out / page.RESULTS, document_of(models, rows))
        page.write_pages(options.out, options.out)
    return rows


def measure(options: Options, name: str, folder: Path) -> None:
    """Everything of one model that is not yet measured."""
    model, tokenizer = load(name, options.dtype, options.device)
    train = anatomy_of(model).train_length
    lengths = sorted({tokens_of(length, train, name) for length in options.lengths})
    # The most important methods first
    stages = [options.methods] if options.methods else rotary.STAGES[: options.stages]
    asked = [(method, length) for stage in stages for length in lengths for method in stage]
    source = source_of(model, tokenizer, train, options.seed, options.streams, options.books, folder)
    settings = {**source.made, "source": source.words, "pairs": options.pairs}
    facts = {"name": Path(name).name, "made_with": made_with(next(model.parameters()).device.type), "asked": []}
    command = f"python -m experiments.misalignment_perplexity.run {options.command}"
    noted = kept_settings(folder, settings, command=command, **facts)
    noted["asked"] = list(dict.fromkeys([*map(tuple, noted["asked"]), *asked]))
    write_json(folder / SETTINGS, noted)
    longest = max(length for _, length in asked)
    say(f"{Path(name).name}: {len(asked)} rows, {options.streams} streams of {longest:,} tokens")
    # One token more than is read: the last prediction has a target, too
    ids, text = source.read(max(longest + 1, text_tokens(train, options.pairs, options.streams)))
    reader = Reader(model, ids, train, source.stretch, options.pairs, options.seed)
    _read_all(asked, reader, rotary.Alignments(model, tokenizer, text, train, folder / "alignments"), folder)


def tokens_of(length: str, train_length: int, name: str) -> int:
    """`8x` is eight times the training length, `2048` so many tokens."""
    tokens = int(length.removesuffix("x")) * (train_length if length.endswith("x") else 1)
    require(tokens > train_length, f"length {length} is not beyond the {train_length:,} tokens that {name} was trained on")
    return tokens


def _read_all(asked: list[Asked], reader: Reader, alignments: rotary.Alignments, folder: Path) -> None:
    """What is told up to the training length, and beyond it, is read separately: one short reading serves all long ones."""
    lines, train = AppendOnly(folder / CELLS, Cell), reader.train_length

    def read(name: str, spec: str, length: int, read_at: int) -> None:
        keys = [(measure, spec, read_at) for measure in (SHORT if read_at == train else LONG)]
        for missing in unfinished(lines, [keys]):
            say(f"{spec} at {read_at:,} tokens")
            begun, method = time.perf_counter(), alignments.method(name, length)
            numbers = reader.short(method) if read_at == train else reader.long(method, read_at)
            seconds = round(time.perf_counter() - begun, 2)
            lines.append([Cell(*key, *numbers[key[0]], seconds) for key in missing])

    for name, length in asked:
        spec = rotary.filled(name, length, train)
        for read_at in (train, length):
            rotary.accepted(folder, spec, read_at, partial(read, name, spec, length, read_at))


def rows_of(folder: Path, noted: dict[str, Any]) -> list[Row]:
    """The rows of one model that are measured: numbers are rounded, so that arithmetic does not make an order."""
    cells = {cell.key: cell for cell in read_lines(folder / CELLS, Cell)}
    train = noted["settings"]["train_length"]

    def numbers(spec: str, length: int) -> dict[str, dict[str, float]] | None:
        keys = [*((name, spec, train) for name in SHORT), *((name, spec, length) for name in LONG)]
        if not all(key in cells for key in keys):
            return None
        return {key[0]: {end: round(getattr(cells[key], end), DECIMALS) for end in ("mean", "low", "high")} for key in keys}

    plain = [round(cells[key].mean, DECIMALS) for name in SHORT if (key := (name, rotary.PLAIN, train)) in cells]
    rows: list[Row] = []
    for method, length in noted["asked"]:
        spec = rotary.filled(method, length, train)
        if (measured := numbers(spec, length)) is not None:
            row = {"model": noted["name"], "method": method, "spec": spec, "length": length, "factor": length / train}
            rows.append({**row, **measured, "unchanged": [measured[name]["mean"] for name in SHORT] == plain})
    return rows


def document_of(models: Sequence[tuple[Path, dict[str, Any]]], rows: Sequence[Row]) -> dict[str, Any]:
    """All of it as JSON, the coefficients included."""
    refused = {noted["name"]: rotary.read_refused(folder) for folder, noted in models}
    asked = sum(len(noted["asked"]) for _, noted in models)
    never = 0
    for _, noted in models:
        train, why = noted["settings"]["train_length"], refused[noted["name"]]
        specs = [(rotary.filled(method, length, train), length) for method, length in noted["asked"]]
        never += sum(rotary.refusal(spec, train) in why or rotary.refusal(spec, length) in why for spec, length in specs)
    coefficients = []
    for group in groups(rows):
        for acting in (False, True):
            chosen = group.acting if acting else group
            own = {f"{kind} with {quality}": chosen.strength(kind, quality) for kind, quality in GROUPINGS}
            measured = {key: asdict(strength) for key, strength in own.items() if strength is not None}
            coefficients.append({"models": group.models, "lengths": group.lengths, "acting": acting, **measured})
    facts = ("made_with", "command")
    return {
        "format": FORMAT,
        "models": [{"name": n["name"], **n["settings"], **{key: n[key] for key in facts}} for _, n in models],
        "refused": {name: why for name, why in refused.items() if why},
        "missing": asked - never - len(rows),
        "coefficients": coefficients,
        "rows": list(rows),
    }


if __name__ == "__main__":
    sys.exit(main(Options, run, __doc__))
