"""What is measured of a model with a method: on readings it was trained for, and on longer ones.

    l_train       mean cross-entropy of readings of the training length L, one after the other through the text
    l_misalign    L_SCE of the same place told from L/2 to L tokens: `lengthwise.misalignment`;   kl   its symmetric KL
    log_ppl       mean cross-entropy of one forward over more than L tokens;   beyond   of those told from more than L of them

All in nats. OUT/MODEL/cells.jsonl gets a line a number.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

import lengthwise as lw
from experiments._lib.processes import Once
from lengthwise.evaluation.likelihood import token_nll, windowed_nll
from lengthwise.records.append_only import AppendOnly, read_lines
from lengthwise.tasks.perplexity import Bucket, SlidingWindows, by_bucket

CELLS = "cells.jsonl"
SHORT, LONG = ("l_train", "l_misalign", "kl"), ("log_ppl", "beyond")


@dataclass(frozen=True)
class Estimate:
    mean: float  # nats
    low: float  # ends of its 95 % interval
    high: float


@dataclass(frozen=True)
class Cell:
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

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.mean, self.low, self.high)


@dataclass(frozen=True)
class Reader:
    """A model, what it reads, and how numbers are made of that."""

    model: Any
    ids: Tensor  # [streams, tokens]
    train_length: int
    stretch: int | None  # tokens of a stream that are independent of those after them
    pairs: int  # of two readings
    seed: int

    def short(self, method: Any) -> dict[str, Estimate]:
        """On readings of at most the training length."""
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
            "l_misalign": Estimate(apart.sce, *apart.interval),
            "kl": Estimate(apart.kl, *apart.kl_interval),
        }

    def long(self, method: Any, length: int) -> dict[str, Estimate]:
        """On one forward over `length` tokens of every stream."""
        nll = token_nll(self.model, self.ids[:, : length + 1], method=method, train_length=self.train_length)
        (whole,) = by_bucket(nll, [0, length], self.stretch)
        (beyond,) = by_bucket(nll, [self.train_length, length], self.stretch)
        return {"log_ppl": _logarithm(whole), "beyond": _logarithm(beyond)}


def text_tokens(train_length: int, pairs: int, streams: int) -> int:
    """Of each stream, so that no two pairs need the same tokens."""
    return math.ceil(pairs * (train_length + train_length // 2) / streams)


def _logarithm(bucket: Bucket) -> Estimate:
    return Estimate(*(math.log(value) for value in (bucket.perplexity, bucket.low, bucket.high)))


class Cells:
    """The numbers of one folder, shared with other processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.lines = AppendOnly(folder / CELLS, Cell)

    def once(self, measures: tuple[str, ...], spec: str, length: int, measured: Callable[[], dict[str, Estimate]]) -> Once:
        """Measures that come from the same readings, as a piece of work that one process does for all."""

        def make() -> None:
            begun = time.perf_counter()
            found, seconds = measured(), round(time.perf_counter() - begun, 2)
            self.lines.append([Cell(name, spec, length, *_three(found[name]), seconds) for name in measures])

        def done() -> bool:
            self.lines.refresh()
            return all((name, spec, length) in self.lines.lines for name in measures)

        digest = hashlib.sha256(f"{measures} {spec} {length}".encode()).hexdigest()[:16]
        return Once(self.folder / f".claim-{digest}", done, make)


def _three(one: Estimate) -> tuple[float, float, float]:
    return one.mean, one.low, one.high


def read_cells(folder: Path) -> dict[tuple[str, str, int], Cell]:
    return {cell.key: cell for cell in read_lines(folder / CELLS, Cell)}
